"""Is a measured cell right? Checks of times, counts, the model and its replicas."""

import math

from hpml_jobs.checks.gpu_peaks import known_flop_per_sample, peak_flop_per_s
from hpml_jobs.checks.limits import CLOSURE_LIMIT, RANKS_LIMIT
from hpml_jobs.checks.result import CheckResult, Level, judge
from hpml_jobs.core.cell import Device
from hpml_jobs.core.formulas import closure, flop_per_s, iterations, samples_processed
from hpml_jobs.core.measurements import UNSYNCED
from hpml_jobs.core.record import Record
from hpml_jobs.core.text import percent_text


def phases_close(record: Record) -> CheckResult | None:
    """Phases add up to the epoch on every rank: within 1 % on a CPU, 2 % with CUDA's events."""
    epochs = [rank.epoch("instrumented") for rank in record.ranks]
    gaps = [closure(e.epoch_s, e.phases.parts_s) for e in epochs if e is not None and e.phases]
    if not gaps:
        return None
    worst, limit = max(gaps), CLOSURE_LIMIT[record.cell.device]
    return judge(
        "closure",
        holds=worst <= limit,
        found=f"phases miss the epoch by {percent_text(worst)} (limit {percent_text(limit)})",
        advice="time is counted twice or not at all, so Table 2 is wrong; this is a fault of "
        "hpml_jobs, please report it",
    )


def counts(record: Record) -> CheckResult | None:
    """Every rank counted the iterations and samples that its share of the data makes."""
    cell = record.cell
    images = cell.workload.images
    if images is None:
        return None
    expected = (
        iterations(images, cell.gpus, cell.batch),
        samples_processed(images, cell.processes) // cell.processes,
    )
    counted = [
        (rank.rank, epoch.role, (epoch.iterations, epoch.samples))
        for rank in record.ranks
        for epoch in rank.epochs
    ]
    wrong = [found for found in counted if found[2] != expected]
    steps, samples = expected
    if not wrong:
        found = f"{steps:,} iterations and {samples:,} samples per rank and epoch, counted"
    else:
        rank, role, (steps_found, samples_found) = wrong[0]
        found = (
            f"rank {rank} counted {steps_found:,} iterations and {samples_found:,} samples in its "
            f"{role} epoch, not {steps:,} and {samples:,}"
        )
    return judge("counts", holds=not wrong, found=found, advice="the epoch is not a whole epoch")


def parameters(record: Record) -> CheckResult | None:
    """The model that was trained has the parameters of the model that was named."""
    claimed = record.cell.workload.parameters
    if record.model is None or claimed is None:
        return None
    trained = record.model.parameters
    return judge(
        "parameters",
        holds=trained == claimed,
        found=f"{record.model.name} has {trained:,} parameters, {record.cell.workload.name} "
        f"says {claimed:,}",
        advice="another model than the one named was trained; correct workload.model= or "
        "workload.parameters=",
    )


def loss(record: Record) -> CheckResult | None:
    """The mean loss over samples is one that such a model can have.

    A class that is not the most probable one has a probability of at most 1/2, so a mean cross
    entropy below (1 - accuracy) x ln 2 was divided by too much. Above 3 x ln(classes), three times
    that of guessing, training went astray: times stand, loss and accuracy mean nothing.
    """
    workload = record.cell.workload
    epochs = [epoch for rank in record.ranks for epoch in rank.epochs if epoch.role != UNSYNCED]
    broken = [e for e in epochs if not math.isfinite(e.loss) or not 0 <= (e.accuracy or 0) <= 1]
    if broken:
        found = f"loss {broken[0].loss:.4g}, accuracy {broken[0].accuracy or 0:.4g}"
        return judge("loss", holds=False, found=found, advice="no epoch of training has these")
    if workload.loss != "cross_entropy" or workload.classes < 2:
        return None
    for epoch in epochs:
        share = epoch.accuracy or 1.0  # nothing right, or not classes: nothing follows from it
        least = (1 - share) * math.log(2)
        if epoch.loss < least - 1e-6:
            found = (
                f"loss {epoch.loss:.4g} at accuracy {percent_text(share)} in the {epoch.role} "
                f"epoch, at least {least:.4g} is possible"
            )
            return judge("loss", holds=False, found=found, advice="it is not a mean over samples")
    worst = max((epoch.loss for epoch in epochs), default=0.0)
    limit = 3 * math.log(workload.classes)
    return judge(
        "loss",
        holds=worst <= limit,
        found=f"loss is {worst:.3f} at most (limit {limit:.3f}, 3 x ln {workload.classes})",
        advice="training went astray: its times stand, its accuracy means nothing; take a smaller "
        "workload.lr=",
        otherwise=Level.WARN,
    )


def ranks_agree(record: Record) -> CheckResult | None:
    """Ranks of synchronous training end together: within 1 % or one iteration."""
    if len(record.ranks) < 2:
        return None
    times_s = [rank.timed.epoch_s for rank in record.ranks]
    longest = max(times_s)
    spread, step_s = longest - min(times_s), longest / max(1, record.iterations)
    limit = max(RANKS_LIMIT * longest, step_s)
    return judge(
        "ranks-agree",
        holds=spread <= limit,
        found=f"ranks differ by {spread:.3g} s, {percent_text(spread / longest)} of the epoch "
        f"(limit 1 % or one iteration, {limit:.3g} s)",
        advice="they were not timed between the same two points, or did not train together",
    )


def replicas(record: Record) -> CheckResult | None:
    """Parameters are the same on every rank after the last epoch of training."""
    hashes = [rank.parameters_hash for rank in record.ranks]
    if len(hashes) < 2 or "" in hashes:
        return None
    kinds = len(set(hashes))
    equal = f"the same parameters on all {len(hashes)} ranks"
    return judge(
        "replicas",
        holds=kinds == 1,
        found=equal if kinds == 1 else f"{kinds} different replicas on {len(hashes)} ranks",
        advice="gradients did not meet, so this was not data-parallel training; this is a fault "
        "of hpml_jobs, please report it",
    )


def flops(record: Record) -> CheckResult | None:
    """The device computes no faster than it can; not applied where its peak is not known."""
    cell, facts, told = record.cell, record.facts, record.imported
    model = (facts.gpu_model if facts else None) or (told.gpu_model if told else None)
    trained = record.model.parameters if record.model else cell.workload.parameters
    counted = record.model.flop_per_sample if record.model else None
    flop = counted or known_flop_per_sample(trained, cell.workload.image_size)
    if cell.device is not Device.CUDA or not model or not flop or not record.samples:
        return None
    off = facts is not None and facts.tf32_matmul is False and facts.tf32_cudnn is False
    peak = peak_flop_per_s(model, facts.precision if facts else "fp32", tf32=not off)
    if peak is None:
        return None
    seconds = record.compute_s or record.train_s or record.epoch_s
    found = flop_per_s(flop, record.samples // cell.gpus, seconds)
    return judge(
        "flops",
        holds=found <= peak,
        found=f"{found / 1e12:.4g} TFLOP/s per GPU, a {model} has {peak / 1e12:.4g}",
        advice="the time of computation is too short: timed without synchronisation, or another "
        "model than the one named",
    )


CHECKS = (
    phases_close,
    counts,
    parameters,
    loss,
    ranks_agree,
    replicas,
    flops,
)
"""Of measured records, in the order they are told."""
