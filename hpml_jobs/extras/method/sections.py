"""How a page's figures were measured: its sections on the hardware, the method, the formulas."""

from hpml_jobs.core.source import IMPORT, OWN_LOOP, SCRIPT, Origin
from hpml_jobs.extras.method.facts import environment
from hpml_jobs.report.page.formats import FactTable, Item, Paragraph
from hpml_jobs.report.report import Report, ReportGroup

FORMULA_HEADS = ("figure", "formula", "meaning")

FORMULAS: tuple[tuple[str, str, str], ...] = (
    (
        "epoch time",
        "T(N, b) = the longest of all ranks",
        "on N GPUs at batch b per GPU: the second epoch, without instruments, after a warm-up "
        "epoch; from a barrier to the last synchronization of the device; data loading included",
    ),
    (
        "throughput",
        "images, tokens or samples / epoch time",
        "of all processes, padding of the sampler included",
    ),
    (
        "speedup",
        "T(1, b) / T(N, b)",
        "the same batch b per GPU: weak scaling per epoch",
    ),
    ("strong scaling", "T(1, G) / T(N, G/N)", "the same global batch G"),
    ("efficiency", "speedup / N", "1 is ideal; above 1.05 needs an explanation"),
    (
        "computation",
        "copies + forward + backward + optimizer",
        "an epoch with instruments, on the rank that waits least for others",
    ),
    (
        "communication",
        "exposed + packing",
        "time of collectives that no computation hides; hidden communication is in neither",
    ),
    (
        "residual (derived)",
        "train(N, b) - train(1, b) x ceil(D/N) / D",
        "train: T without data loading; D: training samples. The lab's estimate without "
        "instruments: everything that slows N GPUs down",
    ),
    (
        "bus bandwidth",
        "2(N-1)/N x bytes of gradients / seconds",
        "what a ring all-reduce moves over each link (Patarasuk and Yuan, 2009); 1 GB = 1e9 bytes",
    ),
    (
        "cost",
        "GPUs charged x epoch time",
        "GPUs of whole nodes where a cell has them exclusively",
    ),
    (
        "interval",
        "[min, max] of n runs up to 8 runs",
        "contains the true median with probability 1 - 2^(1-n); speedups: bootstrap of the runs",
    ),
    (
        "difference",
        "exact Mann-Whitney test, from 6 rounds on signed ranks; p <= 5 %, and more than 2 %",
        "needs 4 runs of each cell; below, medians are compared and marked as undecided",
    ),
)

METHODS: dict[Origin, str] = {
    OWN_LOOP: (
        "Each cell is a new launch: a warm-up epoch, a timed epoch, and with protocol=full an "
        "epoch with instruments, one without gradient exchange, and a microbenchmark of its "
        "collectives. Records hold raw values; every figure is derived from them when the report "
        "is made. Nothing is simulated. No run is dropped because of its time; those that other "
        "programs disturbed are left out. docs/formulas.md derives each formula."
    ),
    SCRIPT: (
        "The script was started unchanged and measured from outside: its first epoch (or window "
        "of iterations) is the warm-up, the second is timed, in the third the exchange is "
        "recorded. They begin and end where the script's own iterations do; what cannot be seen "
        "is a dash."
    ),
    IMPORT: (
        "The times of this study were imported from a file: hpml_jobs has not measured them, and "
        "cannot check them."
    ),
}
"""How the times of a group were measured, by where they come from."""


def hardware(group: ReportGroup) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of a group's hardware and software; without facts it has no items."""
    rows = tuple((fact.name, fact.text) for fact in environment(group.source))
    title = "Hardware and software"
    items = (FactTable(title, ("property", "value"), rows),) if rows else ()
    return "Environment", items, title


def method(report: Report) -> tuple[str, tuple[Item, ...], str]:
    """Return the section of how the cells of all groups are measured, and of the formulas."""
    origins = {group.source.origin for group in report.groups}
    texts = [text for origin, text in METHODS.items() if origin in origins]
    formulas = FactTable("Formulas", FORMULA_HEADS, FORMULAS)
    items: tuple[Item, ...] = (*map(Paragraph, texts), formulas)
    return "Method", items, "How cells are measured, and the formulas"
