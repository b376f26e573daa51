"""Cells over the machines of `cluster=ssh`: checks of the hosts, and one cell on several."""

import math
import os
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
from typing import IO, Any, TypeVar

import msgspec

from hpml_jobs.core.cell import Outcome
from hpml_jobs.core.cluster import Cluster
from hpml_jobs.core.errors import HpmlError
from hpml_jobs.core.processes import die_with_parent
from hpml_jobs.core.record import Attempt
from hpml_jobs.core.text import VERSION, printable
from hpml_jobs.core.value import decode_json
from hpml_jobs.job.workers import RENDEZVOUS_PORTS
from hpml_jobs.study.cell_folder import (
    AttemptEnd,
    AttemptFolder,
    CellFolder,
    Progress,
    utc_now,
)
from hpml_jobs.study.files import encode, write_whole
from hpml_jobs.submit.host import BEAT_S, HostFacts

ANSWER_S = 30.0
"""How long a host may take to answer: a first start of Python from a network folder is slow."""

LINE_BYTES = 1 << 16
"""The longest line of a host that is read as one."""

MOST_LINES = 10_000
"""How many lines a host may print before its answer, in files that its shell starts with."""

TAIL_BYTES = 4096
"""How much of what a host writes on standard error is kept: the end."""

SHOWN_CHARACTERS = 200
"""How much of a text of a host a message has."""

LOST_CODE = 255
"""Exit code of ssh itself: there is no connection, or none any more."""

FAIL_S = 60.0
"""How long the other hosts may take to end a cell that failed on one."""

_OPTIONS = (
    *("-o", "BatchMode=yes"),
    *("-o", "ConnectTimeout=5"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=3"),
)

_REMEDIES = (
    ("resolve hostname", "correct cluster.hosts="),
    (
        "REMOTE HOST IDENTIFICATION|Host key verification",
        "run ssh {host} once, and check its key",
    ),
    ("Permission denied", "run ssh-copy-id {host}, or load the key with ssh-add"),
    (
        "Connection (refused|timed out)|No route",
        "start sshd there, or correct cluster.hosts=",
    ),
    (
        "No module named",
        f"install hpml_jobs {VERSION} there, or set cluster.python=",
    ),
    ("not found|No such file", "install the same Python there, or set cluster.python="),
    ("Address already in use", "repeat the command, which tries another port"),
)
"""Patterns of the last line on standard error, and remedies; the first that matches counts."""


T = TypeVar("T")


class _AnyFacts(msgspec.Struct):
    """What the facts of each version of the program have."""

    hpml_jobs: str


class _Tail(threading.Thread):
    """The end of what a process writes on standard error, read until it ends."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._descriptor = os.dup(stream.fileno())  # the stream may be closed before
        self._end = b""
        self.start()

    def run(self) -> None:
        """Read, and keep the end."""
        while chunk := os.read(self._descriptor, LINE_BYTES):
            self._end = (self._end + chunk)[-TAIL_BYTES:]
        os.close(self._descriptor)

    def last_line(self) -> str:
        """Return the last line of an ended process; another one may keep its output open."""
        self.join(1)
        lines = self._end.decode(errors="replace").strip().splitlines() or [""]
        return _shown(lines[-1].strip())


def _start(cluster: Cluster, host: str, words: tuple[str, ...], output: int) -> Any:
    """Start `hpml_jobs.submit.host` on a host; it ends with its standard input.

    Raises:
        HpmlError: there is no ssh here.
    """
    command = shlex.join(
        [cluster.python or sys.executable, "-m", "hpml_jobs.submit.host", *words]
    )
    try:
        return subprocess.Popen(
            ["ssh", *_OPTIONS, host, f"cd / && exec {command}"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.PIPE,
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
        marker = held.enter_context(
            tempfile.NamedTemporaryFile("w", dir=folder, prefix=".hosts-")
        )
        marker.write(marker.name)
        marker.flush()
        started: dict[str, Any] = {}
        for host, port in zip(hosts, ports, strict=True):
            words = ("answer", marker.name, str(port))
            started[host] = held.enter_context(
                _start(cluster, host, words, subprocess.PIPE)
            )
            held.callback(started[host].kill)
        tails = {host: _Tail(process.stderr) for host, process in started.items()}
        pool = held.enter_context(ThreadPoolExecutor(len(hosts)))

        def answers(read: Callable[[bytes], T]) -> dict[str, T | None]:
            lines = pool.map(lambda process: _answer(process, read), started.values())
            return dict(zip(started, lines, strict=True))

        facts: dict[str, HostFacts] = {}
        versions: dict[str, str] = {}
        silent: list[str] = []
        for host, answer in answers(_read_facts).items():
            if answer is None:
                silent.append(_why_silent(host, started[host], tails[host]))
            else:
                versions[host] = answer.hpml_jobs
            if isinstance(answer, HostFacts):
                facts[host] = answer
        if faults := silent or list(_differences(versions, facts, marker.name)):
            return faults
        ports_of_hosts = {host: fact.port for host, fact in facts.items()}
        for process in started.values():
            _send(process, msgspec.json.encode(ports_of_hosts) + b"\n")
        return _unreachable(answers(lambda line: _read_others(line, hosts)))


def _send(process: Any, text: bytes) -> None:
    with suppress(BrokenPipeError):
        os.write(process.stdin.fileno(), text)


def _answer(process: Any, read: Callable[[bytes], T]) -> T | None:
    """Return the next line that can be read; None if the host ends without, or is too slow."""
    timer = threading.Timer(ANSWER_S, process.kill)
    timer.start()
    try:
        for _ in range(MOST_LINES):
            if not (line := process.stdout.readline(LINE_BYTES)):
                process.wait()
                return None
            with suppress(ValueError):  # a shell's own start file may print too
                return read(line)
    finally:
        timer.cancel()
    process.kill()
    return None


def _read_facts(line: bytes) -> HostFacts | _AnyFacts:
    """Read a host's facts, only the version if it is another one.

    Raises:
        ValueError: the line has none.
    """
    version = decode_json(line, _AnyFacts)
    if version.hpml_jobs != VERSION:
        return version
    facts = decode_json(line, HostFacts)
    if not 0 < facts.port < 1 << 16:
        raise ValueError(f"port {facts.port}")
    return facts


def _read_others(line: bytes, hosts: Sequence[str]) -> dict[str, str]:
    """Read which hosts a host cannot connect to, and why; ValueError: the line does not say it."""
    faults = decode_json(line, dict[str, str])
    if not faults.keys() <= {*hosts}:
        raise ValueError("names of others")
    return faults


def _why_silent(host: str, process: Any, tail: _Tail) -> str:
    """Return why a host gave no answer, with the remedy."""
    code, error = process.wait(), tail.last_line()
    if code < 0:
        return f"{host}: no answer within {ANSWER_S:g} s or {MOST_LINES} lines: see ssh -v {host}"
    if not error:
        return f"{host}: no answer, but exit code {code}: see ssh -v {host}"
    remedies = (remedy for pattern, remedy in _REMEDIES if re.search(pattern, error))
    remedy = next(remedies, "see ssh -v {host}").format(host=host)
    return f"{host}: {error.removeprefix('ssh: ').rstrip('.')}: {remedy}"


def _shown(text: str) -> str:
    """Return a text of a host as a part of a line."""
    line = " ".join(printable(text).split())
    return line if len(line) <= SHOWN_CHARACTERS else f"{line[:SHOWN_CHARACTERS]}…"


def _differences(
    versions: Mapping[str, str], facts: Mapping[str, HostFacts], marker: str
) -> Iterator[str]:
    """Yield what differs between the hosts, or between them and this machine.

    Another version of the program may have other facts, which are not compared.
    """
    compared = {"hpml_jobs": {"this machine": VERSION, **versions}}
    if len(facts) == len(versions):
        compared["python"] = {host: fact.python for host, fact in facts.items()}
        compared["torch"] = {host: fact.torch for host, fact in facts.items()}
    for name, by_host in compared.items():
        values = set(by_host.values())
        if len(values) > 1 or "" in values:
            texts = [
                f"{host} {_shown(text) or 'none'}" for host, text in by_host.items()
            ]
            yield (
                f"{name} differs ({', '.join(texts)}): install the same on all, or set "
                "cluster.python="
            )
    if absent := [host for host, fact in facts.items() if fact.marker != marker]:
        yield (
            f"{Path(marker).parent} is not shared with {', '.join(absent)}: mount it there, e.g. "
            "by NFS or sshfs, or name a folder that all hosts share, outputs=PATH"
        )
    machines: dict[str, str] = {}
    for host, fact in facts.items():
        if (other := machines.setdefault(fact.machine, host)) != host:
            yield f"{host} and {other} are the same machine: name each machine once"


def _unreachable(answers: Mapping[str, Mapping[str, str] | None]) -> list[str]:
    """Return which hosts cannot connect to which others, in one line; none where all can."""
    faults = []
    for host, answer in answers.items():
        unreached = {"others": "no answer"} if answer is None else answer
        for other, reason in unreached.items():
            faults.append(f"{host} cannot connect to {other} ({_shown(reason)})")
    remedy = "open the TCP ports between the hosts in their firewalls"
    return [f"{', '.join(faults)}: {remedy}"] if faults else []


def run_on_hosts(
    cluster: Cluster,
    nodes: int,
    job: str,
    folder: CellFolder,
    on_progress: Callable[[Progress], None],
) -> None:
    """Run a cell on the first hosts, a node on each.

    Where one fails, the others have FAIL_S to end, which torchrun lets them.
    """
    all_hosts = cluster.hosts or ()
    hosts = all_hosts[:nodes]
    began = utc_now()
    started: dict[str, Any] = {}
    attempt = folder.attempt(f"{job}.r0")
    with ExitStack() as held:
        tails: dict[str, _Tail] = {}
        try:
            for node, host in enumerate(hosts):
                words = ("run", job, str(node), " ".join(all_hosts), str(folder.root))
                started[host] = _start(cluster, host, words, subprocess.DEVNULL)
                held.callback(started[host].stderr.close)
            tails |= {host: _Tail(process.stderr) for host, process in started.items()}
            _keep_alive([*started.values()], attempt, on_progress)
        finally:
            for process in started.values():
                process.stdin.close()
            ends = {host: process.wait() for host, process in started.items()}
        lost = [host for host, code in ends.items() if code == LOST_CODE]
        if lost and ends[hosts[0]]:
            reason = f"{lost[0]}: the connection was lost: {tails[lost[0]].last_line()}"
            about = Attempt(id=attempt.id, job=job, started=began, ended=utc_now())
            end = AttemptEnd(
                attempt=about, outcome=Outcome.NODE_FAIL, reason=reason, node=lost[0]
            )
            write_whole(attempt.end, encode(end))
            write_whole(folder.current, attempt.id.encode())


def _keep_alive(
    processes: Sequence[Any],
    attempt: AttemptFolder,
    on_progress: Callable[[Progress], None],
) -> None:
    """Tell the hosts that this process lives, until all have ended or one that failed is late."""
    deadline = math.inf
    while None in (codes := [process.poll() for process in processes]):
        if any(codes):
            patience = 0 if LOST_CODE in codes else FAIL_S
            deadline = min(deadline, time.monotonic() + patience)
        if time.monotonic() >= deadline:
            return
        on_progress(attempt.read_progress() or Progress())
        for process in processes:
            _send(process, b"\n")
        time.sleep(BEAT_S)
