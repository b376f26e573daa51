"""torch.compile of the replica, and what it took: seconds, graphs, graph breaks."""

import os
import shutil
import time
from typing import Any

import torch
from torch import nn

from hpml_jobs.core.measurements import Compilation
from hpml_jobs.core.training_path import CompileMode
from hpml_jobs.errors import HpmlError

BACKEND = "inductor"

CPU_COMPILERS = ("g++", "clang++")


class Compiler:
    """Compiles the replica of a rank, and counts what torch compiles in this process.

    The replica is compiled inside its wrapper. While DDP's forward runs, torch splits the graph at
    DDP's buckets (DDPOptimizer), so that their messages overlap with backward. A new wrapper around
    the same compiled replica compiles nothing again. Each shape of a batch has graphs of its own,
    compiled when it first comes, in the warm-up epoch.
    """

    def __init__(self, mode: CompileMode | None, device: torch.device) -> None:
        self._mode = mode
        self._device = device
        self._seconds = self._started = 0.0
        if mode is not None:
            self._check()
            self._count_seconds()

    def compiled(self, replica: nn.Module) -> nn.Module:
        """Return the model whose forward runs the compiled replica; the replica without compile."""
        if self._mode is None:
            return replica
        model: Any = torch.compile(replica, backend=BACKEND, mode=self._mode.value, dynamic=False)
        return model  # type: ignore[no-any-return]

    @property
    def graphs(self) -> int | None:
        """Graphs that were compiled so far; None without compile."""
        if self._mode is None:
            return None
        from torch._dynamo.utils import counters  # noqa: PLC0415 -- a second to import

        return int(counters["stats"]["unique_graphs"])

    def graphs_since(self, before: int | None) -> int | None:
        """Return the graphs that were compiled since there were so many."""
        now = self.graphs
        return None if now is None or before is None else now - before

    def summary(self) -> Compilation | None:
        """Return what compilation took so far; None without compile."""
        if self._mode is None:
            return None
        from torch._dynamo.utils import counters  # noqa: PLC0415 -- a second to import

        breaks = counters["graph_break"]
        return Compilation(
            seconds=self._seconds,
            graphs=self.graphs or 0,
            graph_breaks={str(why).splitlines()[0]: int(number) for why, number in breaks.items()},
        )

    def _count_seconds(self) -> None:
        from torch._dynamo.callback import callback_handler  # noqa: PLC0415 -- a second to import

        def start(*_: Any) -> None:
            self._started = time.perf_counter()

        def end(*_: Any) -> None:
            self._seconds += time.perf_counter() - self._started

        callback_handler.register_start_callback(start)
        callback_handler.register_end_callback(end)

    def _check(self) -> None:
        """Refuse to compile without a compiler.

        Raises:
            HpmlError: there is no C++ compiler for the CPU, or no Triton for the GPU.
        """
        if self._device.type == "cuda":
            from torch.utils._triton import has_triton  # noqa: PLC0415 -- imports Triton

            if not has_triton():
                raise HpmlError(
                    f"compile={self._mode}: Triton does not work with "
                    f"{torch.cuda.get_device_name(self._device)} (it needs compute capability 7.0 "
                    "or higher, and the package triton); use compile=false"
                )
            return
        names = (os.environ["CXX"],) if os.environ.get("CXX") else CPU_COMPILERS
        if not any(map(shutil.which, names)):
            raise HpmlError(
                f"compile={self._mode}: no C++ compiler ({' or '.join(names)}) is installed on "
                "this node: install one, name it in the variable CXX, or use compile=false"
            )
