"""Machines without SLURM, reached by ssh: network namespaces with an sshd each, for the tests."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hpml_jobs.core.processes import die_with_parent
from tests.conftest import Program
from tests.patience import PATIENCE_S, wait_until

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

NAMES = ("a", "b", "c", "d", "e", "f")
"""The machines; `e` and `f` cannot connect to each other."""

_OF_ETC = ("hosts", "resolv.conf", "shadow", "ssh/ssh_config")

_SSH_CONFIG = """\
Host twin
    HostName 10.0.0.1
    HostKeyAlias a
Host locked
    HostName 10.0.0.1
    HostKeyAlias a
    PreferredAuthentications none
Host stranger
    HostName 10.0.0.1
Host *
    User root
    IdentitiesOnly yes
    IdentityFile {folder}/key
    UserKnownHostsFile {folder}/known
"""

_SSHD_CONFIG = """\
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PidFile none
"""


def missing_requirement() -> str | None:
    """Return why there can be no such machines here, in one line, or None."""
    programs = ("sshd", "ssh", "ip", "unshare", "nsenter")
    absent = [
        program for program in programs if shutil.which(program, path=_PATH) is None
    ]
    if absent:
        install = "apt-get install -y openssh-server iproute2"
        return f"the test hosts need {', '.join(absent)}: {install}"
    made = subprocess.run(
        ["unshare", "--net", "--mount", "true"], capture_output=True, check=False
    )
    if os.geteuid() != 0 or made.returncode:
        return "the test hosts need root with CAP_NET_ADMIN and CAP_SYS_ADMIN for their namespaces"
    return None


class Hosts:
    """The machines and, for the program, another one that has the keys; all see one file system.

    The namespaces have no names: they end with their processes, and these with this one. The
    folder `private` has other content on every machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running = ExitStack()
        self._machines: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Return when every machine answers."""
        folder = self.folder
        for name in ("private", "ssh"):
            (folder / name).mkdir()
        keys = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"]
        subprocess.run(keys, check=True)
        key = (folder / "key.pub").read_text()
        names = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES, 1)}
        files = {
            "known": "".join(f"{name} {key}" for name in NAMES),
            "ssh/ssh_config": _SSH_CONFIG.format(folder=folder),
            "sshd_config": _SSHD_CONFIG.format(folder=folder),
            "shadow": "root:*:20000:0:99999:7:::\n",  # Ubuntu's root is locked, which sshd refuses
            "resolv.conf": "",  # a name server of this machine that does not run: no waiting
            "hosts": "127.0.0.1 localhost\n"
            + "".join(f"{address} {name}\n" for name, address in names.items())
            + "10.0.0.99 silent\n10.0.0.254 refused twin locked stranger\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "shadow").chmod(0o600)
        network = "ip link add net type bridge; ip address add 10.0.0.254/24 dev net"
        self._main = self._start(
            f"{network}; ip link set net up", "exec sleep infinity"
        )
        for name, address in names.items():
            self._machines[name] = self._add(name, address)
        for name in NAMES[-2:]:
            self._enter(f"ip link set dev {name} type bridge_slave isolated on")
        self.program = Program(folder, os.environ, self._python())

    def _add(self, name: str, address: str) -> subprocess.Popen[bytes]:
        sshd = f"{shutil.which('sshd', path=_PATH)} -D -f {self.folder}/sshd_config"
        machine = self._start(
            "mount -t tmpfs none /run; mkdir /run/sshd", f"read _; exec {sshd}"
        )
        self._enter(
            f"ip link add name {name} type veth peer name eth0 netns {machine.pid}"
        )
        self._enter(f"ip link set dev {name} master net up")
        up = f"ip address add {address}/24 dev eth0; ip link set eth0 up"
        self._enter(up, machine.pid)
        assert machine.stdin is not None
        machine.stdin.write(b"\n")
        machine.stdin.flush()
        wait_until(
            lambda: self._enter("ssh " + name + " true", check=False) == 0,
            f"{name} answers",
            has_ended=lambda: machine.poll() is not None,
        )
        return machine

    def _start(self, setup: str, command: str) -> subprocess.Popen[bytes]:
        """Start a shell command in new namespaces; return when the setup has run there."""
        mounts = [f"mount --bind {self.folder}/{name} /etc/{name}" for name in _OF_ETC]
        own = "; ".join(
            ["ip link set lo up", f"mount -t tmpfs none {self.folder}/private", *mounts]
        )
        machine = subprocess.Popen(
            [
                "unshare",
                "--net",
                "--mount",
                "sh",
                "-ec",
                f"{own}; {setup}; echo; {command}",
            ],
            env=os.environ | {"PATH": _PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,  # noqa: PLW1509  (it only calls prctl)
        )
        self._running.callback(machine.communicate)
        self._running.callback(machine.kill)
        assert machine.stdout is not None
        assert machine.stdout.readline(), (
            "the namespaces cannot be set up: see standard error"
        )
        return machine

    def _enter(self, command: str, pid: int = 0, *, check: bool = True) -> int:
        entered = [
            "nsenter",
            "-t",
            str(pid or self._main.pid),
            "-n",
            "-m",
            "sh",
            "-ec",
            command,
        ]
        return subprocess.run(
            entered,
            env=os.environ | {"PATH": _PATH},
            check=check,
            capture_output=not check,
            timeout=PATIENCE_S,
        ).returncode

    def _python(self) -> Path:
        """Write the command that starts Python on the machine that has the keys."""
        words = f"nsenter -t {self._main.pid} -n -m sh -c"
        inside = """'cd "$0" && exec "$@"' "$PWD" """ + shlex.quote(sys.executable)
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {words} {inside} "$@"\n')
        python.chmod(0o755)
        return python

    def processes(self, *names: str) -> list[int]:
        """Return the processes on machines (default: all), without their sshd."""
        machines = [self._machines[name] for name in names or NAMES]
        networks = {
            Path(f"/proc/{machine.pid}/ns/net").readlink() for machine in machines
        }
        pids = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if (path / "ns/net").readlink() in networks:
                    pids.append(int(path.name))
        return sorted({*pids} - {machine.pid for machine in machines})

    def cut(self, name: str) -> None:
        """End the connections to a machine on its side, at once."""
        for pid in self.processes(name):
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().strip() == "sshd":
                    os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End every machine and what runs on it."""
        for pid in self.processes(*self._machines):
            os.kill(pid, signal.SIGKILL)
        self._running.close()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Six machines for all tests of a session; where there can be none, they are skipped."""
    if reason := missing_requirement():
        pytest.skip(reason)
    machines = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        machines.start()
        yield machines
    finally:
        machines.stop()
