"""Every derived number of a study: plain numbers in, a plain number out, units in the names."""

from math import ceil


def iterations(images: int, processes: int, batch: int) -> int:
    """Iterations of one epoch: I(N, b) = ceil(ceil(D / N) / b), the sampler pads to N equal shares.

    >>> [iterations(50_000, n, 128) for n in (1, 2, 4)]
    [391, 196, 98]
    """
    return ceil(ceil(images / processes) / batch)


def samples_processed(images: int, processes: int) -> int:
    """Samples of one epoch over all processes, padding included: N x ceil(D / N).

    >>> samples_processed(1_500, 4), samples_processed(1_501, 4)
    (1500, 1504)
    """
    return processes * ceil(images / processes)


def speedup(baseline_s: float, time_s: float) -> float:
    """How many times faster than the single-GPU baseline: S = T1 / TN, on the same data set.

    T1 / TN is already the ratio of throughputs; it is never multiplied by N again.

    >>> round(speedup(48.612, 30.819), 3)
    1.577
    """
    return baseline_s / time_s


def efficiency(speedup_ratio: float, processes: int) -> float:
    """The share of the ideal speedup that was reached: S / N.

    >>> efficiency(3.0, 4)
    0.75
    """
    return speedup_ratio / processes


def residual_communication_s(
    train_s: float, processes_iterations: int, baseline_train_s: float, baseline_iterations: int
) -> float:
    """The lab's estimate of communication: train_s(N, b) - I_N x train_s(1, b) / I_1.

    In seconds per epoch: what an epoch takes beyond the same number of single-GPU iterations. It
    may come out negative; then it is noise or a slow baseline, and no bandwidth follows from it.

    >>> residual_communication_s(12.0, 200, 20.0, 400)
    2.0
    """
    return train_s - processes_iterations * baseline_train_s / baseline_iterations


def ring_factor(processes: int) -> float:
    """Bytes a rank sends per byte of message in a ring all-reduce: f(N) = 2(N - 1) / N.

    Patarasuk & Yuan, JPDC 69(2), 2009; nccl-tests, doc/PERFORMANCE.md.

    >>> [ring_factor(n) for n in (2, 4, 8)]
    [1.0, 1.5, 1.75]
    """
    return 2 * (processes - 1) / processes


def bus_gb_per_s(message_bytes: float, communication_s: float, processes: int) -> float:
    """Bus bandwidth of all-reduces of `message_bytes` in all: f(N) x bytes / time, GB = 1e9 bytes.

    >>> bus_gb_per_s(196 * 44_695_848, 2.0, 4)
    6.570289656
    """
    return ring_factor(processes) * message_bytes / communication_s / 1e9


def gpu_hours(gpus: int, minutes: float) -> float:
    """What a job may use of a budget at most: GPUs x its time limit, in hours.

    >>> gpu_hours(4, 30)
    2.0
    """
    return gpus * minutes / 60
