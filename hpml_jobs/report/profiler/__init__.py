"""The profiler's cross-check and timeline."""
