"""The process that owns the daemons of a rig; it ends them on request or when its owner dies.

It is a separate process, so that it can clean up after a killed test run, and the reaper of its
descendants, so that it finds every one (the processes of a job leave slurmd's tree).
"""
# ruff: noqa: T201  (a command: it answers by printing)

import argparse
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.patience import PATIENCE_S, timeout
from tests.rig.configuration import (
    NODES,
    Accounting,
    add_node_names,
    create_empty_database,
    with_slurm,
    write_configuration,
)
from tests.rig.processes import descendants, reap_children, terminate

_END_PATIENCE_S = 1.5  # nothing that they would still write is kept
_DAEMON_PATIENCE_S = timeout(
    0.5
)  # a daemon that will start again saves its state first
_PR_SET_CHILD_SUBREAPER = 36


class DaemonSupervisor:
    """Starts and ends the daemons in `folder`; they do not outlive this process."""

    def __init__(self, folder: Path, owner: int, accounting: Accounting) -> None:
        self.folder = folder
        self.owner = owner
        self.accounting = accounting
        self.env = {
            "PATH": with_slurm(
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            ),
            "LANG": "C.UTF-8",
            "SLURM_CONF": str(folder / "slurm.conf"),
            "MYSQL_UNIX_PORT": str(folder / "database.socket"),
        }
        self.addresses: dict[str, Path | int] = {
            "munged": folder / "munge.socket",
            "mariadbd": folder / "database.socket",
        }
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._hidden: dict[str, str] = {}  # the folder, by node

    def start(self) -> None:
        """Start all daemons, each after the one that it needs, and wait for idle nodes."""
        add_node_names()
        self.addresses |= write_configuration(self.folder, self.accounting)
        self.start_daemon("munged")
        if self.accounting is not Accounting.NONE:
            create_empty_database(self.folder)
            self.start_daemon("mariadbd")
            self.start_daemon("slurmdbd")
            self._command("sacctmgr", "-i", "add", "cluster", "rig")
        self.start_daemon("slurmctld")
        for name in NODES:
            self._launch(name)
        self._wait_for("slurmctld", self._nodes_are_idle, self.daemons)

    def watch(self) -> None:
        """Run commands, one per line, until the owner is gone; reap ended children meanwhile."""
        while os.getppid() == self.owner:
            reap_children()
            if select.select([sys.stdin], [], [], 0.1)[0]:
                command = sys.stdin.readline().split()
                if not command:
                    return
                print(json.dumps(self._run_command(*command)), flush=True)

    def _run_command(self, verb: str, name: str) -> dict[str, object]:
        """Start, stop or kill a daemon; return the daemons' pids.

        Or mount a disk of `name` MiB, or hide a folder from a node (NODE=FOLDER), or none (NODE=).
        """
        try:
            if verb == "start":
                self.start_daemon(name)
            elif verb == "disk":
                self._mount_disk(name)
            elif verb == "hide":
                self._hide(*name.split("=", 1))
            else:
                daemon = self.daemons.pop(name)
                if verb == "kill":
                    daemon.kill()
                terminate([daemon.pid], _DAEMON_PATIENCE_S)
        except (KeyError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            return {"failed": str(error)}
        return {name: daemon.pid for name, daemon in self.daemons.items()}

    def start_daemon(self, name: str) -> None:
        """Start a daemon, with its saved state if it has one, and wait until it listens.

        Daemons that ended with it are restarted too, as an init system does: slurmdbd may end
        with "You haven't inited this storage yet" if it needs its database at that moment.
        """
        self._launch_and_wait(name)
        for ended in self._ended(self.daemons):
            self._launch_and_wait(ended)

    def _launch_and_wait(self, name: str) -> None:
        self._launch(name)
        self._wait_for(name, lambda: _listens(self.addresses[name]), [name])

    def _ended(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if self.daemons[name].poll() is not None]

    def stop(self) -> None:
        """End jobs, then daemons in the reverse order of their start, then whatever is left."""
        if "slurmctld" in self.daemons:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._command("scancel", "--user=root")
        for names in (NODES, ["slurmctld"], ["slurmdbd"], ["mariadbd"], ["munged"]):
            pids = [self.daemons[name].pid for name in names if name in self.daemons]
            terminate(pids, _END_PATIENCE_S)
        for _ in range(5):  # a process may fork while it is being ended
            if left := descendants(os.getpid()):
                terminate(left, _END_PATIENCE_S)
        reap_children()
        if os.path.ismount(self.disk):
            self._command("umount", "--lazy", str(self.disk))

    @property
    def disk(self) -> Path:
        """The mount point of the small disk."""
        return self.folder / "disk"

    def _mount_disk(self, mebibytes: str) -> None:
        self.disk.mkdir()
        command = [
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={mebibytes}m",
            "tmpfs",
            str(self.disk),
        ]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    def _hide(self, node: str, folder: str) -> None:
        """Start a node's daemon again with an empty folder in place of `folder`, or with it."""
        terminate([self.daemons.pop(node).pid], _DAEMON_PATIENCE_S)
        self._hidden = {node: folder} if folder else {}
        self._launch(node)
        self._wait_for("slurmctld", self._nodes_are_idle, [node])

    def _command_of(self, name: str) -> list[str]:
        """Return the command that starts a daemon in the foreground."""
        if name in self._hidden:
            mount = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
            own = ["unshare", "--mount", "sh", "-c", mount, self._hidden[name]]
            return [*own, "slurmd", "-D", "-N", name]
        if name in NODES:
            return ["slurmd", "-D", "-N", name]
        if name == "mariadbd":
            return [
                "mariadbd",
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                f"--datadir={self.folder / 'database'}",
                f"--tmpdir={self.folder}",
                f"--socket={self.addresses[name]}",
                f"--pid-file={self.folder / 'database.pid'}",
                "--innodb-flush-log-at-trx-commit=0",  # no data needs to survive a crash
                "--innodb-fast-shutdown=2",
            ]
        if name == "munged":
            files = {
                "--key-file": "munge.key",
                "--socket": "munge.socket",
                "--pid-file": "munge.pid",
                "--seed-file": "munge.seed",
                "--log-file": "log/munge.log",
            }
            options = [
                f"{option}={self.folder / file}" for option, file in files.items()
            ]
            return ["munged", "--foreground", "--force", *options]
        return [name, "-D"]

    def _launch(self, name: str) -> None:
        # If this process is killed, the kernel ends the daemons.
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command_of(name)],
                env=self.env,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _wait_for(
        self, name: str, condition: Callable[[], bool], alive: Iterable[str]
    ) -> None:
        """Wait for a daemon; raise if one of `alive` ends meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            ended = self._ended(alive)
            if ended or time.monotonic() > deadline:
                what = f"{ended[0]} ended" if ended else f"{name} is not up"
                raise RuntimeError(
                    f"{what}:\n{self._log_tail(ended[0] if ended else name)}"
                )
            if os.getppid() != self.owner:
                raise RuntimeError("the owner is gone")
            time.sleep(0.05)

    def _log_tail(self, name: str) -> str:
        log = (self.folder / "log" / f"{name}.log").read_text(errors="replace")
        return "\n".join(log.splitlines()[-10:])

    def _command(self, *command: str) -> str:
        done = subprocess.run(
            command,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout

    def _nodes_are_idle(self) -> bool:
        return self._command("sinfo", "-h", "-N", "-p", "main", "-o", "%T").split() == [
            "idle" for _ in NODES
        ]


def _listens(address: Path | int) -> bool:
    """Return whether a process listens at a Unix socket or at a local port."""
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family) as probe:
        return (
            probe.connect_ex(
                str(address) if isinstance(address, Path) else ("127.0.0.1", address)
            )
            == 0
        )


def main() -> int:
    """Run a rig; print one line of JSON when it is up, or why it is not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--owner", type=int, required=True, help="end when this parent has ended"
    )
    parser.add_argument("--accounting", type=Accounting, default=Accounting.KEPT)
    parser.add_argument(
        "--remove", action="store_true", help="remove the folder at the end"
    )
    arguments = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    arguments.folder.mkdir(mode=0o700, parents=True, exist_ok=not arguments.remove)
    supervisor = DaemonSupervisor(
        arguments.folder, arguments.owner, arguments.accounting
    )
    try:
        supervisor.start()
        print(
            json.dumps(
                {name: daemon.pid for name, daemon in supervisor.daemons.items()}
            ),
            flush=True,
        )
        supervisor.watch()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        supervisor.stop()
        if arguments.remove:
            shutil.rmtree(arguments.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
