"""A process that has imported torch, and forks the ranks of tests.

A rank of torchrun imports torch for 2 to 4 s of CPU time, and so does torchrun itself. A forked
rank has the environment, the folder, the arguments and the store that torchrun would give it.
"""

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from hpml_jobs.worker.fork_safety import imports_for_life
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[3]
IMPORTED = ("torch._dynamo", "torch.distributed.fsdp", "hpml_jobs.worker.loop")


class Ended(NamedTuple):
    """Exit code of the first rank that failed, or 0, and what all ranks wrote."""

    code: int
    stdout: str
    stderr: str


class RankServer:
    """One server; close it at the end."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, processes: int, folder: Path, *words: str, environment: Mapping[str, str]
    ) -> Ended:
        """Run `python -m` with these words in a folder, as so many ranks."""
        import torch.distributed as dist  # noqa: PLC0415  (the server must not have a store)

        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        placement = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }
        ranks = [
            {"RANK": str(n), "LOCAL_RANK": str(n)} | placement for n in range(processes)
        ]
        of_ranks = ranks if processes > 1 else [{}]
        with TemporaryDirectory() as written:
            files = [str(Path(written) / name) for name in ("stdout", "stderr")]
            request = {
                "environments": [{**environment, **rank} for rank in of_ranks],
                "folder": str(folder),
                "words": words,
                "files": files,
            }
            print(json.dumps(request), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
            return Ended(
                json.loads(answer), *(Path(file).read_text() for file in files)
            )

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


def _become_rank(
    environment: dict[str, str], folder: str, words: list[str], files: list[str]
) -> None:
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, folder)
    sys.argv = ["", *words[1:]]
    code: int | str | None = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # it must not go on as a second server
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else bool(code))


def _wait(pids: set[int]) -> int:
    """Wait for all; when one fails end the others, as torchrun does. Return the first failure."""
    failure = 0
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        code = os.waitstatus_to_exitcode(status)
        if code and not failure:
            failure = code
            for other in pids:
                os.kill(other, signal.SIGTERM)
    return failure


def serve() -> None:
    """Answer each line of standard input, a request, with the exit code of its ranks."""
    with imports_for_life():
        for name in IMPORTED:
            importlib.import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        pids = set()
        for environment in request["environments"]:
            pid = os.fork()
            if not pid:
                _become_rank(
                    environment, *(request[key] for key in ("folder", "words", "files"))
                )
            pids.add(pid)
        print(_wait(pids), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
