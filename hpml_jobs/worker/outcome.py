"""What a measured cell leaves in its attempt's folder: progress, iterations.npz, record.json."""

import io
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hpml_jobs.attempt import AttemptFolder, Progress, utc_now
from hpml_jobs.cell import CellFile
from hpml_jobs.record import Attempt, Facts, Model, Rank, Record, decode, encode, write_whole
from hpml_jobs.slurm import Outcome
from hpml_jobs.worker.timing import Seconds


class IterationArrays(NamedTuple):
    """The timed epoch of one rank, a value per iteration; seconds, and the batch's mean loss."""

    step_s: Seconds
    stall_s: Seconds
    loss: NDArray[np.float32]


class Measured(NamedTuple):
    """What a rank hands to rank 0."""

    rank: Rank
    arrays: IterationArrays


def say_progress(folder: AttemptFolder, rank: int, *, epoch: int, epochs: int, role: str) -> None:
    """Rank 0 says where the cell stands, between epochs only."""
    if rank == 0:
        write_whole(folder.progress, encode(Progress(epoch=epoch, epochs=epochs, role=role)))


def leave_record(
    folder: AttemptFolder, file: CellFile, everyone: list[Measured], model: Model, facts: Facts
) -> None:
    """Write the arrays, then the record: where there is a record, everything is there.

    Raises:
        InvalidRecordError: what was measured cannot be believed.
    """
    cell = file.cell
    attempt = msgspec.json.decode(folder.about.read_bytes(), type=Attempt)
    ranks = tuple(measured.rank for measured in everyone)
    hosts = tuple(dict.fromkeys(rank.host for rank in ranks))
    record = Record(
        cell=cell,
        slug=cell.slug,
        attempt=msgspec.structs.replace(attempt, hosts=hosts, ended=utc_now()),
        outcome=Outcome.OK,
        model=model,
        facts=facts,
        ranks=ranks,
    )
    text = encode(record)
    decode(text, str(folder.record))  # a reader's checks, while the log still tells why
    content = io.BytesIO()
    np.savez(
        content,
        step_s=np.stack([measured.arrays.step_s for measured in everyone]),
        stall_s=np.stack([measured.arrays.stall_s for measured in everyone]),
        loss=np.stack([measured.arrays.loss for measured in everyone]),
    )
    write_whole(folder.iterations, content.getvalue())
    write_whole(folder.record, text)
