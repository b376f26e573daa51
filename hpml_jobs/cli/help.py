"""The page of `hpml-jobs --help`: commands, keys, and the choices of every group of configs."""

from collections.abc import Sequence
from pathlib import Path

from hpml_jobs.core.config_docs import KeyDoc, description, keys

PAGE = """\
hpml_jobs {version}: data-parallel scaling studies of PyTorch training on SLURM clusters.

A study is a set of cells. A cell is one configuration that is measured, e.g. 4 GPUs, batch 128.

Submit a study (-m: one cell for every combination of the values):
  hpml-jobs -m gpus=1,2,4 batch=32,128,512
  hpml-jobs grid=lab cluster=greene gpu_type=v100 cluster.account=ACCOUNT
Submitted again, a study skips its finished, pending and running cells. On a machine without SLURM
its cells run immediately. python -m hpml_jobs is the same as hpml-jobs.

Commands (hpml-jobs COMMAND --help shows all options and an example)

 set up
  init                      write your defaults (account, partition, GPU type, folders) from what
                            this cluster says: ~/.config/hpml_jobs/config.yaml
  doctor KEY=VALUE...       check the setup, with a short diagnostic job; --gpus 2 runs a small
                            validation study
  fetch KEY=VALUE...        download the data set, once, on the login node
  completion SHELL          print the completion script of bash, zsh or fish

 submit (--dry-run shows what would be done, also of run, resubmit and fetch)
  plan KEY=VALUE...         show cells, job scripts and GPU-hours of a submission; submit nothing
  run KEY=VALUE...          run one cell here: on a laptop or inside an allocation (sbatch/)
  resubmit [STUDY] ...      resubmit cells: PATTERN or --failed --oom --timeout --missing
                            --cancelled --lost; change them with --minutes, --mem
  cancel [STUDY] [PATTERN]  cancel this study's jobs

 follow
  list                      list all studies: cells by state, date, cluster, workload
  status [STUDY] [PATTERN]  show the state of every cell, resources used, suggested next commands
  watch [STUDY] [PATTERN]   show the same, live, until no cell is pending or running
  logs [STUDY] [PATTERN]    show why cells failed: traceback of the rank that failed first; -f
                            follows the log of a running cell

 results
  collect [STUDY]           print the answer; write the tables to the study's report/
  choose [STUDY] KEY=VALUE  say which cell to ask for: the most GPUs that are used efficiently, the
                            fastest, the cheapest; with a budget or a deadline the best that fits
  predict [STUDY] KEY=VALUE predict more GPUs, other batches, another network, each with its band
                            and its error on cells that were left out
  report [STUDY]            write a page to hand in (report.html, report.md), and its pictures
  record [STUDY] [PATTERN]  show the key numbers and data-quality checks of every cell
  compare A [B]             say which cells of study B are faster or slower than those of A;
                            --fail-if-slower 5% for CI
  reference save NAME [STUDY]
                            store the numbers of a study, to compare later ones with it

 in and out
  import FILE.csv study=NAME
                            make a study from timings or rates of another program
  export [STUDY] FORMAT     write it for wandb, mlflow, tensorboard or extrap, offline
  archive [STUDY]           pack a study into one file for publication, without personal data
  unpack FILE               make a study from an archive; every hash is checked

  --cfg job                 print the composed configuration (Hydra)
  --version                 print the version

  STUDY is the name of a study; without it, the most recently submitted study.
  PATTERN selects cells by name: 'ddp-4gpu-*'.

Keys of a cell, with their defaults (key=value; with -m also key=a,b,c)
{keys}

Keys of the study
{study}

Groups of configs, with their choices (cluster=greene workload=digits)
{groups}

Keys of a cluster (cluster.account=A cluster.partition=P cluster.mem_gb_per_gpu=16) and of a
workload (workload.lr=0.05) are explained in conf/cluster/slurm.yaml and conf/workload/*.yaml.
Your defaults (account, container): ~/.config/hpml_jobs/config.yaml
Your own configs: --config-dir FOLDER with cluster/, workload/, recipe/, grid/
All options: docs/commands.md. Errors and their fixes: docs/troubleshooting.md.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

GROUPS = ("cluster", "workload", "recipe", "grid")


def page(version: str, folders: Sequence[Path]) -> str:
    """Return the page; the first folder is conf/, others are the user's own configs."""
    docs = keys((folders[0] / "config.yaml").read_text())
    study = [doc for doc in docs if doc.section == "the study"]
    return PAGE.format(
        version=version,
        keys="\n".join(_line(doc) for doc in docs if doc not in study),
        study="\n".join(_line(doc) for doc in study),
        groups="\n".join(_group(name, folders) for name in GROUPS),
    )


def _line(doc: KeyDoc) -> str:
    return f"  {f'{doc.key}={doc.value}':26} {doc.comment}".rstrip()


def _group(name: str, folders: Sequence[Path]) -> str:
    """Return a group's choices, each with the description in its file."""
    files = [file for folder in folders for file in sorted((folder / name).glob("*.yaml"))]
    lines = [f"    {file.stem:20} {description(file.read_text())}".rstrip() for file in files]
    return "\n".join([f"  {name}=", *lines])
