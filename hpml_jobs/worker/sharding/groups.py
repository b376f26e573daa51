"""The modules of a model that fsdp gathers and frees as one group each."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from torch import nn

from hpml_jobs.errors import HpmlError

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
    own = getattr(model, OWN_GROUPS, None)
    if own is not None:
        return _own_groups(model, own)
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
        if has_parts and (isinstance(child, _CONTAINERS) or elements > MOST_SHARE * total):
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
    model: nn.Module, own: Iterable[nn.Module] | Callable[[], Iterable[nn.Module]]
) -> list[nn.Module]:
    groups = list(own() if callable(own) else own)
    inside = {id(module): number for number, module in enumerate(model.modules())}
    strangers = [group for group in groups if inside.get(id(cast(object, group)), 0) == 0]
    if strangers:
        raise HpmlError(
            f"{type(model).__name__}.{OWN_GROUPS} names {type(strangers[0]).__name__}, which is "
            f"not a module inside the model: name modules of the model, without the model itself"
        )
    return sorted(groups, key=lambda group: -inside[id(group)])
