"""The messages of DistributedDataParallel, recorded by a communication hook and in its class."""

from collections.abc import Callable
from functools import partial, wraps
from math import inf
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from hpml_jobs.core.measurements import CollectiveKind, Purpose
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.timing import Stamp
from hpml_jobs.worker.instruments.wrappers import record_all_reduce
from hpml_jobs.worker.observer.process import WRAPPERS, guarded, world_size

_BROADCAST = "_distributed_broadcast_coalesced"
"""DDP's method that sends the buffers."""


class GuardedLedger(Ledger):
    """A ledger whose faults do not reach the script that it is called from."""

    begin = guarded(Ledger.begin)  # type: ignore[assignment]
    end = guarded(Ledger.end)
    record_call = guarded(Ledger.record_call)

    @guarded
    def stamp(self) -> Stamp:
        """Take a stamp."""
        return self.clock.stamp()


CurrentLedger = Callable[[], GuardedLedger | None]
"""Returns the ledger for a message that begins now; None where it is not to be recorded."""


class Hook:
    """The communication hook of a DDP wrapper: the same arithmetic as without one.

    torch's method would keep the hook in the wrapper, with which it would be saved.
    """

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self.current_ledger: CurrentLedger | None = None
        self._group = wrapper.process_group
        dist._register_comm_hook(wrapper.reducer, self, Hook.run)  # type: ignore[attr-defined]  # torch exports no type of it

    @staticmethod
    def keeps_bits(wrapper: DistributedDataParallel) -> bool:
        """Return whether the hook computes what the wrapper computes without it, in every bit.

        With gradients in the buckets DDP divides those that were there and multiplies the others.
        `Join` may let it divide by the ranks that still train.
        """
        by_all = getattr(wrapper, "_divide_by_initial_world_size", True)
        return by_all and not wrapper.gradient_as_bucket_view

    def run(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket, and record it in an instrumented window."""
        size = dist.get_world_size(self._group)
        tensor = bucket.buffer().mul_(1 / size)
        ledger = self.current_ledger() if self.current_ledger else None
        return record_all_reduce(tensor, ledger, self._group)


HOOKS: "WeakKeyDictionary[DistributedDataParallel, Hook]" = WeakKeyDictionary()


def wrappers() -> list[DistributedDataParallel]:
    """Return the wrappers that exchange gradients; that of a single process sends nothing."""
    return [*WRAPPERS] if world_size() > 1 else []


def hook_into_wrappers(model: nn.Module | None) -> bool:
    """Hook into the exchange; return whether all of it is DDP's own, and hooked."""
    modules = model.modules() if model is not None else ()
    if any(isinstance(module, nn.SyncBatchNorm) for module in modules):
        return False  # which sends messages inside of forward and backward
    if not all(map(Hook.keeps_bits, wrappers())):
        return False
    for wrapper in wrappers():
        try:
            HOOKS[wrapper] = HOOKS.get(wrapper) or Hook(wrapper)
        except RuntimeError:  # the script has a hook of its own
            return False
    return len(HOOKS) > 0


def record_messages(current_ledger: CurrentLedger) -> list[Callable[[], Any]]:
    """Record the messages of the wrappers from now on; return how to undo it, last of all first."""
    undo: list[Callable[[], Any]] = []
    for hook in HOOKS.values():
        hook.current_ledger = current_ledger
        undo.append(partial(setattr, hook, "current_ledger", None))
    if wrappers():
        undo.append(_record_buffers(current_ledger))
    return undo


def _record_buffers(current_ledger: CurrentLedger) -> Callable[[], Any]:
    """Record DDP's broadcasts of buffers: in its class, since a wrapper may be saved."""
    send = getattr(DistributedDataParallel, _BROADCAST)

    @wraps(send)
    def record(wrapper: Any, tensors: list[Tensor], *args: Any, **options: Any) -> None:
        ledger = current_ledger()
        start = ledger.stamp() if ledger else None
        send(wrapper, tensors, *args, **options)
        if ledger:
            ledger.record_call(
                CollectiveKind.BROADCAST, Purpose.BUFFERS, tensors, start
            )

    setattr(DistributedDataParallel, _BROADCAST, record)
    return partial(setattr, DistributedDataParallel, _BROADCAST, send)


def most_messages(accumulate: int) -> float:
    """Return how many collectives DDP records in an iteration at most; inf if not known.

    That on parameters that were not used is none of them.
    """
    most = 0.0
    for wrapper in wrappers():
        # torch annotates neither of the two
        logged: dict[str, Any] = wrapper._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        most += logged.get("num_buckets_reduced", inf)
        if wrapper.will_sync_module_buffers():  # type: ignore[no-untyped-call]
            dtypes = {buffer.dtype for buffer in wrapper.buffers()}
            most += max(1, accumulate) * len(dtypes)
    return most
