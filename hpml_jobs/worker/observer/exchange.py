"""The exchange of gradients of a script: recorded in one window, and switched off in another."""

import gc
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch._dynamo import OptimizedModule
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from hpml_jobs.core.measurements import CollectiveKind, Purpose, Role
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import EpochPhases, split_phases
from hpml_jobs.worker.instruments.timing import Clock
from hpml_jobs.worker.instruments.wrappers import record_all_reduce
from hpml_jobs.worker.observer.watch import WRAPPERS, world_size
from hpml_jobs.worker.observer.windows import Event, Iterations, Kind, Recording, mark_phases

STAMPS_OF_BATCH = 30
"""Stamps of a batch in an instrumented window: its phases, and the messages of some buckets."""

_BROADCAST = "_distributed_broadcast_coalesced"
"""DDP's method that sends the buffers."""


class Hook:
    """The communication hook of a DDP wrapper: the same arithmetic as without one.

    A script may register its own afterwards, which then replaces it.
    """

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self.exchange: Exchange | None = None
        self._group = wrapper.process_group
        self._in_place = wrapper.gradient_as_bucket_view
        self._of_script: tuple[Any, Callable[..., Any]] | None = None
        wrapper.register_comm_hook(self, _exchange_bucket)
        wrapper.register_comm_hook = self.register  # type: ignore[method-assign]

    def register(self, state: object, hook: Callable[..., Any]) -> None:
        """Use the script's own hook from now on; only one is possible, as in torch."""
        if self._of_script:
            raise RuntimeError("register_comm_hook can only be called once.")
        self._of_script = state, hook

    def run(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket, and record it in an instrumented window."""
        if self._of_script:
            state, hook = self._of_script
            future: torch.futures.Future[Tensor] = hook(state, bucket)
            return future
        size = dist.get_world_size(self._group)
        # DDP divides in the bucket, but multiplies where it copies a gradient into it.
        tensor = bucket.buffer().div_(size) if self._in_place else bucket.buffer().mul_(1 / size)
        ledger = self.exchange.current_ledger() if self.exchange else None
        return record_all_reduce(tensor, ledger, self._group)


def _exchange_bucket(state: Hook, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    return state.run(bucket)


class Exchange:
    """The instruments of a script's later windows. `events` are those of the current window.

    `missing` is the reason why phases and exchange are not split; None where they are. `ledger` is
    that of the instrumented window.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.model: nn.Module | None = None
        self.ledger: Ledger | None = None
        self.missing: str | None = None
        self.events: list[Event] = []
        self._hooks: list[Hook] = []
        self._undo: list[Callable[[], Any]] = []

    def find_model(self, optimizer: Optimizer, on_call: Callable[..., None] | None) -> None:
        """Find the outermost module with the optimizer's parameters: wrapped, compiled or called.

        `on_call` is called with the arguments of its later forward passes.
        """
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}

        def take(module: nn.Module) -> bool:
            if trained.isdisjoint(map(id, module.parameters())):
                return False
            self.model = module
            if on_call:
                module.register_forward_pre_hook(on_call, with_kwargs=True)
            return True

        # torch warns of global hooks where a module is compiled.
        compiled = [value for value in gc.get_objects() if type(value) is OptimizedModule]
        outer = sorted([*WRAPPERS, *compiled], key=lambda module: -len([*module.modules()]))
        if not any(map(take, outer)):
            handle = register_module_forward_pre_hook(
                lambda module, _: handle.remove() if take(module) else None
            )

    @property
    def _wrappers(self) -> list[DistributedDataParallel]:
        """The wrappers that exchange gradients; that of a single process sends nothing."""
        return [*WRAPPERS] if world_size() > 1 else []

    @property
    def _is_compiled(self) -> bool:
        return isinstance(self.model, OptimizedModule)

    @property
    def can_be_off(self) -> bool:
        """Whether the processes can train without exchange: under DDP that is not compiled."""
        return len(self._wrappers) > 0 and not self._is_compiled

    def prepare(self) -> None:
        """Make ready to record the exchange, or say in `missing` why not."""
        modules = [*self.model.modules()] if self.model is not None else []
        if self.model is None:
            self.missing = (
                "the model with the optimizer's parameters has no forward pass of its own"
            )
        elif WRAPPERS and self._is_compiled:  # what is changed in it would be compiled anew
            self.missing = "DistributedDataParallel is compiled: wrap the compiled model instead"
        elif world_size() > 1 and not WRAPPERS:
            self.missing = "the gradients are not exchanged by DistributedDataParallel"
        elif world_size() > 1 and any(isinstance(m, nn.SyncBatchNorm) for m in modules):
            self.missing = "SyncBatchNorm sends messages inside of forward and backward"
        try:
            self._hooks = [Hook(wrapper) for wrapper in self._wrappers] if not self.missing else []
        except RuntimeError:
            self.missing = "DistributedDataParallel has a communication hook of the script's own"

    def stamps(self, role: Role) -> int:
        """Return how many stamps a batch needs at most, beside those of the session."""
        return STAMPS_OF_BATCH if role is Role.INSTRUMENTED else 0

    def start(self, role: Role) -> None:
        """Begin to record phases and messages, or switch the exchange off."""
        if role is Role.INSTRUMENTED and self.model is not None:
            self.ledger = Ledger(self.clock)
            of_model = (
                self.model.register_forward_pre_hook(lambda *_: self._note(Kind.FORWARD)),
                self.model.register_forward_hook(lambda *_: self._note(Kind.FORWARDED)),
            )
            self._undo += [handle.remove for handle in of_model]
            for hook in self._hooks:
                hook.exchange = self
                self._undo.append(partial(setattr, hook, "exchange", None))
            for wrapper in self._wrappers:
                self._record_buffers(wrapper)
        if role is Role.UNSYNCED:
            for wrapper in self._wrappers:
                self._switch_off(wrapper)

    def stop(self) -> None:
        """Undo what `start` did."""
        while self._undo:
            self._undo.pop()()

    def _note(self, kind: Kind) -> None:
        self.events.append(Event(kind, self.clock.stamp()))

    def begin_step(
        self, args: tuple[Any, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """Note that the gradients are there: after the closure, if there is one (Lightning's)."""
        last = self.events[-1].kind if self.events else None
        if not self._undo or last is Kind.STEP:  # one step inside another, as those of ZeRO
            return None
        closure = options.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._note(Kind.STEP)
            return None

        def noted() -> Any:
            loss = closure()
            self._note(Kind.STEP)
            return loss

        if "closure" in options:
            return args, options | {"closure": noted}
        return (args[0], noted, *args[2:]), options

    def current_ledger(self) -> Ledger | None:
        """Return the ledger, for a message that begins now."""
        if self.ledger:
            self.ledger.iteration = len(self.events)  # of which `split` makes the micro-step
        return self.ledger

    def _record_buffers(self, wrapper: DistributedDataParallel) -> None:
        send = getattr(wrapper, _BROADCAST)

        def record(tensors: list[Tensor], *args: Any, **options: Any) -> None:
            start = self.clock.stamp()
            send(tensors, *args, **options)
            if ledger := self.current_ledger():
                ledger.record_call(CollectiveKind.BROADCAST, Purpose.BUFFERS, tensors, start)

        wrapper.__dict__[_BROADCAST] = record
        self._undo.append(lambda: wrapper.__dict__.pop(_BROADCAST))

    def _switch_off(self, wrapper: DistributedDataParallel) -> None:
        """Let a wrapper exchange nothing, also where the script sets this attribute itself."""
        kind = type(wrapper)
        is_off = property(lambda _: False, lambda *_: None)
        wrapper.__class__ = type(kind.__name__, (kind,), {"require_backward_grad_sync": is_off})
        wrapper.require_forward_param_sync = False
        self._undo.append(lambda: setattr(wrapper, "__class__", kind))

    def split(self, recording: Recording, iterations: Iterations) -> EpochPhases | None:
        """Return the phases of the instrumented window; None with the reason in `missing`."""
        steps = mark_phases(recording.window.start, iterations)
        if isinstance(steps, str) or self.ledger is None:
            self.missing = str(steps)
            return None
        place = {id(event): number for number, event in enumerate(recording.events)}
        starts = [place[id(step.events[0])] for step in steps]
        for entry in self.ledger.collectives:
            entry.iteration = max(0, bisect_right(starts, entry.iteration - 1) - 1)
        return split_phases(
            recording.window,
            [step.marks for step in steps],
            self.ledger,
            overlaps=True,
            accumulate=max(1, iterations.accumulate),
        )
