"""The exchange of gradients of a script, recorded in one window.

DDP's by a communication hook, every other one by the profiler.
"""

import gc
from bisect import bisect_right
from collections.abc import Callable
from functools import partial, wraps
from math import ceil, inf
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import BuiltinCommHookType, GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    fp16_compress_hook,
)
from torch.distributed.distributed_c10d import _get_default_group
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from hpml_jobs.core.measurements import CollectiveKind, Purpose, Role
from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.instruments.collectives import Ledger
from hpml_jobs.worker.instruments.phases import EpochPhases, split_phases
from hpml_jobs.worker.instruments.timing import Clock, Stamp
from hpml_jobs.worker.instruments.wrappers import record_all_reduce
from hpml_jobs.worker.observer.meters import parameters_of
from hpml_jobs.worker.observer.traced import MOST_BATCHES, Trace
from hpml_jobs.worker.observer.watch import (
    KEY,
    WRAPPERS,
    guarded,
    has_group,
    is_capturing,
    script_has_profiler,
    world_size,
)
from hpml_jobs.worker.observer.windows import (
    DEPTH,
    SEVERAL,
    Event,
    Iterations,
    Kind,
    Recording,
    mark_phases,
    parts_of,
)

_DIST: Any = dist  # torch exports no type of what is called of it

PASSES = 3
"""Forward passes of a batch, each with two stamps; stamps of the steps of an iteration."""

MESSAGES = 15
"""Messages of an iteration where DDP does not know theirs."""

OWN_LIMIT = 0.1
"""Collectives of the script in an iteration, beside those of DDP, which may not be recorded."""

_BROADCAST = "_distributed_broadcast_coalesced"
"""DDP's method that sends the buffers."""


class Hook:
    """The communication hook of a DDP wrapper: the same arithmetic as without one.

    A script may register its own afterwards, which then replaces it. torch's method would keep the
    hook in the wrapper, with which it would be saved.
    """

    def __init__(self, wrapper: DistributedDataParallel) -> None:
        self.exchange: Exchange | None = None
        self.of_script: tuple[Any, Callable[..., Any]] | None = None
        self._group = wrapper.process_group
        self._in_place = wrapper.gradient_as_bucket_view
        _DIST._register_comm_hook(wrapper.reducer, self, _exchange_bucket)

    @staticmethod
    def keeps_bits(wrapper: DistributedDataParallel) -> bool:
        """Return whether the hook computes what the wrapper computes without it, in every bit.

        With gradients in the buckets DDP divides those that were there and multiplies the others,
        which is the same for powers of two only. `Join` may let it divide by the ranks that still
        train.
        """
        size = dist.get_world_size(wrapper.process_group)
        is_power_of_two = not size & (size - 1)
        by_all = getattr(wrapper, "_divide_by_initial_world_size", True)
        return by_all and (is_power_of_two or not wrapper.gradient_as_bucket_view)

    def run(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Average a bucket, and record it in an instrumented window."""
        if self.of_script:
            state, hook = self.of_script
            future: torch.futures.Future[Tensor] = hook(state, bucket)
            return future
        size = dist.get_world_size(self._group)
        # DDP divides in the bucket, but multiplies where it copies a gradient into it.
        tensor = bucket.buffer().div_(size) if self._in_place else bucket.buffer().mul_(1 / size)
        ledger = self.exchange.current_ledger() if self.exchange else None
        return record_all_reduce(tensor, ledger, self._group)


def _tensors_of(value: Any, depth: int = 0) -> list[Tensor]:
    """Return the tensors in what a model returns."""
    if isinstance(value, Tensor) or depth == DEPTH:
        return [value] if isinstance(value, Tensor) else []
    return [tensor for part in parts_of(value) for tensor in _tensors_of(part, depth + 1)]


def _exchange_bucket(state: Hook, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    return state.run(bucket)


HOOKS: "WeakKeyDictionary[DistributedDataParallel, Hook]" = WeakKeyDictionary()


def _let_script_register() -> None:
    """Let a script register its own hook where a wrapper has ours; torch takes only one."""
    register, register_builtin = _DIST._register_comm_hook, _DIST._register_builtin_comm_hook

    def replaced(reducer: object, state: object, hook: Callable[..., Any]) -> bool:
        ours = next((h for w, h in HOOKS.items() if w.reducer is reducer), None)
        if ours is None or ours.of_script:
            return False
        ours.of_script = state, hook
        return True

    def _register_comm_hook(reducer: Any, state: object, hook: Callable[..., Any]) -> None:
        if not replaced(reducer, state, hook):
            register(reducer, state, hook)

    def _register_builtin_comm_hook(reducer: Any, kind: BuiltinCommHookType) -> None:
        is_half = kind is BuiltinCommHookType.FP16_COMPRESS
        if not replaced(reducer, None, fp16_compress_hook if is_half else allreduce_hook):
            register_builtin(reducer, kind)

    _DIST._register_comm_hook = _register_comm_hook
    _DIST._register_builtin_comm_hook = _register_builtin_comm_hook


def watch_calls(
    model: nn.Module, before: Callable[..., None], after: Callable[[Any], None]
) -> Callable[[], None]:
    """Call functions before and after each forward pass of a model; return how to undo it.

    `before` gets the model, its arguments and its options, as a hook does, `after` what the model
    returns. No hook is in the model: it would be saved and copied with it, and comes after those of
    FSDP.
    """
    kind, own = type(model), vars(type(model)).get("__call__")
    call, before, after = kind.__call__, guarded(before), guarded(after)

    @wraps(call)
    def __call__(module: nn.Module, *args: Any, **options: Any) -> Any:  # noqa: N807
        if module is not model:
            return call(module, *args, **options)
        before(module, args, options)
        outputs = call(module, *args, **options)
        after(outputs)
        return outputs

    kind.__call__ = __call__  # type: ignore[method-assign]
    return partial(setattr, kind, "__call__", own) if own else partial(delattr, kind, "__call__")


def is_compiled(value: object) -> bool:
    """Return whether a value is what torch.compile makes of a module; it imports nothing."""
    return type(value).__name__ == "OptimizedModule" and isinstance(value, nn.Module)


class GuardedLedger(Ledger):
    """A ledger whose faults do not reach the script that it is called from."""

    begin = guarded(Ledger.begin)  # type: ignore[assignment]
    end = guarded(Ledger.end)
    record_call = guarded(Ledger.record_call)

    @guarded
    def stamp(self) -> Stamp:
        """Take a stamp."""
        return self.clock.stamp()


def _collectives_called() -> int:
    """Return how many collectives the process group has had, those of DDP included; 0: unknown."""
    if not has_group():
        return 0
    try:
        return int(_get_default_group()._get_sequence_number_for_group())  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # a backend without numbers
        return 0


class Exchange:
    """The instruments of a script's later windows. `events` are those of the current window.

    `missing` is the reason why phases and exchange are not split; None where they are. `postponed`
    is why that takes a window more. `ledger` is that of the instrumented window. `gone_back`
    has the numbers of the calls of the model through whose outputs gradients went back, `calls` the
    number of the last one, of a script without a loader.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.model: nn.Module | None = None
        self.ledger: Ledger | None = None
        self.missing: str | None = None
        self.postponed = ""
        self.events: list[Event] = []
        self._on_call: Callable[..., None] | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._splits = False
        self.calls = 0
        self.gone_back: set[int] = set()
        self.starts_profiler = False
        self._is_traced = False
        self._trace: Trace | None = None
        self._batches = self._batches_left = 0
        self.most_iterations: int | None = None
        self._called_before = 0
        self._undo: list[Callable[[], Any]] = []

    def find_model(self, optimizer: Optimizer, on_call: Callable[..., None] | None) -> None:
        """Find the outermost module with the optimizer's parameters: wrapped, compiled or called.

        `on_call` is called with the arguments of its later forward passes.
        """
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}

        def take(module: nn.Module) -> bool:
            if trained.isdisjoint(map(id, module.parameters())):
                return False
            self.model, self._on_call = module, on_call
            self._watch_model(splits=False)
            return True

        @guarded
        def take_called(module: nn.Module, _inputs: object) -> None:
            if self.model is None and take(module):
                _global_forward_pre_hooks.pop(KEY)  # type: ignore[call-overload]

        # torch warns of global hooks where a module is compiled.
        compiled = [value for value in gc.get_objects() if is_compiled(value)]
        outer = sorted([*WRAPPERS, *compiled], key=lambda module: -len([*module.modules()]))
        if not any(map(take, outer)):
            _global_forward_pre_hooks[KEY] = take_called  # type: ignore[index]

    def _watch_model(self, *, splits: bool) -> None:
        """Watch the calls of the model for its inputs, and for its forward passes with `splits`."""
        self._splits = splits
        self._unwatch()
        self._unwatch = lambda: None
        if self.model is not None and (self._on_call or splits):
            self._unwatch = watch_calls(self.model, self._before_call, self._after_call)

    def _before_call(self, *call: Any) -> None:
        if self._on_call:
            self._on_call(*call)  # which may begin the window that is split
        if self._splits:
            self._note(Kind.FORWARD)

    def _after_call(self, outputs: object) -> None:
        if self._splits:
            self._note(Kind.FORWARDED)
        if self._on_call:
            self._watch_backward(outputs)

    def _watch_backward(self, outputs: object) -> None:
        """Note when gradients go back through the outputs of this call of the model."""
        number = self.calls
        nodes = [tensor.grad_fn for tensor in _tensors_of(outputs) if tensor.grad_fn is not None]
        for node in nodes:
            node.register_prehook(lambda *_: self.gone_back.add(number))

    @property
    def _wrappers(self) -> list[DistributedDataParallel]:
        """The wrappers that exchange gradients; that of a single process sends nothing."""
        return [*WRAPPERS] if world_size() > 1 else []

    @property
    def wrapper(self) -> Strategy | None:
        """What joins the processes: ddp, fsdp, or None."""
        if len(WRAPPERS):
            return Strategy.DDP
        modules = self.model.modules() if self.model is not None else ()
        names = {base.__name__ for module in modules for base in type(module).__mro__}
        return Strategy.FSDP if names & {"FullyShardedDataParallel", "FSDPModule"} else None

    @property
    def _is_compiled(self) -> bool:
        return is_compiled(self.model)

    def prepare(self, iterations: Iterations) -> None:
        """Make ready to record a window like the one that ended, or say in `missing` why not.

        Windows that are profiled have `most_iterations`.
        """
        if self.model is None:
            self.missing = (
                "the model with the optimizer's parameters has no forward pass of its own"
            )
        elif WRAPPERS and self._is_compiled:  # what is changed in it would be compiled anew
            self.missing = "DistributedDataParallel is compiled: wrap the compiled model instead"
        elif world_size() > 1 and (self._sends_more(iterations) or not self._hook()):
            self._trace_next(iterations)

    def _sends_more(self, iterations: Iterations) -> bool:
        """Return whether the window that ended had more collectives than DDP's."""
        called = _collectives_called() - self._called_before
        most = self._most_of_ddp(iterations.accumulate) + OWN_LIMIT
        return called > most * len(iterations.samples)

    def _most_of_ddp(self, accumulate: int) -> float:
        """Return how many collectives DDP records in an iteration at most; inf if not known.

        That on parameters that were not used is none of them.
        """
        most = 0.0
        for wrapper in self._wrappers:
            # torch annotates neither of the two
            known: dict[str, Any] = wrapper._get_ddp_logging_data()  # type: ignore[no-untyped-call]
            most += known.get("num_buckets_reduced", inf)
            if wrapper.will_sync_module_buffers():  # type: ignore[no-untyped-call]
                most += max(1, accumulate) * len({buffer.dtype for buffer in wrapper.buffers()})
        return most

    def _trace_next(self, iterations: Iterations) -> None:
        """Let the profiler record the beginning of the next window."""
        self._is_traced, self.ledger = True, None
        accumulate = max(1, iterations.accumulate)
        self.most_iterations = max(2, MOST_BATCHES // accumulate)
        self._batches = accumulate * self.most_iterations

    def _hook(self) -> bool:
        """Hook into the exchange; return whether all of it is DDP's own, and hooked."""
        modules = self.model.modules() if self.model is not None else ()
        if any(isinstance(module, nn.SyncBatchNorm) for module in modules):
            return False  # which sends messages inside of forward and backward
        if not all(map(Hook.keeps_bits, self._wrappers)):
            return False
        if not HOOKS:
            _let_script_register()
        for wrapper in self._wrappers:
            try:
                HOOKS[wrapper] = HOOKS.get(wrapper) or Hook(wrapper)
            except RuntimeError:  # the script has a hook of its own
                return False
        return len(HOOKS) > 0

    def stamps(self, role: Role, before: Iterations) -> int:
        """Return how many stamps an iteration needs at most, beside those of the session.

        `before` are the iterations of the window before.
        """
        if role is not Role.INSTRUMENTED:
            return 0
        batches = max(1, before.accumulate)
        messages = self._most_of_ddp(batches) if HOOKS else 0
        of_messages = 2 * ceil(messages if messages < inf else MESSAGES)
        return 2 * PASSES * batches + PASSES + of_messages

    def start(self, role: Role, device: torch.device) -> None:
        """Begin to record phases and messages in an instrumented window."""
        self._called_before = _collectives_called()
        if role is Role.INSTRUMENTED and self.model is not None:
            self._watch_model(splits=True)
            self._undo.append(partial(self._watch_model, splits=False))
            if self._is_traced:
                self._start_trace(device)
            else:
                self._record_hooks()

    def _start_trace(self, device: torch.device) -> None:
        """Start the profiler; where it refuses, this window goes on, as those of other ranks do."""
        self.starts_profiler, self._batches_left = True, self._batches + 1  # one may be ahead
        try:
            if script_has_profiler():
                raise RuntimeError("the script has one of its own")
            self._trace = Trace(self.clock, device, world_size())
        except Exception as refusal:
            self.missing = f"torch's profiler did not start: {type(refusal).__name__}: {refusal}"
        self.starts_profiler = False

    def cut_trace(self, reason: str) -> None:
        """End the profiler before its window, if it is on."""
        if self._trace:
            self._trace.stop(reason)

    def count_batch(self) -> None:
        """Note that a window has another batch; one too many ends the profiler."""
        self._batches_left -= 1
        if self._trace and self._batches_left < 0:
            self.cut_trace("the window has more batches for its steps than the one before")

    def _record_hooks(self) -> None:
        self.ledger = GuardedLedger(self.clock)
        for hook in HOOKS.values():
            hook.exchange = self
            self._undo.append(partial(setattr, hook, "exchange", None))
        if self._wrappers:
            self._record_buffers()

    def stop(self) -> None:
        """Undo what `start` did."""
        while self._undo:
            self._undo.pop()()
        self.cut_trace("its window did not end")
        self._trace = None

    def _note(self, kind: Kind) -> None:
        if not is_capturing():
            self.events.append(Event.now(kind, self.clock))

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

        note = guarded(self._note)

        def noted() -> Any:
            loss = closure()
            note(Kind.STEP)
            return loss

        if "closure" in options:
            return args, options | {"closure": noted}
        return (args[0], noted, *args[2:]), options

    @guarded
    def current_ledger(self) -> "GuardedLedger | None":
        """Return the ledger, for a message that begins now and does not go into a CUDA graph."""
        if not isinstance(self.ledger, GuardedLedger) or is_capturing():
            return None
        self.ledger.iteration = len(self.events)  # of which `split` makes the micro-step
        return self.ledger

    def _record_buffers(self) -> None:
        """Record DDP's broadcasts of buffers: in its class, since a wrapper may be saved."""
        send = getattr(DistributedDataParallel, _BROADCAST)

        @wraps(send)
        def record(wrapper: Any, tensors: list[Tensor], *args: Any, **options: Any) -> None:
            ledger = self.current_ledger()
            start = ledger.stamp() if ledger else None
            send(wrapper, tensors, *args, **options)
            if ledger:
                ledger.record_call(CollectiveKind.BROADCAST, Purpose.BUFFERS, tensors, start)

        setattr(DistributedDataParallel, _BROADCAST, record)
        self._undo.append(partial(setattr, DistributedDataParallel, _BROADCAST, send))

    def split(self, recording: Recording, iterations: Iterations) -> EpochPhases | None:
        """Return the phases of the instrumented window; None with the reason in `missing`."""
        steps = mark_phases(recording.window.start, iterations)
        model = self.model.parameters() if self.model is not None else ()
        stepped = {*map(id, parameters_of(recording.optimizers))}
        if len(recording.optimizers) > 1 and not stepped <= {*map(id, model)}:
            steps = SEVERAL
        if isinstance(steps, str):
            self.missing = steps
        if self.missing or isinstance(steps, str):
            return None
        window, marks = recording.window, [step.marks for step in steps]
        gaps = [step.gaps for step in steps]
        accumulate = max(1, iterations.accumulate)
        if self._trace:
            is_sharded = self.wrapper is Strategy.FSDP
            try:
                phases, self.ledger = self._trace.split(
                    window, marks, accumulate, is_sharded=is_sharded, gaps=gaps
                )
            except (OSError, RuntimeError, ValueError) as fault:
                self.missing = f"torch's profiler: {type(fault).__name__}: {fault}"
                return None
            return phases
        ledger = self.ledger or Ledger(self.clock)
        own = _collectives_called() - self._called_before - len(ledger.collectives)
        if world_size() > 1 and own > OWN_LIMIT * len(iterations.samples):
            self._trace_next(iterations)
            self.postponed = "messages beside those of DDP take one more epoch to measure"
            return None
        place = {id(event): number for number, event in enumerate(recording.events)}
        starts = [place[id(step.events[0])] for step in steps]
        for entry in ledger.collectives:
            entry.iteration = max(0, bisect_right(starts, entry.iteration - 1) - 1)
        return split_phases(window, marks, ledger, overlaps=True, accumulate=accumulate, gaps=gaps)
