"""The calls of a script's model: which of them it trains, and when forward passes begin and end."""

import gc
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_pre_hooks
from torch.optim import Optimizer

from hpml_jobs.core.strategies import Strategy
from hpml_jobs.worker.observer.guard import guarded
from hpml_jobs.worker.observer.meters import parameters_of
from hpml_jobs.worker.observer.process import KEY, WRAPPERS, is_capturing
from hpml_jobs.worker.observer.recording import DEPTH, Kind, Recording, parts_of


class Calls:
    """The calls of the model of a script without a loader, each maybe with a batch.

    `see` is called with the arguments of each. A call is trained if gradients go back through its
    outputs; of those since the last step the first that is trained has the batch.
    """

    def __init__(self, see: Callable[[Any], None]) -> None:
        self.see = see
        self._number = 0
        self._gone_back: set[int] = set()
        self._places: dict[int, tuple[Recording, int]] = {}

    def begin(
        self, recording: Recording, inputs: Any, *, batch_size: int | None
    ) -> None:
        """Note the next call, in an open window."""
        self._number += 1
        self._places[self._number] = recording, len(recording.events)
        recording.note_batch(inputs, batch_size=batch_size)

    def watch_backward(self, outputs: object) -> None:
        """Note when gradients go back through the outputs of this call."""
        number = self._number
        nodes = [
            tensor.grad_fn
            for tensor in _tensors_of(outputs)
            if tensor.grad_fn is not None
        ]
        for node in nodes:
            node.register_prehook(lambda *_: self._gone_back.add(number))

    def settle(self) -> bool:
        """Keep of the calls that wait for it the first that is trained; return whether one is."""
        trained = [number for number in self._places if number in self._gone_back]
        if not trained:
            return False
        for number, (recording, place) in self._places.items():
            if number != trained[0]:
                event = recording.events[place]
                recording.events[place] = event._replace(kind=Kind.UNTRAINED)
        self._places.clear()
        self._gone_back.clear()
        return True

    def forget(self) -> None:
        """Forget the calls that wait: the optimizer has stepped without them."""
        self._places.clear()


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

    `module` is None until it is found, at its first call if it is neither wrapped nor compiled.
    """

    def __init__(self, optimizer: Optimizer, calls: Calls | None) -> None:
        self.module: nn.Module | None = None
        self._parameters = {id(parameter) for parameter in parameters_of([optimizer])}
        self._calls = calls
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
        if self._parameters.isdisjoint(map(id, module.parameters())):
            return False
        self.module = module
        self.watch(None)
        return True

    def watch(self, recording: Recording | None) -> None:
        """Note the forward passes in a window from now on, or in none."""
        self._recording = recording
        self.unwatch()
        if self.module is not None and (self._calls or recording):
            self._unwatch = _watch_calls(
                self.module, self._before_call, self._after_call
            )

    def unwatch(self) -> None:
        """Leave the calls of the model alone."""
        self._unwatch()
        self._unwatch = lambda: None

    def _before_call(self, _module: nn.Module, *inputs: Any) -> None:
        if self._calls:
            # which may begin the window in which the pass is noted
            self._calls.see(inputs)
        if self._recording:
            self._note(self._recording, Kind.FORWARD)

    def _after_call(self, outputs: object) -> None:
        if self._recording:
            self._note(self._recording, Kind.FORWARDED)
        if self._calls:
            self._calls.watch_backward(outputs)

    @staticmethod
    def _note(recording: Recording, kind: Kind) -> None:
        if not is_capturing():
            recording.note(kind)

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
