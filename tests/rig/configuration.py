"""Write the folder of a rig before its daemons start: configuration and fake devices."""

import os
import random
import socket
import stat
import string
import subprocess
from enum import StrEnum
from pathlib import Path

from tests.patience import PATIENCE_S

NODES = ("gr001", "gr002", "gv001")
_TEMPLATES = Path(__file__).with_name("config")
_HOSTS = Path("/etc/hosts")
_NVIDIA_MAJOR = 195
_GPUS_PER_NODE = 4
_LONGEST_FOLDER = 80  # a Unix socket's whole path may have 107 characters


class Accounting(StrEnum):
    """Whether the cluster accounts for jobs, and whether it enforces limits."""

    KEPT = "kept"  # slurmdbd, nobody is limited
    ENFORCED = "enforced"  # slurmdbd, and its associations and limits hold
    NONE = "none"  # no slurmdbd


_KEPT = (
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageTRES=gres/gpu,gres/gpu:rtx8000,gres/gpu:v100",
)
_SETTINGS = {
    Accounting.KEPT: _KEPT,
    Accounting.ENFORCED: (*_KEPT, "AccountingStorageEnforce=associations,limits,qos"),
    Accounting.NONE: ("AccountingStorageType=accounting_storage/none",),
}


def with_slurm(path: str) -> str:
    """Return a PATH; SLURM is found in the folder that RIG_SLURM names, if it is set."""
    folder = os.environ.get("RIG_SLURM")
    return f"{folder}/sbin:{folder}/bin:{path}" if folder else path


def write_configuration(folder: Path, accounting: Accounting) -> dict[str, int]:
    """Write all files into `folder`, which exists; return the ports by daemon or node.

    Raises ValueError if the folder is not empty or its path is too long for sockets.
    """
    if len(str(folder)) > _LONGEST_FOLDER:
        raise ValueError(
            f"{folder}: over {_LONGEST_FOLDER} characters, too long for sockets"
        )
    if any(folder.iterdir()):
        raise ValueError(f"{folder}: not empty; choose an empty one")
    for name in ("log", "state", "database", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    names = ("slurmctld", "slurmdbd", *NODES)
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    host = socket.gethostname().partition(".")[0]
    values = {
        "folder": folder,
        "host": host,
        "accounting": "\n".join(_SETTINGS[accounting]),
    }
    values |= {f"{name}_port": port for name, port in ports.items()}
    build = os.environ.get("RIG_SLURM")
    has_lua = build is None or Path(build, "lib/slurm/job_submit_lua.so").exists()
    values["submit_rule"] = "JobSubmitPlugins=lua" if has_lua else ""
    for template in _TEMPLATES.iterdir():
        written = folder / template.name
        written.write_text(string.Template(template.read_text()).substitute(values))
        written.chmod(0o600)  # slurmdbd insists
    for number in range(_GPUS_PER_NODE):
        device = folder / f"fakegpu{number}"
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(_NVIDIA_MAJOR, number))
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    return ports


def add_node_names() -> None:
    """Add the nodes to /etc/hosts once, at this machine's address: ranks look them up."""
    text = _HOSTS.read_text()
    listed = {
        word for line in text.splitlines() for word in line.partition("#")[0].split()
    }
    absent = [node for node in NODES if node not in listed]
    if absent:
        with _HOSTS.open("a") as hosts:
            new_line = "" if text.endswith("\n") else "\n"
            hosts.write(
                f"{new_line}127.0.0.1 {' '.join(absent)}  # the hpml_jobs test SLURM\n"
            )


def create_empty_database(folder: Path) -> None:
    """Create MariaDB's system tables; without a password, as only root can read the folder."""
    done = subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={folder / 'database'}",
            f"--tmpdir={folder}",  # in a shared folder the next one to start removes #sql*
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise RuntimeError(f"mariadb-install-db failed: {done.stdout}{done.stderr}")


def _free_ports(count: int) -> list[int]:
    """Return free ports below those of rendezvous (20000 up) and connections (32768 up).

    Random, so that rigs which start at the same time choose different ones.
    """
    free: list[int] = []
    for port in random.sample(range(10_000, 20_000), k=1000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise OSError(f"no {count} free ports between 10000 and 19999")
