"""The limits of the checks; docs/checks.md shows the same constants."""

from datetime import timedelta

from hpml_jobs.core.strategies import Device

# correctness
CLOSURE_LIMIT = {Device.CPU: 0.01, Device.CUDA: 0.02}
RANKS_LIMIT = 0.01
LOSS_LIMIT = 3

# communication
EXPOSED_LIMIT = 1.01
BUSBW_LIMIT = 1.1
LARGE_MESSAGE = 1024**2  # bytes; on a GPU the time of smaller ones is mostly latency

# waiting for data and for late ranks
IMBALANCE_LIMIT = 0.05
STALL_LIMIT = 0.05
START_LIMIT = 0.05

# data quality
OVERHEAD_LIMIT = 0.05
OUTLIER_LIMIT = 0.05
PROFILER_LIMIT = 0.05
DRIFT_LIMIT = 0.05
LEAST_ITERATIONS = 10
DRIFT_ITERATIONS = 30
DRIFT_S = 27
LAUNCH_MS = {Device.CPU: 0.5, Device.CUDA: 0.05}
"""Of one message: entering the library from Python and waking up after it; on a GPU, where launches
are queued, the events around it and the way to another stream and back."""
PHASES_LIMIT = 0.05
COPIES_LIMIT = 0.05
LOADER_WAIT_LIMIT = 0.05
LAUNCH_LIMIT = 0.9

# comparability
EFFICIENCY_LIMIT = 1.05
POWER_CLOCK_LIMIT = 0.9
SCATTER_LIMIT = 0.10
APART_LIMIT = timedelta(hours=24)
OVERLAP_LIMIT = timedelta(seconds=1)

# imported timings
UNACCOUNTED_LIMIT = 0.02
LINK_LIMIT = 1.1
RESIDUAL_MATCH = 1e-3
LEAST_TIMINGS = 3
