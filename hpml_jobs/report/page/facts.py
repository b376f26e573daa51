"""The hardware and software of the records of a group."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from hpml_jobs.core.conditions import in_words, precision_of
from hpml_jobs.core.environment import COMPARED, text_of
from hpml_jobs.core.gpus import Card, link_text
from hpml_jobs.core.record import Facts, Record
from hpml_jobs.report.frame.captions import first_few
from hpml_jobs.report.frame.numbers import aside, span
from hpml_jobs.report.page.formats import FactTable, Item
from hpml_jobs.report.report import ReportGroup
from hpml_jobs.results.groups import ConditionGroup

T = TypeVar("T")

SHOWN = 8
"""The most values of a fact that are listed."""


class Fact(NamedTuple):
    """A property of hardware or software, and its values in words, in the order of the cells."""

    name: str
    values: tuple[str, ...]

    @property
    def text(self) -> str:
        """The values, the first of many."""
        return first_few(self.values, most=SHOWN)


_OF_FACTS: dict[str, Callable[[Facts], object]] = {
    "GPU": lambda facts: facts.gpu_model,
    "GPUs visible": lambda facts: facts.gpus_visible or None,
    "topology": lambda facts: facts.topology,
    "CPU": lambda facts: facts.cpu_model,
    "CPUs of a host": lambda facts: facts.cpu_count or None,
    "operating system": lambda facts: facts.os,
    "container": lambda facts: facts.container,
    "driver": lambda facts: facts.driver,
    "CUDA": lambda facts: facts.cuda,
    "cuDNN": lambda facts: facts.cudnn,
    "NCCL": lambda facts: facts.nccl,
    "backend": lambda facts: facts.backend,
    "class of the backend": lambda facts: facts.backend_class,
    "Python": lambda facts: facts.python,
    "torch": lambda facts: facts.torch,
    "torchvision": lambda facts: facts.torchvision,
    "TF32 in matmul": lambda facts: facts.tf32_matmul,
    "TF32 in cuDNN": lambda facts: facts.tf32_cudnn,
    "hpml_jobs": lambda facts: facts.hpml_jobs,
    "commit": lambda facts: facts.commit,
    "uncommitted changes": lambda facts: facts.dirty,
    "your code, commit": lambda facts: facts.code_commit,
    "environment variables": lambda facts: text_of(
        COMPARED, facts.nccl_environment | facts.environment
    ),
}


def _power_text(card: Card) -> str | None:
    """Return the mean power in the timed epoch, where it was sampled, and the limit."""
    watts = card.samples.power_w[1] if card.samples else card.power_w
    limit = "" if card.power_limit_w is None else f" ({card.power_limit_w:.0f})"
    return None if watts is None else f"{watts:.0f}{limit}"


def _utilization_text(record: Record) -> str | None:
    """Return the mean utilization in the timed epoch, and the site's limit."""
    used = record.gpu_utilization_percent
    limit = record.facts.cancel_below_percent if record.facts else None
    return None if used is None else f"{used:.0f}{aside(str(limit or ''))}"


_OF_CARDS: dict[str, Callable[[Card], object]] = {
    "SM clock, MHz (of at most)": lambda card: (
        f"{card.clock_mhz} ({card.max_sm_clock_mhz})" if card.clock_mhz else None
    ),
    "memory clock, MHz": lambda card: card.memory_clock_mhz,
    "power, W (of at most)": _power_text,
    "reasons for lower clocks": lambda card: ", ".join(sorted(card.reasons)),
    "links of a GPU": link_text,
    "GPU, index and bus": lambda card: (
        f"{card.index} {card.bus_id}" if card.bus_id else None
    ),
}


def environment(group: ConditionGroup) -> list[Fact]:
    """Return what is recorded of the hardware and software; nothing of what is not known."""
    records = [result.record for result in group.cells if result.record is not None]
    facts = [record.facts for record in records if record.facts]
    cards = [card for record in records for card in record.cards]
    hosts = [
        host
        for record in records
        for host in [rank.host for rank in record.ranks] or record.attempt.hosts
    ]
    listed = {
        "hosts": _distinct(hosts),
        **_values_of(_OF_FACTS, facts),
        "specified link, GB/s": _distinct(record.link_gb_per_s for record in records),
        "precision": _distinct(precision_of(r) for r in records if r.facts),
        **_values_of(_OF_CARDS, cards),
        "GPU utilization, % (site cancels below)": _distinct(
            map(_utilization_text, records)
        ),
        "start of the job to the first iteration, s": _startups(records),
        "measured": _span(records),
        "imported from": _distinct(record.source.file for record in records),
        "GPU, as reported": _distinct(record.source.gpu_model for record in records),
    }
    return [Fact(name, values) for name, values in listed.items() if values]


def _values_of(
    properties: Mapping[str, Callable[[T], object]], values: Sequence[T]
) -> dict[str, tuple[str, ...]]:
    """Return the different values of properties in words, by name."""
    return {name: _distinct(map(of, values)) for name, of in properties.items()}


def _distinct(values: Iterable[object]) -> tuple[str, ...]:
    """Return the different values in words, without those that are not known."""
    return tuple(
        dict.fromkeys(in_words(value) for value in values if value not in (None, ""))
    )


def _startups(records: Iterable[Record]) -> tuple[str, ...]:
    """Return the least and the most seconds of a cell before its first iteration was done."""
    startups = [record.startup for record in records]
    totals_s = [startup.total_s for startup in startups if startup and startup.total_s]
    return (span(totals_s, "{:.1f}".format),) if totals_s else ()


def _span(records: Iterable[Record]) -> tuple[str, ...]:
    """Return the days of the first and of the last measurement (UTC)."""
    starts = [record.attempt.started for record in records]
    days = {started[:10] for started in starts if started}
    return (span(days),) if days else ()


def hardware(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a group's hardware and software; without facts it has no items."""
    title = "Hardware and software"
    rows = tuple((fact.name, fact.text) for fact in environment(group.source))
    if not rows:
        return "Environment", (), title
    table = FactTable(title, ("property", "value"), rows)
    return "Environment", (table,), title
