"""The process group of the stand-in: gloo's collectives, each queued in a stream as NCCL's are."""

import ctypes
from collections import deque
from datetime import timedelta
from functools import partial, partialmethod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Backend, _create_work_from_future
from torch.futures import Future
from torch.utils._pytree import tree_map_only

from tests.device import NAME


class QueuedGloo(Backend):
    """Collectives of the current device's tensors, in a stream of their own.

    A collective begins when the stream that it is called in has come so far, and work waits for it
    by an event: the host goes on.
    """

    supports_splitting = False  # that of Backend asks itself without end

    def __init__(
        self,
        library: ctypes.CDLL,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
    ) -> None:
        super().__init__(rank, size)
        self._library = library
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._device = torch.device(NAME, torch.accelerator.current_device_index())
        self._stream = torch.Stream(self._device)
        self._calls: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._run_next = ctypes.CFUNCTYPE(ctypes.c_bool)(self._run)

    def _queue(self, name: str, *arguments: Any) -> dist.Work:
        self._stream.wait_stream(torch.accelerator.current_stream(self._device))
        done: Future[Any] = Future(devices=[self._device])
        with self._stream:
            self._calls.append((name, arguments))
            self._library.standin_launch(self._device.index, self._run_next)
            # complete for the host, with an event in this stream
            done.set_result(arguments[0])
        return _create_work_from_future(done)

    def _run(self) -> bool:
        name, arguments = self._calls.popleft()
        getattr(self._gloo, name)(
            *tree_map_only(Tensor, self._bytes_of, arguments)
        ).wait()
        return True

    def _bytes_of(self, tensor: Tensor) -> Tensor:
        address = self._library.standin_bytes(self._device.index, tensor.data_ptr())
        memory = (ctypes.c_char * tensor.nbytes).from_address(address)
        return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)

    allreduce = partialmethod(_queue, "allreduce")
    broadcast = partialmethod(_queue, "broadcast")
    allgather = partialmethod(_queue, "allgather")
    gather = partialmethod(_queue, "gather")

    def barrier(self, options: dist.BarrierOptions) -> None:
        """Wait on the host, as NCCL does."""
        self._queue("barrier", options)
        self._stream.synchronize()

    def getBackendName(self) -> str:  # noqa: N802 -- torch asks for it from 2.15 on
        """Return the name of the backend."""
        return NAME

    def shutdown(self) -> None:
        """Wait for what is queued, as NCCL does; a rank that exits would not send it."""
        self._stream.synchronize()

    def set_timeout(self, timeout: timedelta) -> None:
        """Let gloo wait so long."""
        self._gloo.set_timeout(timeout)


def register(library: ctypes.CDLL) -> None:
    """Make it the backend of process groups on the stand-in."""
    dist.Backend.register_backend(NAME, partial(QueuedGloo, library), devices=[NAME])
