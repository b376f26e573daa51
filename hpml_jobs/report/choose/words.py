"""The choice of a cell in sentences: which to ask for, what more would bring, what to run next."""

from collections.abc import Iterable, Iterator, Sequence

from hpml_jobs.core.disturbance import WITHHELD_MOST
from hpml_jobs.core.strategies import Device
from hpml_jobs.core.text import PROGRAM, counted, percent_text, with_command
from hpml_jobs.report.choose.cost import Candidate, Exclusion
from hpml_jobs.report.choose.rules import (
    USUAL,
    Choice,
    Edge,
    SizeStep,
    Undecided,
    Winner,
)
from hpml_jobs.report.frame import captions
from hpml_jobs.report.frame.captions import (
    cost_unit,
    hours_unit,
    how,
    mark,
    size_words,
    time_word,
    unit,
    units,
    work_text,
)
from hpml_jobs.report.frame.numbers import (
    cost,
    per_second,
    percent,
    seconds,
    share_text,
    significant,
    three_digits,
    verb,
)
from hpml_jobs.results.checks.result import names
from hpml_jobs.results.decision import LEAST_RUNS, MOST_RUNS
from hpml_jobs.study.study import command_with


def name(candidate: Candidate, choice: Choice) -> str:
    """Return a cell's name in a sentence: `2 GPUs at batch 512 per GPU (ddp)`.

    Where as many GPUs were measured on other numbers of nodes, it has `on one node`.
    """
    row = candidate.row
    per = unit(candidate.device)
    gpus = size_words(row.setup, candidate.device)
    nodes = [c.row.nodes for c in choice.candidates if c.row.gpus == row.gpus]
    if row.nodes == 1 < max(nodes):
        gpus += " on one node"
    return f"{gpus} at batch {row.batch_per_gpu} per {per}{how(row.setup)}"


def size(candidate: Candidate) -> str:
    """Return a cell's number of GPUs in a sentence: `2 GPUs`."""
    return captions.size(candidate.row.gpus, candidate.device)


def time(candidate: Candidate) -> str:
    """Return the seconds of a cell's epoch, with the mark of checks."""
    return mark(seconds(candidate.epoch_s), is_doubtful=candidate.doubtful)


def efficiency(candidate: Candidate, choice: Choice) -> str:
    """Return an efficiency, with what it is against unless that is its batch on one GPU."""
    reference = efficiency_reference(candidate, choice)
    return f"{efficiency_figure(candidate, choice)}{reference}"


def efficiency_figure(candidate: Candidate, choice: Choice) -> str:
    """Return an efficiency in percent, with the mark of checks."""
    text = share_text(candidate.efficiency)
    return mark(text, is_doubtful=choice.doubts_ratio(candidate))


def efficiency_reference(candidate: Candidate, choice: Choice) -> str:
    """Return ` (against batch 64)` where an efficiency is not against its batch on one GPU."""
    batch = choice.reference.row.batch_per_gpu
    is_same = batch == candidate.row.batch_per_gpu
    return against(choice) or ("" if is_same else f" (against batch {batch})")


def against(choice: Choice) -> str:
    """Return ` (against 2 GPUs)` where efficiencies are not against a single GPU, else nothing."""
    reference = choice.reference
    return f" (against {size(reference)})" if reference.row.gpus > 1 else ""


def figures(
    candidate: Candidate, choice: Choice, *, has_efficiency: bool = True
) -> str:
    """Return what an epoch of a cell, or other work, takes, gives and costs."""
    per = work_text(candidate.timing.work)
    parts = [f"{time(candidate)} s per {per}"]
    if (rate := candidate.timing.units_per_s) is not None:
        shown_rate = mark(per_second(rate), is_doubtful=candidate.doubtful)
        parts.append(f"{shown_rate} {candidate.timing.unit.value}/s")
    if has_efficiency and candidate is not choice.reference:
        parts.append(f"efficiency {efficiency(candidate, choice)}")
    if candidate.device is Device.CUDA:  # processes on a CPU are not charged
        price = mark(cost(candidate.gpu_s), is_doubtful=candidate.doubtful)
        parts.append(f"{price} {cost_unit(candidate.device)} per {per}")
    return ", ".join(parts)


def answer(choice: Choice, study: str | None) -> str:
    """Return the one sentence: what to ask for, and what that gives; or what to measure again.

    `study` are the words that select it in a command for more cells; None if it gets none.
    """
    if choice.measure_again:
        return _no_answer_yet(choice, study)
    if choice.ask is None:
        return f"No cell can be recommended: {_none(choice)}."
    winner = choice.ask.candidate
    sentences = [advice(choice)]
    if choice.undecided is None:
        has_efficiency = choice.wish.has_limit or is_smallest(choice)
        taken = figures(winner, choice, has_efficiency=has_efficiency)
        sentences = [f"{sentences[0]}: {_reason(winner, choice)}", f"It takes {taken}"]
    if choice.wish.epochs:
        sentences += [training(winner, choice.wish.epochs)]
    sentences += undecided(choice)
    return f"{'. '.join(sentences)}."


def _no_answer_yet(choice: Choice, study: str | None) -> str:
    """Return which cells are too disturbed for an answer, with the command to measure them."""
    cells = names((c.words for c in choice.measure_again), separator="; ")
    sentence = (
        f"No answer yet: other programs or the machine took more than "
        f"{percent_text(WITHHELD_MOST)} of the time of {cells}"
    )
    if study is None:
        return f"{sentence}."
    sentence += ". Measure them again when the machine is quiet"
    return _measured_again(sentence, study)


def _measured_again(sentence: str, study: str) -> str:
    return with_command(sentence, f"{PROGRAM} resubmit {study} --disturbed")


def _reason(winner: Candidate, choice: Choice) -> str:
    """Return the rule that chose a cell, with the efficiency where that is what decides."""
    if choice.wish.has_limit:
        return rule(choice)
    formula = f" (speedup / {units(choice.device)})"
    if is_smallest(choice):
        best = _most_efficient(_larger(choice))
        return f"{rule(choice)}{efficiency_reference(best, choice) or formula}"
    here = efficiency_figure(winner, choice)
    return (
        f"{rule(choice)}, here {here}{efficiency_reference(winner, choice) or formula}"
    )


def undecided(choice: Choice) -> list[str]:
    """Return the sentence on what the runs do not decide, with the runs that would; none else."""
    if choice.undecided is None:
        equals = choice.ask.equals if choice.ask else ()
        cells = names((candidate.words for candidate in equals), separator="; ")
        return [f"The runs do not tell it apart from {cells}"] if equals else []
    candidate, rival, interval, _, by_time = choice.undecided
    needed = _needed_runs(choice.undecided)
    is_single = all(len(cell.epochs_s) == 1 for cell in (candidate, rival))
    source = "one run of each" if is_single else "these runs"
    if by_time:
        faster = mark(
            three_digits(rival.epoch_s / candidate.epoch_s),
            is_doubtful=candidate.doubtful or rival.doubtful,
        )
        between = (
            f"between {three_digits(interval.low)} and {three_digits(interval.high)}"
        )
        return [
            f"The first is {faster} times as fast as the second, {between} by {source}: {needed}"
        ]
    have = verb(candidate.row.gpus, "has", "have")
    efficiency_text = efficiency_figure(candidate, choice)
    between = f"between {share_text(interval.low)} and {share_text(interval.high)}"
    least = share_text(choice.wish.min_efficiency)
    return [
        f"{size(candidate)} {have} an efficiency of {efficiency_text}, {between} by {source}, "
        f"and the limit is {least}: {needed}"
    ]


def _needed_runs(undecided: Undecided) -> str:
    """Return what would decide between two cells: their disturbed runs again, or more runs."""
    candidate, rival, _, runs, _ = undecided
    if candidate.row.disturbed_runs or rival.row.disturbed_runs:
        return "the disturbed runs are left out"
    if not runs:
        return f"even {MOST_RUNS} runs of each setting would not decide"
    return f"{runs} runs of each setting would decide (repeats={runs})"


def advice(choice: Choice, *, is_short: bool = False) -> str:
    """Return what to ask for, or between which two cells the runs do not decide.

    `is_short` shortens the names. It is not reliable yet where a check failed of what it is
    compared with.
    """
    if choice.ask is None:
        return ""
    winner = choice.ask.candidate
    is_reliable = choice.reference.exclusion is not Exclusion.FAILED_CHECK
    if choice.undecided is None:
        sentence = f"Use {winner.words if is_short else name(winner, choice)}"
    else:
        undecided = (
            "Not decided yet" if choice.undecided.runs else "Too close to decide"
        )
        two = _names_of_two(choice, winner, choice.undecided.rival, is_short=is_short)
        sentence = f"{undecided if is_reliable else 'Not decided'}: {two}"
    if is_reliable:
        return sentence
    smallest = size(choice.reference)
    sentence = f"{sentence[0].lower()}{sentence[1:]}"
    return f"Not reliable yet (a check failed for {smallest}): {sentence}"


def _names_of_two(
    choice: Choice, winner: Candidate, rival: Candidate, *, is_short: bool
) -> str:
    """Return the names of two cells; two sizes of one batch have it once."""
    is_same_batch = winner.row.batch_per_gpu == rival.row.batch_per_gpu
    if is_same_batch and winner.row.gpus != rival.row.gpus:
        per = "" if is_short else f" per {unit(winner.device)}"
        return f"{size(winner)} or {size(rival)}, batch {rival.row.batch_per_gpu}{per}"
    if is_short:
        return f"{winner.words} or {rival.words}"
    return f"{name(winner, choice)} or {name(rival, choice)}"


def training(candidate: Candidate, epochs: int) -> str:
    """Return what a training of so many epochs takes and costs."""
    minutes = epochs * candidate.epoch_s / 60
    hours = epochs * candidate.gpu_hours

    def shown(value: float) -> str:
        return mark(significant(value, 3), is_doubtful=candidate.doubtful)

    return (
        f"{counted(epochs, 'epoch')} take {shown(minutes)} min and cost {shown(hours)} "
        f"{hours_unit(candidate.device)}"
    )


def _none(choice: Choice) -> str:
    """Return why no cell can be chosen: what the nearest one lacks."""
    cheapest = choice.cheapest
    if cheapest is None:
        return "a data-quality check failed for every cell"
    wish = choice.wish
    if wish.has_limit:
        taken = training(cheapest, wish.counted_epochs)
        nearest = f"the nearest is {name(cheapest, choice)}: {taken}"
        return f"no cell meets {limits(choice)}; {nearest}"
    best = _most_efficient(choice.by_size)
    return (
        f"the best efficiency is {efficiency(best, choice)}, below "
        f"{share_text(wish.min_efficiency)}"
    )


def limits(choice: Choice) -> str:
    """Return the limit of a training in words."""
    return f"the budget of {choice.wish.gpu_hours:g} {hours_unit(choice.device)}"


def rule(choice: Choice) -> str:
    """Return the rule by which the cell to ask for was chosen."""
    wish = choice.wish
    if wish.has_limit:
        return f"the fastest within {limits(choice)}"
    least = share_text(wish.min_efficiency)
    if is_smallest(choice):
        most = efficiency_figure(_most_efficient(_larger(choice)), choice)
        have = f"more {units(choice.device)} have an efficiency of"
        return f"{have} {most} at most, below {least}"
    return f"the most {units(choice.device)} with an efficiency of {least} or more"


def is_smallest(choice: Choice) -> bool:
    """Return whether the cell to ask for is of the smallest size, and larger ones inefficient."""
    smallest = choice.reference.row.gpus
    if choice.ask is None or choice.ask.candidate.row.gpus != smallest:
        return False
    larger = _larger(choice)
    return bool(larger) and all(c.exclusion is Exclusion.INEFFICIENT for c in larger)


def _larger(choice: Choice) -> list[Candidate]:
    """Return the cells of more GPUs than the smallest size."""
    smallest = choice.reference.row.gpus
    return [cell for cell in choice.candidates if cell.row.gpus > smallest]


def _most_efficient(candidates: Iterable[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.efficiency)


def why(candidate: Candidate, choice: Choice) -> str:
    """Return why a cell was chosen, or why not."""
    roles = list(_roles(candidate, choice))
    if roles and candidate.exclusion is not Exclusion.OVER_BUDGET:
        return "; ".join(roles)
    return "; ".join([*roles, _exclusion(candidate, choice)])


def _exclusion(candidate: Candidate, choice: Choice) -> str:
    wish = choice.wish
    match candidate.exclusion:
        case Exclusion.FAILED_CHECK:
            return "a data-quality check failed: never chosen"
        case Exclusion.OVER_BUDGET:
            hours = significant(wish.counted_epochs * candidate.gpu_hours, 3)
            return f"needs {hours} of {wish.gpu_hours:g} {hours_unit(choice.device)}"
        case Exclusion.INEFFICIENT:
            against = efficiency_reference(candidate, choice)
            return f"efficiency below {share_text(wish.min_efficiency)}{against}"
        case _:
            return _beaten(candidate, choice)


def asked(choice: Choice) -> tuple[Candidate, ...]:
    """Return the cell to ask for; the two of which the runs do not tell which it is; or none."""
    if choice.ask is None:
        return ()
    rivals = (choice.undecided.rival,) if choice.undecided else ()
    return choice.ask.candidate, *rivals


def _roles(candidate: Candidate, choice: Choice) -> Iterator[str]:
    if choice.undecided and candidate in asked(choice):
        yield "not decided yet"
    elif choice.ask and candidate is choice.ask.candidate:
        yield f"use this{_instead(choice.ask)}"
    if choice.fastest and candidate is choice.fastest.candidate:
        yield f"fastest{_instead(choice.fastest)}"
    if candidate is choice.cheapest:
        yield "cheapest"


def _instead(winner: Winner) -> str:
    """Return the cells that are not faster than the winner: of its size, or costing more."""
    size = winner.candidate.row.gpus
    dearer = [other.label for other in winner.instead_of if other.row.gpus != size]
    equal = [other.label for other in winner.instead_of if other.row.gpus == size]
    text = f", as fast as {', '.join(dearer)} and cheaper" if dearer else ""
    return text + (f", not told apart from {', '.join(equal)}" if equal else "")


def _beaten(candidate: Candidate, choice: Choice) -> str:
    if choice.ask is None:
        return ""
    winner = choice.ask.candidate
    if candidate in choice.ask.instead_of:
        if candidate.row.gpus == winner.row.gpus:
            return f"not told apart from {winner.label}"
        return f"no faster than {winner.label}, and costs more"
    if candidate.row.gpus < winner.row.gpus and not choice.wish.has_limit:
        return f"fewer {units(choice.device)} than can be used efficiently"
    if candidate.epoch_s <= winner.epoch_s:
        return "costs more"
    return "slower and costs more" if candidate.gpu_s > winner.gpu_s else "slower"


def step_text(step: SizeStep) -> str:
    """Return what more GPUs bring: `2 GPUs instead of 1 save 4.2 s and cost 1.1 GPU-s more`."""
    device = step.larger.device
    work = step.smaller.timing.work
    is_doubtful = step.smaller.doubtful or step.larger.doubtful
    change_s = mark(seconds(abs(step.saved_s)), is_doubtful=is_doubtful)
    change = f"lengthen the {time_word(work)} by {change_s} s"
    if step.saved_s > 0:
        share = mark(
            percent(step.saved_s / step.smaller.epoch_s), is_doubtful=is_doubtful
        )
        change = f"save {change_s} s per {work_text(work)} ({share} %)"
    gpu_s = mark(cost(abs(step.added_gpu_s)), is_doubtful=is_doubtful)
    price = f"save {gpu_s} {cost_unit(device)}"
    if step.added_gpu_s > 0:
        price = f"cost {gpu_s} {cost_unit(device)} more"
    return f"{step.larger.words}, instead of {step.smaller.words}, {change} and {price}"


def doubts(choice: Choice) -> Iterator[str]:
    """Yield what limits the choice: too few runs, no cell on one GPU."""
    winners = [winner for winner in (choice.ask, choice.fastest) if winner]
    if any(not winner.is_decided for winner in winners) and not choice.undecided:
        yield (
            f"too few runs: small differences may be chance; {LEAST_RUNS} runs of each cell "
            f"decide (repeats={LEAST_RUNS})"
        )
    if choice.reference.row.gpus > 1:
        yield (
            f"no cell on 1 {unit(choice.device)}: efficiencies are against {choice.reference.words}"
        )


def next_cells(
    choice: Choice, commands: Sequence[str], study: str | None
) -> tuple[str, ...]:
    """Return what decides, and the cells beyond the edges of the grid, with their commands."""
    edges = (
        _edge_text(edge, command_of(edge, commands), choice.device)
        for edge in choice.edges
    )
    return *deciding(choice, commands, study), *edges


def deciding(
    choice: Choice, commands: Sequence[str], study: str | None
) -> Iterator[str]:
    """Yield the command that measures disturbed cells again, else of repeats that decide.

    `study` is as in `answer`.
    """
    if choice.measure_again:  # the answer has the command
        return
    rows = [candidate.row for candidate in choice.candidates]
    disturbed = sum(row.disturbed_runs for row in rows)
    is_mostly_disturbed = 2 * disturbed >= sum(len(row.cells) for row in rows)
    if disturbed and study and (choice.undecided or is_mostly_disturbed):
        yield _measured_again("To measure the disturbed cells again", study)
        return
    if choice.undecided is None or choice.undecided.runs is None:
        return
    candidate, rival, _, runs, by_time = choice.undecided
    cells = (candidate, rival) if by_time else (candidate, rival, choice.reference)
    keys: dict[str, object] = {
        "gpus": ",".join(map(str, sorted({c.row.gpus for c in cells}))),
        "batch": ",".join(map(str, sorted({c.row.batch_per_gpu for c in cells}))),
        "repeats": runs,
    }
    # Strategies and accumulated batches depend on the size: then the whole submission is repeated.
    is_plain = all(c.row.strategy in USUAL and c.row.accumulate == 1 for c in cells)
    is_whole = _chooses_strategies(commands) or not is_plain
    command = command_with(commands, keys, is_whole=is_whole)
    if command:
        yield with_command("To run them", command)


def _chooses_strategies(commands: Sequence[str]) -> bool:
    """Return whether the last submission names strategies, or a grid that may have some."""
    last = "".join(commands[-1:])
    return "strategy=" in last or "grid=" in last


def command_of(edge: Edge, commands: Sequence[str]) -> str:
    """Return the last submission's command with the keys of another cell; empty if unknown."""
    keys: dict[str, object] = {"gpus": edge.gpus, "batch": edge.batch}
    if edge.gpus > 1 and _chooses_strategies(commands):
        keys["strategy"] = edge.strategy.value
    if edge.accumulate is not None:
        keys["accumulate"] = edge.accumulate
    return command_with(commands, keys) or ""


def _edge_text(edge: Edge, command: str, device: Device) -> str:
    size = captions.size(edge.gpus, device)
    sentence = f"not measured, worth a run: {size} at batch {edge.batch} ({edge.why})"
    return with_command(sentence, command) if command else sentence
