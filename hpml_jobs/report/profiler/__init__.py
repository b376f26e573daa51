"""The profiler's cross-check."""
