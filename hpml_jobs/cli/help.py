"""The help page: commands, keys and the choices of every group, without loading Hydra."""

from collections.abc import Sequence
from pathlib import Path

PAGE = """\
hpml_jobs {version}: how does my training scale? Data-parallel scaling studies on SLURM clusters.

submit a study (one cell without -m; cells that are finished or under way are left out)
  python -m hpml_jobs -m gpus=1,2,4 batch=32,128,512
  python -m hpml_jobs grid=lab cluster=greene gpu_type=v100 cluster.account=ACCOUNT
  hpml-jobs … is the same as python -m hpml_jobs …

commands (each has --help with an example; no STUDY: the one sent last)
  plan …             what would be sent: cells, scripts, GPU-hours; sends nothing
  run …              one cell here and now: on a laptop, or inside an allocation (sbatch/)
  fetch …            the data set, once, on the login node
  import FILE.csv study=NAME   timings measured elsewhere, gpus,batch,epoch_s, as a study
  status [STUDY] [PATTERN]   where every cell stands, what was used, what to do next
  watch [STUDY] [PATTERN]    the same, live with progress, until nothing is under way
  logs [STUDY] [PATTERN]     why cells failed: the first failing rank's traceback; -f follows a log
  record [STUDY] [PATTERN]   key numbers of every record, and every check of it with its reason
  cancel [STUDY] [PATTERN]   end this study's jobs, by id; nobody else's
  resubmit [STUDY] --failed|--oom|--timeout|--missing|--cancelled|--lost|PATTERN [--minutes] [--mem]
  collect [STUDY]    Tables 1, 2, 3 on screen and under report/ as md, csv, tex, json
  doctor …           can this machine submit? SLURM, limits, data, and a node by a short job
  doctor --gpus 2    a small study that proves the measurement; prints a block for a bug report
  completion SHELL   the script that completes all of this (bash, zsh, fish)
  --cfg job          the composed configuration (Hydra's own page; plan adds your own defaults)
  --version

the cell (key=value; key=a,b,c sweeps with -m)
{keys}

the study
{study}

groups
{groups}

Exit codes: 0 done, 1 it could not be done, 2 wrong usage, 130 interrupted.
Keys of a cluster, e.g. cluster.account=A cluster.partition=P cluster.mem_gb_per_gpu=16, and of a
workload, e.g. workload.lr=0.05, are explained in conf/cluster/slurm.yaml and conf/workload/*.yaml.
Your own defaults (account, container): ~/.config/hpml_jobs/config.yaml. Your own configs:
--config-dir DIR with cluster/, workload/, recipe/, grid/.
"""


def page(version: str, folders: Sequence[Path]) -> str:
    """The whole page; keys with their comments come from config.yaml of the first folder."""
    sections = _sections((folders[0] / "config.yaml").read_text())
    return PAGE.format(
        version=version,
        keys="\n".join(sections["the cell"] + sections["data"] + sections["after training"]),
        study="\n".join(sections["the study"]),
        groups="\n".join(
            _group(name, folders) for name in ("cluster", "workload", "recipe", "grid")
        ),
    )


def _sections(text: str) -> dict[str, list[str]]:
    """`key: value  # comment` lines of config.yaml under their `# ---- title` lines."""
    found: dict[str, list[str]] = {}
    title = prefix = ""
    for line in text.splitlines():
        if line.startswith("# ----"):
            title, prefix = line.strip("# -").split(":", maxsplit=1)[0], ""
        elif line.startswith("hydra:"):
            break
        elif title and ":" in line:
            setting, _, comment = line.partition("#")
            key, _, value = setting.strip().partition(":")
            prefix = "" if not line.startswith(" ") else prefix
            if not value.strip():
                prefix = f"{key}."
                continue
            name = f"{prefix}{key}={value.strip()}"
            found.setdefault(title, []).append(f"  {name:22} {comment.strip()}".rstrip())
    return found


def _group(name: str, folders: Sequence[Path]) -> str:
    """A group's choices, each with the first comment of its file."""
    lines = [f"  {name}="]
    for file in (file for folder in folders for file in sorted((folder / name).glob("*.yaml"))):
        first = file.read_text().partition("\n")[0]
        lines.append(f"    {file.stem:20} {first.strip('# ') if first.startswith('#') else ''}")
    return "\n".join(lines)
