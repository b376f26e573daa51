"""Features: what the folders of `extras/` add to the kernel, which loops over those that are there.

`hpml_jobs/extras/compare/__init__.py` holds one value:

    FEATURE = Feature(
        commands={"compare": Command("extras.compare.command:compare", HelpSection.RESULTS, …)},
    )

Every part is named by its entry, `module:name` in this package, and imported when it is first used:
a login node imports nothing that only a report needs.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from hpml_jobs.core.errors import HpmlError

PACKAGE = __name__.partition(".")[0]
FOLDER = Path(__file__).parents[1] / "extras"

T = TypeVar("T")


class HelpSection(StrEnum):
    """The part of the first page of help in which a command is listed."""

    SET_UP = "set up"
    SUBMIT = "submit"
    FOLLOW = "follow"
    RESULTS = "results"
    IN_AND_OUT = "in and out"


class Command(NamedTuple):
    """A command: the entry of its function, and its line on the first page of help.

    `after` names the command before it on that page; empty: it is the first.
    """

    entry: str
    section: HelpSection
    usage: str
    meaning: str
    after: str = ""


class Part(NamedTuple):
    """A part in an order: the entry of the function that makes it, and the part before it."""

    entry: str
    after: str


class CellPart(NamedTuple):
    """A part of a cell and of its record that the kernel keeps without reading it.

    `settings` is the struct of its keys, whose `for_cell` is the part of a cell. `check` refuses a
    cell, `before_training` its model and data; `after_training` returns the part of the record,
    whose field is `result`. `record_fault` says what is wrong with a record; None: nothing.
    """

    settings: str
    check: str
    before_training: str
    after_training: str
    result: str
    record_fault: str


class Runner(NamedTuple):
    """What runs cells on the machines that a key of a cluster names: the entries of its functions.

    `check` refuses machines that cannot run cells of a study; `run` runs a cell on so many of them,
    and returns its exit code.
    """

    check: str
    run: str


class Observer(NamedTuple):
    """What measures a program of the user from outside: the entries of its functions.

    On the login node `workload` refuses what cannot be measured, and returns what is trained. In a
    job `command` starts the processes with the variables of `environment`, and `merge` writes the
    record of what was seen in them.
    """

    workload: str
    command: str
    environment: str
    merge: str


class DataKind(NamedTuple):
    """A kind of built-in data: the entries of its functions; one that is empty has nothing to do.

    In a job `open` returns the data sets for training and for tests, and `describe` the facts of
    text. On the login node `facts` returns the workload with what its data determine, and `digest`
    the identity of the user's folder.
    """

    open: str
    describe: str = ""
    facts: str = ""
    digest: str = ""


class LoaderKind(NamedTuple):
    """What makes batches: the entries of its functions.

    In a job `open` returns the `Loading` of a cell's data on a device. At submission `check` raises
    if it cannot load the data of a workload.
    """

    open: str
    check: str


class Feature(NamedTuple):
    """What a folder of `extras/` adds.

    Of commands: `commands` may replace one of the kernel, to add an option.

    Of submissions: `before_queue` yields notes on a plan before its jobs are queued, and raises
    UsageError where one is known to fail.

    Of cells: `cell_parts`, `runners` and `observers` are by their key. `strategies` are the classes
    of those that share a model over the ranks, by name; `buffers` convert a replica, by
    `sync_buffers`; `loaders` are by `loader`, `data` and `models` by `workload.data` and
    `workload.model`. `probes` are steps after training on which a trained cell does not depend:
    each gets a `worker.probes.Probing`, and returns the rank's part of the record with its result,
    and parts of the record by field. `watchers` look at a node while the workers of a cell run:
    each is made of the cell's file, its `start` is called with them, and its `end` with the file,
    the attempt's folder, the number of the node and the workers' exit code.

    `record_checks` are checks of a record alone, by the title of their group and by name.

    Of a report: `tables` are made of a group's context, `sheets` of the group, `tables_of_all` of
    all groups. `training_pictures` are drawn of the report, below those of scaling. `text_files`
    are texts of the report or None, by the name of their file. Of each group of a report,
    `sections`, by the name of a link to them, are the title and the items of one of its own, and
    what is in it, for when it is folded; `page_sections` are the same of the whole report.
    """

    commands: Mapping[str, Command] = {}
    before_queue: str = ""
    cell_parts: Mapping[str, CellPart] = {}
    runners: Mapping[str, Runner] = {}
    observers: Mapping[str, Observer] = {}
    strategies: Mapping[str, str] = {}
    buffers: Mapping[str, str] = {}
    loaders: Mapping[str, LoaderKind] = {}
    data: Mapping[str, DataKind] = {}
    models: Mapping[str, str] = {}
    probes: Mapping[str, Part] = {}
    watchers: Mapping[str, str] = {}
    record_checks: Mapping[str, Mapping[str, Part]] = {}
    tables: Mapping[str, Part] = {}
    sheets: Mapping[str, Part] = {}
    tables_of_all: Mapping[str, Part] = {}
    training_pictures: Mapping[str, Part] = {}
    text_files: Mapping[str, Part] = {}
    sections: Mapping[str, str] = {}
    page_sections: Mapping[str, str] = {}


@cache
def features() -> Mapping[str, Feature]:
    """Return the features whose folders are there, by the name of the folder."""
    names = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
    return {name: load(f"extras.{name}:FEATURE") for name in names}


@cache
def cell_parts() -> Mapping[str, CellPart]:
    """Return the parts of cells that extras own, by their key."""
    return merged(feature.cell_parts for feature in features().values())


# ---- a part by its key; each raises HpmlError if the extra is not here ----


def cell_part(key: str) -> CellPart:
    """Return the part of a key."""
    return _of_extra(lambda feature: feature.cell_parts, key)


def runner(key: str) -> Runner:
    """Return what runs cells on the machines of a key."""
    return _of_extra(lambda feature: feature.runners, key)


def observer(key: str) -> Observer:
    """Return what measures the program that a key of a cell names."""
    return _of_extra(lambda feature: feature.observers, key)


def entry_of_strategy(name: str) -> str:
    """Return the entry of the class of a strategy that shares a model over the ranks."""
    return _of_extra(lambda feature: feature.strategies, name, "strategy=")


def entry_of_buffers(name: str) -> str:
    """Return the entry of what converts a replica so that its buffers are of all ranks."""
    return _of_extra(lambda feature: feature.buffers, name, "sync_buffers=")


def loader_kind(name: str) -> LoaderKind:
    """Return what makes batches, by `loader`."""
    return _of_extra(lambda feature: feature.loaders, name, "loader=")


def data_kind(name: str) -> DataKind:
    """Return a kind of data that an extra has, by `workload.data`."""
    return _of_extra(lambda feature: feature.data, name, "workload.data=")


def entry_of_model(name: str) -> str:
    """Return the entry of what builds a model from its workload, by `workload.model`."""
    return _of_extra(lambda feature: feature.models, name, "workload.model=")


def _of_extra(
    parts_of: Callable[[Feature], Mapping[str, T]], key: str, typed_before: str = ""
) -> T:
    """Return the part of a key; `typed_before` is what the user typed before it."""
    parts = merged(map(parts_of, features().values()))
    if key not in parts:
        raise HpmlError(
            f"{typed_before}{key}: this hpml_jobs has no extra for it: install the whole hpml_jobs"
        )
    return parts[key]


def load(entry: str) -> Any:
    """Import and return what an entry names."""
    module, _, name = entry.partition(":")
    return getattr(import_module(f"{PACKAGE}.{module}"), name)


def merged(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Return the parts of several features in one mapping."""
    return {name: part for by_name in parts for name, part in by_name.items()}


def with_added(
    kernel: Mapping[str, Callable[..., T]], added: Mapping[str, Part]
) -> dict[str, Callable[..., T]]:
    """Return the functions of the kernel and of extras by name, in order.

    What makes the part of an extra is imported when it is called.
    """
    makers = dict(kernel)
    for name, part in added.items():
        makers[name] = _when_called(part.entry)
    return {name: makers[name] for name in in_order(kernel, added)}


def _when_called(entry: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return load(entry)(*arguments)

    return call


class Placed(Protocol):
    """What has a place after another one, by name."""

    @property
    def after(self) -> str:
        """The name of the one before it."""


def in_order(kernel: Iterable[str], added: Mapping[str, Placed]) -> list[str]:
    """Return the names of the kernel in their order, and each added one after the one it names.

    It is the first if it names none, and the last if that one is not there. One that the kernel has
    too keeps its place.
    """
    names = list(kernel)
    for name, part in added.items():
        if name in names:
            continue
        place = len(names)
        if not part.after:
            place = 0
        elif part.after in names:
            place = names.index(part.after) + 1
        names.insert(place, name)
    return names
