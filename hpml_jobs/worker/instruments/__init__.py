"""The worker's instruments: clocks, phases, collectives, microbenchmark, profiler."""
