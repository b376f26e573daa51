"""The model of a script: which module it is, its batches, its forward passes."""

import gc
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim import Optimizer

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.observer.meters import parameters_of
from hpml_jobs.worker.observer.process import KEY, WRAPPERS, guarded, is_capturing
from hpml_jobs.worker.observer.recording import DEPTH, Kind, Recording, parts_of


def _tensors_of(value: Any, depth: int = 0) -> list[Tensor]:
    """Return the tensors in what a model returns."""
    if isinstance(value, Tensor):
        return [value]
    if depth == DEPTH:
        return []
    return [
        tensor for part in parts_of(value) for tensor in _tensors_of(part, depth + 1)
    ]


class WatchedModel:
    """The outermost module with an optimizer's parameters: wrapped, compiled or called.

    `module` is None until it is found, at its first call if it is neither wrapped nor compiled. In
    a script without a loader `see_batch` is called with the arguments of each first call after
    gradients went back or the optimizer has stepped (`awaits_batch`): others are of the same batch.
    """

    def __init__(
        self, optimizer: Optimizer, see_batch: Callable[[Any], None] | None
    ) -> None:
        self.module: nn.Module | None = None
        self.awaits_batch = True
        self._see_batch = see_batch
        self._of_optimizer = parameters_of(optimizer)
        self._recording: Recording | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._find()

    def _find(self) -> None:
        @guarded
        def take_called(module: nn.Module, _inputs: object) -> None:
            if self.module is None and self._take(module):
                _global_forward_pre_hooks.pop(KEY)  # type: ignore[call-overload]

        # torch warns of global hooks where a module is compiled.
        compiled = [value for value in gc.get_objects() if is_compiled(value)]
        outer = sorted(
            [*WRAPPERS, *compiled], key=lambda module: -len([*module.modules()])
        )
        if not any(map(self._take, outer)):
            _global_forward_pre_hooks[KEY] = take_called  # type: ignore[index]

    def _take(self, module: nn.Module) -> bool:
        """Take a module if it has a parameter of the optimizer; return whether."""
        trained = {id(parameter) for parameter in self._of_optimizer}
        if trained.isdisjoint(map(id, module.parameters())):
            return False
        self.module = module
        self.watch(None)
        return True

    def watch(self, recording: Recording | None) -> None:
        """Note the forward passes in a window from now on, or in none."""
        self._recording = recording
        self.unwatch()
        if self.module is not None and (self._see_batch or recording):
            self._unwatch = _watch_calls(
                self.module, self._before_call, self._after_call
            )

    def unwatch(self) -> None:
        """Leave the calls of the model alone."""
        self._unwatch()
        self._unwatch = lambda: None

    def _before_call(self, _module: nn.Module, *inputs: Any) -> None:
        if self._see_batch and self.awaits_batch and torch.is_grad_enabled():
            self.awaits_batch = False
            # which may begin the window in which the pass is noted
            self._see_batch(inputs)
        if self._recording:
            self._note(self._recording, Kind.FORWARD)

    def _after_call(self, outputs: object) -> None:
        if self._recording:
            self._note(self._recording, Kind.FORWARDED)
        if self._see_batch:
            self._watch_backward(outputs)

    def _watch_backward(self, outputs: object) -> None:
        """Await another batch when gradients go back through outputs."""

        def await_batch(*_: object) -> None:
            self.awaits_batch = True

        for tensor in _tensors_of(outputs):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(await_batch)

    @staticmethod
    def _note(recording: Recording, kind: Kind) -> None:
        if not is_capturing():
            recording.note(kind)

    @property
    def finds_batches(self) -> bool:
        """Whether its calls have the batches, because the script reads no loader."""
        return self._see_batch is not None

    @property
    def parameters(self) -> list[Tensor]:
        """Those of the optimizer, and others of the model."""
        of_model = self.module.parameters() if self.module is not None else ()
        return list({id(p): p for p in (*self._of_optimizer, *of_model)}.values())

    @property
    def inner(self) -> nn.Module | None:
        """The model without its wrapper."""
        module: nn.Module | None = getattr(self.module, "module", self.module)
        return module

    @property
    def wrapper(self) -> Strategy | None:
        """What joins the processes: ddp, fsdp, or None."""
        if len(WRAPPERS):
            return Strategy.DDP
        modules = self.module.modules() if self.module is not None else ()
        names = {base.__name__ for module in modules for base in type(module).__mro__}
        return (
            Strategy.FSDP
            if names & {"FullyShardedDataParallel", "FSDPModule"}
            else None
        )


def is_compiled(value: object) -> bool:
    """Return whether a value is what torch.compile makes of a module; it imports nothing."""
    return type(value).__name__ == "OptimizedModule" and isinstance(value, nn.Module)


def _watch_calls(
    model: nn.Module, before: Callable[..., None], after: Callable[[Any], None]
) -> Callable[[], None]:
    """Call functions before and after each forward pass of a model; return how to undo it.

    `before` gets the model, its arguments and its options, as a hook does, `after` what the model
    returns. No hook is in the model: it would be saved and copied with it, and comes after those of
    FSDP.
    """
    kind = type(model)
    defined = vars(kind).get("__call__")
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
    if defined:
        return partial(setattr, kind, "__call__", defined)
    return partial(delattr, kind, "__call__")
