"""The health of a node's GPUs by NVML, one finding of `hpml-jobs doctor` for each."""

from collections.abc import Iterator

from hpml_jobs.core.findings import Finding, ok, warning
from hpml_jobs.core.gpus import lane_fault, memory_fault, slowing_reasons
from hpml_jobs.core.measurements import Card
from hpml_jobs.core.text import counted
from hpml_jobs.worker.instruments.cards import CardReader

ABOUT = "gpu health"


def card_findings(reader: CardReader) -> Iterator[Finding]:
    """Yield a finding for each GPU that NVML answers for, or why it answers for none."""
    reader.read()
    if not reader.state:
        yield ok(ABOUT, f"not read: {reader.missing[0] if reader.missing else 'no UUID of a GPU'}")
    for card in reader.state:
        yield _finding(card)


def _finding(card: Card) -> Finding:
    number = "" if card.index is None else f" {card.index}"
    observed = f"GPU{number} {card.bus_id or card.uuid}: {', '.join(_parts(card))}"
    if memory_fault(card) or lane_fault(card):
        return warning(ABOUT, observed, "report the node to the cluster's support")
    if slowing_reasons(card):
        return warning(ABOUT, observed, "measure on another node, or report it if it stays so")
    return ok(ABOUT, observed)


def _parts(card: Card) -> Iterator[str]:
    """Yield what NVML says, without what it does not answer."""
    if card.ecc_uncorrected is not None:
        yield counted(card.ecc_uncorrected, "uncorrected ECC error")
    if card.remapped_rows is not None:
        rows = counted(card.remapped_rows, "remapped row")
        is_done = card.row_remapping == "done"
        yield rows if is_done else f"{rows} (remapping is {card.row_remapping})"
    if card.throttle_reasons is not None:
        reasons = slowing_reasons(card)
        yield f"clocks lowered by {', '.join(reasons)}" if reasons else "clocks not lowered"
    if card.pcie_width is not None:
        yield lane_fault(card) or f"PCIe x{card.pcie_width}"
    if card.temperature_c is not None:
        yield f"{card.temperature_c} °C"
