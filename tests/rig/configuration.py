"""What lies in a rig's folder before its first daemon starts: configuration and fake devices."""

import os
import random
import socket
import stat
import string
import subprocess
from enum import StrEnum
from pathlib import Path

NODES = ("gr001", "gr002", "gv001")
_TEMPLATES = Path(__file__).with_name("config")
_HOSTS = Path("/etc/hosts")
_NVIDIA_MAJOR = 195
_GPUS_PER_NODE = 4
_LONGEST_FOLDER = 80  # a Unix socket's whole path may have 107 characters


class Accounting(StrEnum):
    """What the cluster knows of jobs that have ended, and whom it lets submit."""

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


def furnish(folder: Path, accounting: Accounting) -> dict[str, int]:
    """Lay everything down in `folder`, made already; return the ports chosen, by daemon or node.

    Raises ValueError for a folder with something in it, or too long a path for its sockets.
    """
    if len(str(folder)) > _LONGEST_FOLDER:
        raise ValueError(f"{folder}: over {_LONGEST_FOLDER} characters, too long for sockets")
    if any(folder.iterdir()):
        raise ValueError(f"{folder}: not empty; name a new folder")
    for name in ("log", "state", "database", *(f"spool/{node}" for node in NODES)):
        (folder / name).mkdir(parents=True)
    names = ("slurmctld", "slurmdbd", *NODES)
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    host = socket.gethostname().partition(".")[0]
    values = {"folder": folder, "host": host, "accounting": "\n".join(_SETTINGS[accounting])}
    values |= {f"{name}_port": port for name, port in ports.items()}
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


def name_the_nodes() -> None:
    """Give the nodes' names this machine's address, once: ranks on several nodes look them up."""
    text = _HOSTS.read_text()
    known = {word for line in text.splitlines() for word in line.partition("#")[0].split()}
    absent = [node for node in NODES if node not in known]
    if absent:
        with _HOSTS.open("a") as hosts:
            new_line = "" if text.endswith("\n") else "\n"
            hosts.write(f"{new_line}127.0.0.1 {' '.join(absent)}  # the hpml_jobs test SLURM\n")


def empty_database(folder: Path) -> None:
    """Make MariaDB's own tables; its root needs no password, the folder is root's alone."""
    subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={folder / 'database'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on, clear of outgoing connections (32768 up) and rendezvous (20000 up).

    RenderedTable at random, so that rigs starting at the same time do not choose alike.
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
