"""`fsdp`: FSDP2 shards parameters, gradients and the optimizer's state, in groups of parameters."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from math import prod
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from hpml_jobs.core.cell import Cell
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.measurements import CollectiveKind, Purpose, Volume
from hpml_jobs.worker.instruments.timing import Devices
from hpml_jobs.worker.path_steps import half_dtype
from hpml_jobs.worker.process_group import Move, Placement, ProcessGroup, ShardFacts


class HalfReplica(nn.Module):
    """A local copy of a model that computes in half precision as fsdp does: all parameters cast.

    Those of BatchNorm stay fp32, as its statistics are. Inputs are cast, outputs are fp32.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        norms = {id(p) for norm in batch_norms(model) for p in norm.parameters()}
        for parameter in model.parameters():
            if id(parameter) not in norms:
                parameter.data = parameter.data.to(dtype)
        self.model = model
        self._dtype = dtype

    def forward(self, inputs: Tensor) -> Any:
        """Return the model's outputs in fp32."""
        outputs = self.model(
            inputs.to(self._dtype) if inputs.is_floating_point() else inputs
        )
        return tree_map_only(Tensor, Tensor.float, outputs)


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the BatchNorm layers that have parameters.

    torch computes them with half-precision inputs, but not with half-precision parameters beside
    fp32 statistics.
    """
    return [
        m for m in model.modules() if isinstance(m, _BatchNorm) and m.weight is not None
    ]


class Group(NamedTuple):
    """One group: modules, policy, the bytes of its parameters, and of those that have gradients.

    Each parameter is padded along its first dimension, so that all ranks have equal parts.
    `is_root` is the group of what no other group has.
    """

    modules: list[nn.Module]
    policy: MixedPrecisionPolicy
    gathered_bytes: int
    reduced_bytes: int
    is_root: bool


COUNTS_MESSAGES = hasattr(FSDPModule, "set_custom_all_gather")
"""Whether this torch lets us count what FSDP2 sends."""


class FSDP(ProcessGroup):
    """`fully_shard` on every group of `shard_groups`, then on the model, in place."""

    def __init__(self, cell: Cell, placement: Placement, devices: Devices) -> None:
        super().__init__(cell, placement, devices)
        self.groups: list[Group] = []
        self.is_instrumented = False

    def setup(self, timeout: timedelta) -> None:
        """Join the process group.

        Raises:
            HpmlError: this torch does not let us count what FSDP2 sends.
        """
        if not COUNTS_MESSAGES:
            raise HpmlError(
                f"strategy=fsdp with torch {torch.__version__}: its messages can be counted from "
                "torch 2.9 on (FSDPModule.set_custom_all_gather): install locks/worker.txt, or "
                "use strategy=zero1 or ddp"
            )
        super().setup(timeout)

    def place(self, model: nn.Module, move: Move) -> nn.Module:
        """Return the model where it is: `wrap` moves one group after another to the device."""
        del move
        return model

    def wrap(self, model: nn.Module, *, instrumented: bool = False) -> nn.Module:
        """Shard the model in place, with rank 0's parameters and buffers; return it.

        It cannot be undone, so wrapping again changes nothing but adds the instruments. They stay,
        and without a ledger they pass every call on.
        """
        if not isinstance(model, FSDPModule):
            self._send_from_rank_0(model)
            self._shard(model)
        if instrumented and not self.is_instrumented:
            self.is_instrumented = True
            # not at the top: it needs a torch that has passed `setup`
            from hpml_jobs.worker.sharding.collectives import instrument  # noqa: PLC0415

            instrument((group.modules for group in self.groups), self)
        return model

    def local_copy(self, model: nn.Module) -> nn.Module:
        """Return a copy of the replica in the precision in which its groups compute."""
        dtype = half_dtype(self.cell.path)
        return model if dtype is None else HalfReplica(model, dtype)

    def _send_from_rank_0(self, model: nn.Module) -> None:
        """Give every rank the parameters and buffers of rank 0, one after another."""
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                on_device = tensor.to(self.devices[0])
                dist.broadcast(on_device, src=0)
                tensor.copy_(on_device)

    def _shard(self, model: nn.Module) -> None:
        # Under autocast backward would keep a copy of every gathered weight, which resharding does
        # not free. Gradients are summed in fp32, and all BatchNorms are one group in fp32: they are
        # small, and each collective costs a latency.
        dtype = half_dtype(self.cell.path)
        norms = [] if dtype is None else batch_norms(model)
        inner = [group for group in shard_groups(model) if group not in norms]
        taken: set[int] = set()
        self.groups, self.is_instrumented = [], False
        # By default torch takes the machine's accelerator, also in a cell with device=cpu
        mesh = init_device_mesh(self.devices[0].type, (self.placement.world_size,))
        for modules in filter(None, (norms, *([module] for module in inner), [model])):
            parameters = {id(p): p for module in modules for p in module.parameters()}
            untaken = [p for number, p in parameters.items() if number not in taken]
            taken |= parameters.keys()
            ranks = self.placement.world_size
            is_root = modules == [model]
            if dtype is None or modules is norms:
                policy = MixedPrecisionPolicy(cast_forward_inputs=False)
            else:  # the model's outputs are fp32, for the loss
                output = torch.float32 if is_root else None
                policy = MixedPrecisionPolicy(dtype, torch.float32, output)
            self.groups.append(_group(modules, policy, untaken, ranks, is_root=is_root))
        for modules, policy, *_ in self.groups:  # this changes the parameters
            # torch keeps the root's parameters gathered until backward, which begins with them
            fully_shard(modules, mesh=mesh, mp_policy=policy)

    def exchange(
        self, model: nn.Module, *, in_backward: bool
    ) -> AbstractContextManager[Any]:
        """Let the next backward reduce gradients, or keep them whole on this rank."""
        if self.cell.path.accumulate > 1 and isinstance(model, FSDPModule):
            model.set_requires_gradient_sync(in_backward)
        return super().exchange(model, in_backward=in_backward)

    def stamps_of_messages(self, replica: nn.Module) -> int:
        """Return two stamps for each of three messages of a group, and three pairs of waits.

        A module of a group has such waits too.
        """
        del replica
        return 12 * sum(len(group.modules) for group in self.groups)

    @contextmanager
    def whole(self, replica: nn.Module) -> Iterator[None]:
        """Gather all parameters and keep them in the block, so that forward sends nothing."""
        modules = [
            module for module in replica.modules() if isinstance(module, FSDPModule)
        ]
        for module in modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield
        finally:
            for module in modules:
                module.reshard()
                is_kept = module is replica
                module.set_reshard_after_forward(not is_kept, recurse=False)
            # Forward passes without backward would be prefetched in the next backward.
            # from torch 2.14 on
            if reset := getattr(replica, "reset_iter_state", None):
                reset()

    def full_parameters(self, replica: nn.Module) -> Iterator[Tensor]:
        """Yield every parameter whole, gathered when it is asked for."""
        for parameter in replica.parameters():
            yield _whole(parameter.detach())

    def state(self, replica: nn.Module) -> dict[str, Tensor]:
        """Return the whole state of the model on the CPU, gathered tensor by tensor."""
        return {
            name: _whole(value).cpu() for name, value in replica.state_dict().items()
        }

    def shard_facts(
        self, replica: nn.Module, optimizer: torch.optim.Optimizer
    ) -> ShardFacts:
        """Return the elements of this rank's shards, and what an iteration must send."""
        del optimizer
        shards = [
            parameter.to_local()
            for parameter in replica.parameters()
            if isinstance(parameter, DTensor) and parameter.requires_grad
        ]
        gathered = sum(
            group.gathered_bytes * self._gathers(group) for group in self.groups
        )
        reduced = sum(group.reduced_bytes for group in self.groups)
        return ShardFacts(
            held_elements=sum(shard.numel() for shard in shards),
            expected=(
                Volume(
                    kind=CollectiveKind.ALL_GATHER,
                    purpose=Purpose.PARAMETERS,
                    bytes=gathered,
                    each_batch=True,
                ),
                Volume(
                    kind=CollectiveKind.REDUCE_SCATTER,
                    purpose=Purpose.GRADIENTS,
                    bytes=reduced,
                ),
            ),
            groups=sum(group.gathered_bytes > 0 for group in self.groups),
        )

    def _gathers(self, group: Group) -> int:
        """Return how often a group is gathered: in forward, and but for the root in backward."""
        return 1 if group.is_root else 2


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _group(
    modules: list[nn.Module],
    policy: MixedPrecisionPolicy,
    parameters: Sequence[nn.Parameter],
    ranks: int,
    *,
    is_root: bool,
) -> Group:
    def size(parameter: nn.Parameter, dtype: torch.dtype | None) -> int:
        return (
            _padded_elements(parameter.shape, ranks)
            * (dtype or parameter.dtype).itemsize
        )

    return Group(
        modules=modules,
        policy=policy,
        gathered_bytes=sum(size(p, policy.param_dtype) for p in parameters),
        reduced_bytes=sum(
            size(p, policy.reduce_dtype) for p in parameters if p.requires_grad
        ),
        is_root=is_root,
    )


def _padded_elements(shape: Sequence[int], ranks: int) -> int:
    """Return the elements of a tensor whose first dimension is padded to a multiple of the ranks.

    >>> _padded_elements((10, 3), 4), _padded_elements((8,), 4)
    (36, 8)
    """
    rows, *rest = shape
    return -(-rows // ranks) * ranks * prod(rest)


LEAST_SHARE = 0.001
LEAST_LAYER_SHARE = 0.01
LEAST_ELEMENTS = 1_000_000
"""A group has this share of the parameters or more, a single layer the second one, or this many
elements."""

MOST_SHARE = 0.5
"""A module with more than this share of the parameters is divided, if it has parts."""

OWN_GROUPS = "fsdp_groups"
"""The attribute, or method without arguments, by which a model names its groups."""

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def shard_groups(model: nn.Module) -> list[nn.Module]:
    """Return the modules that are one group each; what they leave belongs to the model's own group.

    A group is a block: the first module below the containers that has 0.1 to 50 % of the
    parameters, or a layer with 1 % or more; docs/keys.md has the rule. Children come before
    their parents.

    Raises:
        HpmlError: the model names groups that are not modules inside it.
    """
    modules = getattr(model, OWN_GROUPS, None)
    if modules is not None:
        return _own_groups(model, modules)
    candidates = list(_blocks(model, _elements(model)))
    owners = _owners(model)
    return [module for module in candidates if not _shares_parameters(module, owners)]


def _blocks(parent: nn.Module, total: int) -> Iterator[nn.Module]:
    """Yield the groups below a module that is none itself; `total` are the model's elements."""
    for child in parent.children():
        elements = _elements(child)
        has_parts = any(_elements(part) for part in child.children())
        least = LEAST_SHARE if has_parts else LEAST_LAYER_SHARE
        if elements < min(least * total, LEAST_ELEMENTS):
            continue
        if has_parts and (
            isinstance(child, _CONTAINERS) or elements > MOST_SHARE * total
        ):
            yield from _blocks(child, total)
        else:
            yield child


def _elements(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _owners(model: nn.Module) -> Counter[int]:
    """Return how many modules hold each parameter themselves, by its id."""
    return Counter(
        id(parameter)
        for module in model.modules()
        for parameter in module.parameters(recurse=False)
    )


def _shares_parameters(module: nn.Module, owners: Counter[int]) -> bool:
    """Return whether a module outside of this one uses a parameter of it (tied weights)."""
    inside = _owners(module)
    return any(owners[number] > count for number, count in inside.items())


def _own_groups(
    model: nn.Module, modules: Iterable[nn.Module] | Callable[[], Iterable[nn.Module]]
) -> list[nn.Module]:
    groups = list(modules() if callable(modules) else modules)
    inside = {id(module): number for number, module in enumerate(model.modules())}
    strangers = [
        group for group in groups if inside.get(id(cast(object, group)), 0) == 0
    ]
    if strangers:
        raise HpmlError(
            f"{type(model).__name__}.{OWN_GROUPS} names {type(strangers[0]).__name__}, which is "
            f"not a module inside the model: name modules of the model, without the model itself"
        )
    return sorted(groups, key=lambda group: -inside[id(group)])
