"""Cells over the machines of `cluster=ssh`: checks of the hosts, and one cell on several."""

import json
import math
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from hpml_jobs import __version__
from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.core.record import Attempt
from hpml_jobs.job.host import BEAT_S, HostFacts
from hpml_jobs.job.workers import RENDEZVOUS_PORTS
from hpml_jobs.study.attempt import AttemptEnd, Progress, utc_now
from hpml_jobs.study.cell_folder import CellFolder
from hpml_jobs.study.files import encode, write_whole

ANSWER_S = 30.0
"""How long a host may take to answer: a first start of Python from a network folder is slow."""

LOST_CODE = 255
"""Exit code of ssh itself: there is no connection, or none any more."""

FAIL_S = 60.0
"""How long the other hosts may take to end a cell that failed on one."""

_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": "5",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "3",
}

_REMEDIES = (
    ("resolve hostname", "correct cluster.hosts="),
    ("REMOTE HOST IDENTIFICATION|Host key verification", "run ssh {host} once, and check its key"),
    ("Permission denied", "run ssh-copy-id {host}, or load the key with ssh-add"),
    ("Connection (refused|timed out)|No route", "start sshd there, or correct cluster.hosts="),
    ("No module named", f"install hpml_jobs {__version__} there, or set cluster.python="),
    ("not found|No such file", "install the same Python there, or set cluster.python="),
    ("Address already in use", "repeat the command, which tries another port"),
)
"""Patterns of the last line on standard error, and remedies; the first that matches counts."""


def _start(cluster: Cluster, host: str, words: tuple[str, ...], output: int, errors: Any) -> Any:
    """Start `hpml_jobs.job.host` on a host; it ends with its standard input.

    Raises:
        HpmlError: there is no ssh here.
    """
    command = shlex.join([cluster.python or sys.executable, "-m", "hpml_jobs.job.host", *words])
    options = [word for key, value in _OPTIONS.items() for word in ("-o", f"{key}={value}")]
    try:
        return subprocess.Popen(
            ["ssh", *options, host, f"cd / && exec {command}"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which ends the hosts' cells
            preexec_fn=die_with_parent,  # noqa: PLW1509  (no threads here yet)
        )
    except FileNotFoundError as fault:
        raise HpmlError("ssh is not on PATH: install OpenSSH's client") from fault


def check_hosts(cluster: Cluster, folder: Path) -> None:
    """Check that the hosts of `cluster=ssh`, if any, can run cells of a study in this folder.

    Raises:
        HpmlError: with all faults that were found; all hosts are asked at once.
    """
    if cluster.hosts and (faults := _faults(cluster, cluster.hosts, folder)):
        raise HpmlError("; ".join(faults))


def _faults(cluster: Cluster, hosts: Sequence[str], folder: Path) -> list[str]:
    ports = [secrets.choice(RENDEZVOUS_PORTS), *[0] * (len(hosts) - 1)]
    with ExitStack() as held:
        marker = held.enter_context(tempfile.NamedTemporaryFile("w", dir=folder, prefix=".hosts-"))
        marker.write(marker.name)
        marker.flush()
        started: dict[str, Any] = {}
        for host, port in zip(hosts, ports, strict=True):
            words = ("answer", marker.name, str(port))
            started[host] = _start(cluster, host, words, subprocess.PIPE, subprocess.PIPE)
            held.callback(started[host].communicate)
            held.callback(started[host].kill)
        pool = held.enter_context(ThreadPoolExecutor(len(hosts)))

        def next_lines() -> dict[str, str]:
            return dict(zip(started, pool.map(_read_line, started.values()), strict=True))

        lines = next_lines()
        if silent := [host for host, line in lines.items() if not line]:
            return [_why_silent(host, started[host]) for host in silent]
        facts = {host: msgspec.json.decode(line, type=HostFacts) for host, line in lines.items()}
        if faults := list(_differences(facts, marker.name)):
            return faults
        addresses = json.dumps({host: fact.port for host, fact in facts.items()})
        for process in started.values():
            with suppress(BrokenPipeError):
                process.stdin.write(addresses + "\n")
                process.stdin.flush()
        return _unreachable(next_lines())


def _read_line(process: Any) -> str:
    """Return the next line of JSON that a host prints; empty if it ends without, or is too slow."""
    timer = threading.Timer(ANSWER_S, process.kill)
    timer.start()
    try:  # a shell's own start file may print too
        return next((line for line in process.stdout if line.startswith("{")), "")
    finally:
        timer.cancel()


def _why_silent(host: str, process: Any) -> str:
    """Return why a host gave no answer, with the remedy."""
    code, error = process.wait(), _last_line(process.stderr)
    if code < 0 or not error:
        return f"{host}: no answer within {ANSWER_S:g} s: see ssh -v {host}"
    remedies = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, error))
    remedy = next(remedies, "see ssh -v {host}").format(host=host)
    return f"{host}: {error.removeprefix('ssh: ').rstrip('.')}: {remedy}"


def _last_line(errors: IO[str]) -> str:
    return (errors.read().strip().splitlines() or [""])[-1].strip()


def _differences(facts: Mapping[str, HostFacts], marker: str) -> Iterator[str]:
    """Yield what differs between the hosts, or between them and this machine."""
    for name, here in (("hpml_jobs", {"this machine": __version__}), ("python", {}), ("torch", {})):
        versions = here | {host: getattr(fact, name) for host, fact in facts.items()}
        if len(set(versions.values())) > 1 or not all(versions.values()):
            each = ", ".join(f"{host} {version or 'none'}" for host, version in versions.items())
            yield f"{name} differs ({each}): install the same on all, or set cluster.python="
    if absent := [host for host, fact in facts.items() if fact.marker != marker]:
        yield (
            f"{Path(marker).parent} is not shared with {', '.join(absent)}: mount it there, e.g. "
            "by NFS or sshfs, or name a folder that all hosts share, outputs=PATH"
        )
    machines: dict[str, str] = {}
    for host, fact in facts.items():
        if (other := machines.setdefault(fact.machine, host)) != host:
            yield f"{host} and {other} are the same machine: name each machine once"


def _unreachable(lines: Mapping[str, str]) -> list[str]:
    """Return which hosts cannot connect to which others, in one line; none where all can."""
    faults = [
        f"{host} cannot connect to {other} ({fault})"
        for host, line in lines.items()
        for other, fault in json.loads(line or '{"others": "no answer"}').items()
    ]
    remedy = "open the TCP ports between the hosts in their firewalls"
    return [f"{', '.join(faults)}: {remedy}"] if faults else []


def run_on_hosts(
    cluster: Cluster,
    nodes: int,
    job: str,
    folder: CellFolder,
    on_progress: Callable[[Progress], None],
) -> int:
    """Run a cell on the first hosts, a node on each; return the first exit code that is not 0.

    Where one fails, the others have FAIL_S to end, which torchrun lets them.
    """
    hosts = (cluster.hosts or ())[:nodes]
    began = utc_now()
    started: dict[str, Any] = {}
    with ExitStack() as files:
        errors = {h: files.enter_context(tempfile.TemporaryFile("w+")) for h in hosts}
        try:
            for node, host in enumerate(hosts):
                words = ("run", job, str(node), " ".join(cluster.hosts or ()), str(folder.root))
                started[host] = _start(cluster, host, words, subprocess.DEVNULL, errors[host])
            deadline = math.inf
            while None in (codes := [process.poll() for process in started.values()]):
                if any(codes):
                    patience = 0 if LOST_CODE in codes else FAIL_S
                    deadline = min(deadline, time.monotonic() + patience)
                if time.monotonic() >= deadline:
                    break
                on_progress(folder.attempt(f"{job}.r0").read_progress() or Progress())
                for process in started.values():
                    with suppress(BrokenPipeError):
                        process.stdin.write("\n")
                        process.stdin.flush()
                time.sleep(BEAT_S)
        finally:
            for process in started.values():
                with suppress(BrokenPipeError):
                    process.stdin.close()
            ends = {host: process.wait() for host, process in started.items()}
        lost = [host for host, code in ends.items() if code == LOST_CODE]
        if lost and ends[hosts[0]]:
            errors[lost[0]].seek(0)
            reason = f"{lost[0]}: the connection was lost: {_last_line(errors[lost[0]])}"
            attempt = Attempt(id=f"{job}.r0", job=job, started=began)
            end = AttemptEnd(
                attempt=attempt, outcome=Outcome.NODE_FAIL, reason=reason, node=lost[0]
            )
            write_whole(folder.attempt(attempt.id).end, encode(end))
            write_whole(folder.current, attempt.id.encode())
    return next((code for code in ends.values() if code), 0)
