"""Runs with curves in iterations.npz, of several epochs."""

import numpy as np

from hpml_jobs.core.cell import Protocol
from tests.unit.builders import lab_cell, lab_record

LAB = {"protocol": Protocol.LAB, "epochs": 5}


def write_curves(builder, slug, **changes):
    """Write the arrays a worker leaves beside a record: loss falls from 2 to 1, steps of 10 ms."""
    folder = builder.study.cell(slug)
    record = folder.read_record()
    trained = [epoch for epoch in record.ranks[0].epochs if epoch.role != "unsynced"]
    ranks, iterations = len(record.ranks), sum(epoch.iterations for epoch in trained)
    loss = np.linspace(2, 1, iterations, dtype=np.float32)
    arrays = {
        "curve_loss": np.stack([loss + rank for rank in range(ranks)]),
        "curve_step_s": np.stack(
            [np.full(iterations, 0.01 * (r + 1)) for r in range(ranks)]
        ),
        "curve_lr": np.full((ranks, iterations), 0.1),
        "step_s": np.zeros((ranks, 1)),
    }
    np.savez(folder.iterations, **(arrays | changes))
    return slug


def two_gpu_cell_with_curves(builder, batch=512, **changes):
    """A cell on 2 GPUs with its record and arrays: 3 epochs of 49 iterations."""
    return write_curves(
        builder,
        builder.with_record(lab_record(lab_cell(2, batch, **changes), 20.0)).slug,
    )
