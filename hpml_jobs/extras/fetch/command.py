"""Command fetch."""

from hpml_jobs.cli.console import print_note
from hpml_jobs.cli.options import ConfigDir, DryRun, Overrides
from hpml_jobs.core.built_in import DATASETS
from hpml_jobs.plan.data import data_root, prepare
from hpml_jobs.plan.settings import Notify, Settings


def fetch(
    overrides: Overrides = None, config_dir: ConfigDir = None, dry_run: DryRun = False
) -> None:
    """Download the data set, once, on the login node.

    Example: hpml-jobs fetch data.root=/scratch/me/data
    """
    from hpml_jobs.plan.sweep import expand

    sweep = expand(overrides or [], multirun=False, config_dir=config_dir)
    download(sweep.first, print_note, dry_run=dry_run)


def download(settings: Settings, notify: Notify, *, dry_run: bool = False) -> None:
    """Download the data set of a workload, if it is one to download and is not there.

    With `dry_run`, only say what would be downloaded.
    """
    workload = settings.workload
    root = data_root(settings.data.root, settings.cluster)
    dataset = DATASETS.get(workload.data)
    if dataset is None or not dataset.downloaded:
        notify(f"workload={workload.name} (data {workload.data}): nothing to download")
    elif not dataset.is_missing(root):
        notify(f"{dataset.title} is already in {root}")
    elif dry_run:
        notify(f"{dataset.title} would be downloaded into {root}")
    else:
        notify(f"downloading {dataset.title} into {root}")
        prepare(workload, root, settings.cluster, download=True)
