"""Test accuracy in bf16 and in fp32 with the same seeds, after a short training on digits."""

from collections.abc import Iterator
from math import sqrt
from statistics import fmean, median, stdev

import msgspec

from hpml_jobs.core.cell import Protocol
from hpml_jobs.core.training_path import Precision, TrainingPath
from tests.gpu.bench import Bench
from tests.gpu.catalog import keys_of
from tests.gpu.figures import Figure, left_out

PRECISIONS = ("fp32", "bf16")


def measure(bench: Bench) -> Iterator[Figure]:
    """Train every seed in both precisions and compare the accuracies by pairs."""
    if reason := bench.why_not(Precision.BF16):
        yield from left_out(keys_of("accuracy"), reason)
        return
    workload = msgspec.structs.replace(
        bench.sizes.workload, name="digits", data="digits", images=20_480, lr=0.05
    )
    accuracies: dict[str, list[float]] = {name: [] for name in PRECISIONS}
    for seed in range(bench.sizes.accuracy_seeds):
        for precision in PRECISIONS:
            run = bench.run_cell(
                f"{precision} {seed}",
                workload=workload,
                seed=seed,
                path=TrainingPath(precision=Precision(precision)),
                protocol=Protocol.LAB,
                epochs=bench.sizes.accuracy_epochs,
            )
            accuracy = (
                run.record.ranks[0].test_accuracy if run.record and run.is_ok else None
            )
            if accuracy is None:
                yield Figure(
                    key=precision, value=None, note=f"seed {seed}: {run.reason}"
                )
                return
            accuracies[precision].append(accuracy)
    for precision, values in accuracies.items():
        note = f"{min(values):.4g} to {max(values):.4g}, {len(values)} seeds"
        yield Figure(key=precision, value=median(values), note=note)
    yield from differences(accuracies["fp32"], accuracies["bf16"])


def differences(reference: list[float], values: list[float]) -> Iterator[Figure]:
    """Return the mean of the paired differences, and how many standard errors it is from 0."""
    pairs = [value - other for value, other in zip(values, reference, strict=True)]
    mean = fmean(pairs)
    yield Figure(key="difference", value=mean)
    error = stdev(pairs) / sqrt(len(pairs)) if len(pairs) > 1 else 0.0
    if not error:
        reason = (
            "all pairs differ by the same"
            if len(pairs) > 1
            else "one seed has no spread"
        )
        yield Figure(key="noise", value=None if mean else 0.0, note=reason)
        return
    yield Figure(key="noise", value=mean / error)
