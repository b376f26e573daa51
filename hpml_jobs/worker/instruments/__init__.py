"""The worker's instruments: clocks, phases, collectives, profiler."""
