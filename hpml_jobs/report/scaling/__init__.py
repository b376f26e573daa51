"""Time, throughput and speedups by number of GPUs."""
