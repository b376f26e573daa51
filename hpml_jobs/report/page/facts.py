"""The hardware and software of the records of a group."""

from collections.abc import Iterator

from hpml_jobs.core.conditions import in_words, precision_of
from hpml_jobs.core.environment import COMPARED, text_of
from hpml_jobs.core.gpus import Card, link_text
from hpml_jobs.core.record import Record
from hpml_jobs.report.frame.captions import first_few
from hpml_jobs.report.frame.numbers import aside
from hpml_jobs.report.page.formats import FactTable, Item
from hpml_jobs.report.report import ReportGroup
from hpml_jobs.results.groups import ConditionGroup
from hpml_jobs.results.rows import by_key

SHOWN = 8
"""The most values of a property that are listed."""

_OF_FACTS = {
    "GPU": "gpu_model",
    "GPUs visible": "gpus_visible",
    "topology": "topology",
    "CPU": "cpu_model",
    "CPUs of a host": "cpu_count",
    "operating system": "os",
    "container": "container",
    "driver": "driver",
    "CUDA": "cuda",
    "cuDNN": "cudnn",
    "NCCL": "nccl",
    "backend": "backend",
    "class of the backend": "backend_class",
    "Python": "python",
    "torch": "torch",
    "torchvision": "torchvision",
    "TF32 in matmul": "tf32_matmul",
    "TF32 in cuDNN": "tf32_cudnn",
    "hpml_jobs": "hpml_jobs",
    "commit": "commit",
    "uncommitted changes": "dirty",
    "your code, commit": "code_commit",
}
"""Properties by the names of their fields."""


def environment(group: ConditionGroup) -> dict[str, str]:
    """Return the different values of each property in words; nothing of what is not known."""
    records = [result.record for result in group.cells if result.record is not None]
    pairs = [pair for record in records for pair in _properties(record)]
    values = by_key((name, in_words(of)) for name, of in pairs if of not in (None, ""))
    return {
        name: first_few([*dict.fromkeys(words)], most=SHOWN)
        for name, words in values.items()
    }


def _properties(record: Record) -> Iterator[tuple[str, object]]:
    """Yield the name of each property with a value of it."""
    for host in [rank.host for rank in record.ranks] or record.attempt.hosts:
        yield "hosts", host
    if facts := record.facts:
        for name, field in _OF_FACTS.items():
            yield name, getattr(facts, field)
        variables = facts.nccl_environment | facts.environment
        yield "environment variables", text_of(COMPARED, variables)
        yield "precision", precision_of(record)
    yield "specified link, GB/s", record.link_gb_per_s
    for card in record.cards:
        yield from _of_card(card)
    used = record.gpu_utilization_percent
    if used is not None:
        limit = facts.cancel_below_percent if facts else None
        text = f"{used:.0f}{aside(str(limit or ''))}"
        yield "GPU utilization, % (site cancels below)", text
    if record.startup and record.startup.total_s:
        text = f"{record.startup.total_s:.1f}"
        yield "start of the job to the first iteration, s", text
    yield "measured", (record.attempt.started or "")[:10]
    yield "imported from", record.source.file
    yield "GPU, as reported", record.source.gpu_model


def _of_card(card: Card) -> Iterator[tuple[str, object]]:
    if card.clock_mhz:
        text = f"{card.clock_mhz} ({card.max_sm_clock_mhz})"
        yield "SM clock, MHz (of at most)", text
    yield "memory clock, MHz", card.memory_clock_mhz
    watts = card.samples.power_w[1] if card.samples else card.power_w
    if watts is not None:
        limit = "" if card.power_limit_w is None else f"{card.power_limit_w:.0f}"
        yield "power, W (of at most)", f"{watts:.0f}{aside(limit)}"
    yield "reasons for lower clocks", ", ".join(sorted(card.reasons))
    yield "links of a GPU", link_text(card)
    if card.bus_id:
        yield "GPU, index and bus", f"{card.index} {card.bus_id}"


def hardware(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a group's hardware and software; without facts it has no items."""
    title = "Hardware and software"
    rows = tuple(environment(group.source).items())
    items = (FactTable(title, ("property", "value"), rows),) if rows else ()
    return "Environment", items, title
