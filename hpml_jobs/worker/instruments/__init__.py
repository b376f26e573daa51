"""The worker's instruments: clocks, phases, collectives, torch's traces."""
