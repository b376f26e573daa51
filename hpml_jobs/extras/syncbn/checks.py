"""The check of what SyncBatchNorm costs on a GPU."""

from hpml_jobs.checks.result import Observation, check
from hpml_jobs.core.check_result import Affected, Level, Tier
from hpml_jobs.core.record import Record
from hpml_jobs.core.strategies import Device, SyncBuffers


@check("host-waits", Level.WARN, Tier.TABLE, Affected.TIME)
def host_waits_in_syncbn(record: Record) -> Observation | None:
    """SyncBatchNorm lets the host wait for the GPU in every layer of every forward: torch picks out
    the ranks with images by a mask, whose size the host must know, so that kernels are not launched
    ahead. A comparison with BatchNorm contains this wait.

    Limit: no sync_buffers=syncbn with device=cuda
    Fix: compare the times with other SyncBatchNorm cells
    """
    cell = record.cell
    if cell.device is not Device.CUDA or not (
        record.model and record.model.buffer_bytes
    ):
        return None
    if cell.sync_buffers is SyncBuffers.SYNCBN:
        return Observation(
            False, "SyncBatchNorm waits for the GPU in every layer of every forward"
        )
    return Observation(True, "no layer waits for the GPU in forward")
