"""The part of a host of `cluster=ssh`: its answers before the first cell, and its node of a cell.

`python -m hpml_jobs.submit.host answer MARKER PORT` and `... run JOB NODE HOSTS CELL_FOLDER`.
"""

import fcntl
import json
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from hpml_jobs.core.process_times import boot_id
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.core.text import VERSION
from hpml_jobs.core.value import Value
from hpml_jobs.job.workers import JOB_VARIABLE, NODE_VARIABLE
from hpml_jobs.slurm.commands import HOSTS_VARIABLE

CONNECT_S = 3.0
"""How long a connection to another host may take."""

SILENCE_S = 30.0
"""The silence of the submitting machine after which a host ends its cell."""

BEAT_S = 1.0
"""The time between two lines that the submitting machine writes to every host."""

STOP_S = 60.0
"""How long a cell may take to end after SIGTERM."""

_SIOCGIFADDR = 0x8915  # linux/sockios.h


class HostFacts(Value, frozen=True, kw_only=True):
    """What a host answers: its versions, and the number of a port on which it accepts connections.

    `machine` is equal for two names of one machine; `marker` is the text of the marker file, empty
    where the host has no such file.
    """

    hpml_jobs: str = VERSION
    torch: str
    python: str = ".".join(platform.python_version_tuple()[:2])
    machine: str
    marker: str
    port: int


def answer(marker: Path, port: int) -> None:
    """Print facts, then which of the addresses on standard input cannot be connected to, and why.

    Listens on `port` (0: any free port) until the end of standard input.
    """
    with socket.create_server(("", port)) as server:
        _, listened_port = server.getsockname()
        _print(msgspec.json.encode(_facts(marker, listened_port)))
        addresses = json.loads(sys.stdin.readline() or "{}")
        with ThreadPoolExecutor(max(1, len(addresses))) as pool:
            faults = pool.map(_connection_fault, addresses.items())
        by_host = zip(addresses, faults, strict=True)
        unconnected = {host: fault for host, fault in by_host if fault}
        _print(msgspec.json.encode(unconnected))
        sys.stdin.read()


def _facts(marker: Path, port: int) -> HostFacts:
    torch = content = ""
    with suppress(PackageNotFoundError):
        torch = version("torch")
    with suppress(OSError):
        content = marker.read_text()
    network = Path(
        "/proc/self/ns/net"
    ).readlink()  # containers of one machine have their own
    return HostFacts(
        torch=torch, machine=f"{boot_id()} {network}", marker=content, port=port
    )


def _print(text: bytes) -> None:
    print(text.decode(), flush=True)  # noqa: T201 - what the submitting machine reads


def _connection_fault(address: tuple[str, int]) -> str:
    try:
        socket.create_connection(address, CONNECT_S).close()
    except OSError as fault:
        return fault.strerror or str(fault)
    return ""


def run(job: str, node: int, hosts: list[str], folder: str) -> int:
    """Run this host's node of a cell as srun would; return the exit code.

    sshd sends no signal when its client is gone: the cell ends when standard input ends, or is
    silent for SILENCE_S.
    """
    environment = os.environ | {
        JOB_VARIABLE: job,
        NODE_VARIABLE: str(node),
        HOSTS_VARIABLE: " ".join(hosts),
        "SLURMD_NODENAME": hosts[node],
    }
    other_hosts = [host for host in hosts if host != hosts[node]]
    if other_hosts:
        environment |= _interfaces(other_hosts[0])
    cell = subprocess.Popen(
        [sys.executable, "-m", "hpml_jobs.job", folder],
        stdin=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
    )
    heard = time.monotonic()
    while cell.poll() is None and time.monotonic() - heard < SILENCE_S:
        if select.select([sys.stdin], [], [], BEAT_S / 5)[0]:
            if not os.read(sys.stdin.fileno(), 4096):
                break
            heard = time.monotonic()
    if cell.poll() is None:
        cell.terminate()
    try:
        return cell.wait(STOP_S)
    except subprocess.TimeoutExpired:
        return 1  # and the kernel kills the cell, whose parent this is


def _interfaces(other: str) -> dict[str, str]:
    """Return the variables that make gloo and NCCL use the interface on the way to another host.

    By default gloo takes the address of this host's name, which often is one of the loopback.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((other, 9))  # sends nothing
        address = route.getsockname()[0]
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(
                    route, _SIOCGIFADDR, struct.pack("256s", name.encode())
                )
                if socket.inet_ntoa(answer[20:24]) == address:
                    return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}


if __name__ == "__main__":
    if sys.argv[1] == "answer":
        die_with_parent()
        answer(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        job, node, hosts, folder = sys.argv[2:]
        sys.exit(run(job, int(node), hosts.split(), folder) and 1)
