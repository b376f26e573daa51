"""What a command would do: cells, job scripts, values and GPU-hours; nothing is done."""

from typing import TYPE_CHECKING

from hpml_jobs.cli.console import console, print_json, sent_table, values_table
from hpml_jobs.core.cluster import Launcher
from hpml_jobs.core.text import counted

if TYPE_CHECKING:
    from hpml_jobs.plan.plan import Plan
    from hpml_jobs.submit.selection import Selection


def show_preview(
    plan: "Plan", selection: "Selection", *, all_cells: bool = False, json: bool = False
) -> None:
    """Print what a submission of the selected cells would be."""
    from hpml_jobs.submit.explain import preview_of

    preview = preview_of(plan, selection)
    if json:
        print_json(preview)
        return
    out = console()
    out.print(sent_table(preview.cells, all_cells=all_cells))
    is_local = plan.cluster.launcher is Launcher.LOCAL
    jobs = counted(len(preview.scripts), "job")
    how = "on this machine, one after another" if is_local else f"as {jobs}"
    print(
        f"nothing was submitted; it would be {counted(len(selection.send), 'cell')} {how} "
        f"({len(selection.left_out)} left out), up to {preview.gpu_hours:.3g} GPU-hours, "
        f"study {preview.study} in {plan.study.root}"
    )
    if preview.overlap:
        print(preview.overlap)
    if preview.refused:
        print(f"it would be refused: {preview.refused}")
    shown = [row for row in preview.values if all_cells or not row.origin.startswith("conf/")]
    if shown:
        print()
        out.print(values_table((row.key, row.value, row.origin) for row in shown))
        if hidden := len(preview.values) - len(shown):
            print(f"{counted(hidden, 'other value')} are defaults: --all shows them")
    for script in preview.scripts:
        print(f"\n---- {script.shape}\n{script.script}", end="")
