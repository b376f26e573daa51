"""Command init: a commented personal profile for this site."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpml_jobs import __version__
from hpml_jobs.errors import HpmlError, UsageError
from hpml_jobs.study.reader import reason_of

if TYPE_CHECKING:
    from hpml_jobs.plan.site_profile import Profile

HEAD = (
    "Personal defaults of hpml-jobs for every study, by hpml-jobs init {version} on {date}",
    "from {sources}.",
    "",
    "The command line has priority over this file; hpml-jobs plan shows the source of each value.",
    "A line `# key: value` has no effect: remove `# ` to set the key. All keys: docs/commands.md.",
)


def init(
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FILE", help="file to write; default: ~/.config/hpml_jobs/config.yaml"
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="print the file, write nothing")] = False,
) -> None:
    """Write a commented profile of your defaults, from what this cluster and your account say.

    It asks sinfo, scontrol and sacctmgr, and looks at the environment. Partition, account, GPU type
    and folders are set where there is one answer; other choices are comments. An existing file is
    never changed.

    Example: hpml-jobs init --print
    """
    from hpml_jobs.plan.user_config import user_config_file

    if show and to is not None:
        raise UsageError("--print with --to: print the file, or write it")
    read_file = user_config_file()
    path = read_file if to is None else to.expanduser()
    if not show:
        _refuse_existing(path)
    profile, sources = _profile()
    text = _text(profile, sources)
    if show:
        print(text, end="")
        return
    _write(path, text)
    _report(path, profile)
    if path.resolve() != read_file.resolve():
        print(f"hpml-jobs reads only {read_file}: copy the file there")
    print("next: hpml-jobs plan -m gpus=1,2 batch=32, then hpml-jobs doctor")


def _profile() -> "tuple[Profile, str]":
    """Return the profile of this machine, and its sources; warn of commands without an answer."""
    from hpml_jobs.core.paths import login_name
    from hpml_jobs.plan.config_folders import ConfigFolders
    from hpml_jobs.plan.machine import detect_cluster, local_gpus
    from hpml_jobs.plan.site_profile import local_profile, slurm_profile
    from hpml_jobs.slurm.commands import has_sbatch
    from hpml_jobs.slurm.site import read_site

    cluster, why = detect_cluster(ConfigFolders(None).cluster_names())
    reason = why.partition(": ")[0]
    if not has_sbatch():
        return local_profile(reason, local_gpus()), "the environment (there is no SLURM)"
    site = read_site(login_name())
    if site.complaints:
        print(
            f"warning: {'; '.join(site.complaints)}; what they would say is a comment in the file",
            file=sys.stderr,
        )
    if cluster == "local":  # sbatch is here, but SLURM does not say which cluster
        cluster, reason = "slurm", "sbatch is on PATH, but SLURM does not name its cluster"
    return slurm_profile(cluster, reason, site), "sinfo, scontrol, sacctmgr and the environment"


def _text(profile: "Profile", sources: str) -> str:
    from hpml_jobs.plan.profile import profile_text

    date = datetime.now(UTC).astimezone().date().isoformat()
    head = [line.format(version=__version__, date=date, sources=sources) for line in HEAD]
    return profile_text(head, profile.blocks)


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise HpmlError(
            f"{path} exists and was not changed: write another file with --to FILE, or read the "
            "new one with --print"
        )


def _write(path: Path, text: str) -> None:
    """Write a new file; one that appeared in the meantime is kept."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(path)
        raise
    except OSError as fault:
        raise HpmlError(f"{path} cannot be written: {reason_of(fault)}") from fault


def _report(path: Path, profile: "Profile") -> None:
    """Print which keys are in effect, and what the user should look at."""
    settings = [f"{k}={v}" for block in profile.blocks for k, v in block.settings.items()]
    print(f"written: {path}")
    print(f"set: {' '.join(settings) or 'nothing, the defaults are right for this machine'}")
    for decision in profile.decisions:
        print(f"check: {decision}")
