"""Formulas of all derived numbers of a study; names carry the units."""

from collections.abc import Iterable, Mapping
from math import ceil, hypot, log2

HAND_OVER_S = 0.002
"""The longest hand-over of a batch from a loader worker (0.6 to 1.4 ms on busy CPUs)."""

MOST_LAUNCHES = 5
"""Launches of a cell by `repeats=auto`, at most."""


def iterations(images: int, processes: int, batch: int, accumulate: int = 1) -> int:
    """Return the iterations of one epoch: I(N, b) = ceil(ceil(D / N) / b).

    The sampler pads the data set to N equal shares. An iteration ends with a step of the optimizer:
    with K accumulated batches there are I = ceil(ceil(ceil(D / N) / b) / K).

    >>> [iterations(50_000, n, 128) for n in (1, 2, 4)]
    [391, 196, 98]
    >>> iterations(50_000, 4, 128, accumulate=4)
    25
    """
    return ceil(ceil(ceil(images / processes) / batch) / accumulate)


def samples_processed(images: int, processes: int) -> int:
    """Return the samples of one epoch over all processes, padding included: N x ceil(D / N).

    >>> samples_processed(1_500, 4), samples_processed(1_501, 4)
    (1500, 1504)
    """
    return processes * ceil(images / processes)


def largest_near_best(seconds: Mapping[int, float]) -> int:
    """Return the largest batch whose rate is within 10 % of the best; `seconds` are by batch.

    >>> largest_near_best({32: 1.5, 128: 1.0, 512: 1.1, 2048: 1.2})
    512
    """
    best_s = min(seconds.values())
    return max(batch for batch, time_s in seconds.items() if 0.9 * time_s <= best_s)


def entropy_bits(counts: Iterable[int]) -> float:
    """Return the entropy of frequencies in bits: - sum p log2 p (Shannon 1948).

    Of the bytes of a text, it is the least loss of a model that knows how frequent each byte is,
    and nothing of the bytes before it: the unigram entropy.

    >>> entropy_bits([5, 5, 5, 5, 0]), entropy_bits([7])
    (2.0, 0.0)
    """
    present = [*filter(None, counts)]
    total = sum(present)
    return abs(sum(count / total * log2(count / total) for count in present))


def speedup(baseline_s: float, time_s: float) -> float:
    """Return the speedup over the single-GPU baseline on the same data set: S = T1 / TN.

    T1 / TN is already the ratio of throughputs, so it must not be multiplied by N.

    >>> round(speedup(48.612, 30.819), 3)
    1.577
    """
    return baseline_s / time_s


def units_per_s(units: int, epoch_s: float) -> float:
    """Return the throughput of all processes: units processed (with padding) / epoch_s.

    Units are images, samples, or tokens: those of a sample x samples.

    >>> units_per_s(50_000, 20.0), units_per_s(8_192 * 128, 20.0)
    (2500.0, 52428.8)
    """
    return units / epoch_s


def weak_efficiency(baseline_step_s: float, step_s: float) -> float:
    """Return the weak-scaling efficiency: step(1, b) / step(N, b).

    A step is the median duration of an iteration with a full batch; the batch per GPU, b, is the
    same on 1 and on N GPUs.

    >>> weak_efficiency(0.1, 0.125)
    0.8
    """
    return baseline_step_s / step_s


def karp_flatt(speedup_ratio: float, processes: int) -> float:
    """Return the serial fraction that Amdahl's law needs for a speedup: (1/S - 1/N) / (1 - 1/N).

    Karp & Flatt, CACM 33(5), 1990. It is a fraction where the work is the same on 1 and on N GPUs
    (the same global batch), and the speedup is between 1 and N.

    >>> round(karp_flatt(3.2, 4), 4)
    0.0833
    """
    return (1 / speedup_ratio - 1 / processes) / (1 - 1 / processes)


def efficiency(
    speedup_ratio: float, processes: int, reference_processes: int = 1
) -> float:
    """Return the parallel efficiency, the share of the ideal speedup: S x g0 / N.

    The speedup is against g0 processes.

    >>> efficiency(3.0, 4), efficiency(1.8, 32, reference_processes=16)
    (0.75, 0.9)
    """
    return speedup_ratio * reference_processes / processes


def cost_per_compute(efficiency_: float) -> float:
    """Return the cost of N GPUs per second of computation on one: 1 / efficiency - 1.

    With t the time of an iteration on one GPU and t + c on N, it is c / t. It is 0 for an ideal
    speedup and negative for one above N.

    >>> cost_per_compute(0.8)
    0.25
    """
    return 1 / efficiency_ - 1


def beyond_ideal_s(time_s: float, reference_s: float, ideal_speedup: float) -> float:
    """Return the seconds beyond ideal scaling: T(N) - T(g) / ideal, of an epoch or a part of it.

    >>> beyond_ideal_s(10.0, 26.0, ideal_speedup=4)
    3.5
    """
    return time_s - reference_s / ideal_speedup


def lost_speedup(lost_s: float, time_s: float, ideal_speedup: float) -> float:
    """Return what a cause of lost seconds takes of the ideal speedup: ideal x lost_s / T(N).

    Over all causes it sums to ideal - speedup. It is the cause's Aumann-Shapley value (Billera &
    Heath, Math. Oper. Res. 7(1), 1982) of the speedup T(g) / (T(g) / ideal + lost seconds).

    >>> lost_speedup(3.5, 10.0, ideal_speedup=4), 4 - speedup(26.0, 10.0)
    (1.4, 1.4)
    """
    return ideal_speedup * lost_s / time_s


def residual_communication_s(
    train_s: float, images: float, baseline_train_s: float, baseline_images: int
) -> float:
    """Return the lab's estimate of communication: train_s(N, b) - train_s(1, b) x ceil(D/N) / D.

    This is the time of an epoch beyond that in which one GPU trains on as many images (`images` are
    those of one GPU), in seconds. A negative value means noise or a slow baseline; no bandwidth can
    be derived from it.

    >>> residual_communication_s(12.0, 5_000, 20.0, 10_000)
    2.0
    """
    return train_s - baseline_train_s * images / baseline_images


def computation_s(
    h2d_s: float,
    forward_s: float,
    backward_s: float,
    optimizer_s: float,
    comm_inside_s: float,
) -> float:
    """Return the computation of an epoch, with copies to the device, without communication.

    `comm_inside_s` is what the phases contain of it: collectives in forward and in the optimizer's
    step, and packing by hand, which counts as backward.

    >>> computation_s(0.5, 2.0, 4.0, 1.0, comm_inside_s=0.25 + 0.5)
    6.75
    """
    return h2d_s + forward_s + backward_s + optimizer_s - comm_inside_s


def exposed_communication_s(
    comm_exposed_s: float, comm_forward_s: float, comm_optimizer_s: float
) -> float:
    """Return the exposed communication: in and after backward, inside forward and the optimizer.

    >>> exposed_communication_s(1.5, comm_forward_s=0.25, comm_optimizer_s=0.5)
    2.25
    """
    return comm_exposed_s + comm_forward_s + comm_optimizer_s


def waiting_s(exposed_s: float, exchange_s: float) -> float:
    """Return the exposed communication beyond the exchange: waiting for a later rank.

    `exchange_s` sums each collective's least exposed time over ranks. Rounding never makes the
    difference negative.

    >>> waiting_s(1.75, exchange_s=1.5), waiting_s(0.1 + 0.2, 0.1 + 0.2 + 1e-17)
    (0.25, 0.0)
    """
    return max(0.0, exposed_s - exchange_s)


def communication_s(exposed_s: float, pack_s: float) -> float:
    """Return the communication of Table 2: exposed, and packing by hand, which exists only for it.

    computation_s + communication_s = train_s of the same epoch.

    >>> communication_s(1.75, pack_s=0.5)
    2.25
    """
    return exposed_s + pack_s


def overlap_s(comm_total_s: float, comm_exposed_s: float) -> float:
    """Return the communication that overlaps computation: total - exposed.

    >>> overlap_s(3.0, 1.75)
    1.25
    """
    return comm_total_s - comm_exposed_s


def communication_cost_s(synced_epoch_s: float, unsynced_epoch_s: float) -> float:
    """Return the total cost of synchronization: an epoch with it - the same epoch without.

    The cost includes copies into and out of buckets, and the slowdown of computation by collectives
    (cores, memory, SMs).

    >>> communication_cost_s(12.0, 9.5)
    2.5
    """
    return synced_epoch_s - unsynced_epoch_s


def loader_waiting_s(
    stall_s: float, first_s: float, p20_s: float, iterations_: int
) -> float:
    """Return the part of an epoch's stall in which batches were not ready.

    The first stall is that of the first batch, which nothing hides. Each other iteration has a
    hand-over, the time of passing a batch that is ready: the 20th percentile of the stalls, but at
    most `HAND_OVER_S`, since a loader that is always late makes all stalls equally long.

    >>> round(loader_waiting_s(2.0, first_s=0.5, p20_s=0.001, iterations_=101), 3)
    1.4
    >>> round(loader_waiting_s(1.0, first_s=0.02, p20_s=0.01, iterations_=100), 3)  # always late
    0.782
    >>> loader_waiting_s(0.15, first_s=0.1, p20_s=0.001, iterations_=101)
    0.0
    """
    return max(0.0, stall_s - first_s - min(p20_s, HAND_OVER_S) * (iterations_ - 1))


def cost_resolution_s(
    iterations_: int, synced_width_s: float, unsynced_width_s: float
) -> float:
    """Return the resolution of the cost, +- seconds: I x sqrt(w1^2 + w3^2) / 2.

    w is the quartile width of the steps of an epoch (third less first quartile). The steps are
    taken to deviate together by half of it, because other load on the machine lasts longer than a
    step; if they were independent, the epochs would differ sqrt(I) times less than they do.

    >>> cost_resolution_s(100, 0.003, 0.004)
    0.25
    """
    return iterations_ * hypot(synced_width_s, unsynced_width_s) / 2


def union_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of (start, end) intervals; overlaps count once.

    >>> union_s([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def launch_share(launch_s: float, iterations_: int, epoch_s: float) -> float:
    """Return the share of an epoch that the host needs at least to launch its kernels.

    Near 1 the device waits for the host: the epoch is launch-bound.

    >>> launch_share(0.75, iterations_=4, epoch_s=5.0)
    0.6
    """
    return launch_s * iterations_ / epoch_s


def closure(epoch_s: float, phases_s: Iterable[float]) -> float:
    """Return the relative gap between the epoch and its phases: |epoch - sum| / epoch.

    >>> closure(10.0, [6.0, 3.95])
    0.005
    """
    return round(abs(epoch_s - sum(phases_s)) / epoch_s, 12)


def overhead(instrumented_epoch_s: float, timed_epoch_s: float) -> float:
    """Return the overhead of the instruments: instrumented epoch / timed epoch - 1.

    >>> round(overhead(10.2, 10.0), 3)
    0.02
    """
    return instrumented_epoch_s / timed_epoch_s - 1


def gradient_bytes(parameters: int, element_bytes: int = 4) -> int:
    """Return the bytes of one set of gradients: elements x bytes of an element (fp32: 4).

    >>> gradient_bytes(11_173_962)
    44695848
    """
    return parameters * element_bytes


def expected_bytes(iterations_: int, gradient_bytes_: int, directions: int = 1) -> int:
    """Return the gradient bytes of one rank in one epoch: I x S, twice for gather_scatter.

    >>> expected_bytes(196, 44_695_848), expected_bytes(196, 44_695_848, directions=2)
    (8760386208, 17520772416)
    """
    return directions * iterations_ * gradient_bytes_


def ring_factor(processes: int) -> float:
    """Return the bytes sent per rank and message byte in a ring all-reduce: 2(N - 1) / N.

    Patarasuk & Yuan, JPDC 69(2), 2009; nccl-tests, doc/PERFORMANCE.md.

    >>> [ring_factor(n) for n in (2, 4, 8)]
    [1.0, 1.5, 1.75]
    """
    return 2 * (processes - 1) / processes


def bus_factor(collective: str, processes: int) -> float:
    """Return nccl-tests' ratio of bus bandwidth to algorithm bandwidth (doc/PERFORMANCE.md).

    The bytes of an all-gather are those of the gathered tensor, the bytes of a reduce-scatter those
    of the tensor that is reduced.

    Raises:
        KeyError: nccl-tests' definition does not fit the bytes that are recorded of the collective.

    >>> [bus_factor("all_reduce", n) for n in (2, 4, 8)]
    [1.0, 1.5, 1.75]
    >>> [bus_factor(kind, 4) for kind in ("all_gather", "reduce_scatter", "broadcast")]
    [0.75, 0.75, 1.0]
    """
    share = (processes - 1) / processes
    return {
        "all_reduce": ring_factor(processes),
        "all_gather": share,
        "reduce_scatter": share,
        "broadcast": 1.0,
    }[collective]


def algorithm_gb_per_s(message_bytes: float, communication_s: float) -> float:
    """Return the algorithm bandwidth in GB/s: message bytes / time / 1e9 (nccl-tests' algbw).

    >>> algorithm_gb_per_s(196 * 44_695_848, 2.0)
    4.380193104
    """
    return message_bytes / communication_s / 1e9


def bus_gb_per_s(
    message_bytes: float,
    communication_s: float,
    processes: int,
    collective: str = "all_reduce",
) -> float:
    """Return the bus bandwidth in GB/s: bus factor x algbw (nccl-tests' busbw).

    >>> bus_gb_per_s(196 * 44_695_848, 2.0, 4)
    6.570289656
    >>> bus_gb_per_s(196 * 44_695_848, 1.0, 4, "reduce_scatter")
    6.570289656
    """
    return bus_factor(collective, processes) * message_bytes / communication_s / 1e9


def flop_per_s(flop_per_sample: float, samples: int, seconds: float) -> float:
    """Return the FLOP/s of one device for the forward and backward passes of its samples.

    >>> flop_per_s(3.329e9, 12_500, 10.0) / 1e12
    4.16125
    """
    return flop_per_sample * samples / seconds


def transformer_flop_per_token(
    weights: int, layers: int, width: int, context: int
) -> int:
    """Return the FLOP of a token's forward and backward pass: 6 N + 12 L H Q T.

    N are the parameters that take part in matrix products: all but the position embeddings (and the
    token embeddings, unless they are the output weights as well). Attention over T tokens of
    context has L layers of H heads of size Q; H x Q is the width. Chowdhery et al., PaLM,
    appendix B; N as in nanoGPT's get_num_params and estimate_mfu.

    >>> transformer_flop_per_token(124_439_808 - 1_024 * 768, 12, 768, 1_024)
    855166464
    """
    return 6 * weights + 12 * layers * width * context


def utilization(reached_flop_per_s: float, peak_flop_per_s: float) -> float:
    """Return the model FLOP utilization (MFU): FLOP/s of the model / peak at its precision.

    The FLOP are those of one forward and backward pass; what is computed again to save memory does
    not count (with it, the share is called HFU). Chowdhery et al., PaLM, appendix B.

    >>> round(utilization(76.9e12, 312e12), 3)
    0.246
    """
    return reached_flop_per_s / peak_flop_per_s


def joules(before_mj: int, after_mj: int) -> float:
    """Return the energy between two readings of a GPU's counter in millijoules.

    >>> joules(1_000_000, 1_350_500)
    350.5
    """
    return (after_mj - before_mj) / 1e3


def gpu_hours(gpus: int, minutes: float) -> float:
    """Return the GPU-hours of a duration: GPUs x minutes / 60.

    >>> gpu_hours(4, 30)
    2.0
    """
    return gpus * minutes / 60


def epoch_share(elapsed_s: float, epoch_s: float) -> float:
    """Return the finished share of a running epoch, at most 0.99.

    The epoch is assumed to take as long as the previous one, `epoch_s`.

    >>> epoch_share(120, 300), epoch_share(400, 300)
    (0.4, 0.99)
    """
    return min(elapsed_s / epoch_s, 0.99)


def training_left_s(elapsed_s: float, epoch_s: float, epochs_after: int) -> float:
    """Return the time to the end of training: the rest of the running epoch, and later epochs.

    >>> training_left_s(120, 300, 1), training_left_s(400, 300, 0)
    (480, 0)
    """
    return max(epoch_s - elapsed_s, 0) + epochs_after * epoch_s
