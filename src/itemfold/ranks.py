"""Ranks, the processes that ``torchrun`` starts for one run, and their collective operations.

Every rank runs the same program on the same data with the same random numbers, but holds only some
columns of the embeddings. Before `start`, and in a single process, there is one rank and the
collective operations do nothing. torch is imported only once several ranks start.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from torch import Tensor

T = TypeVar("T")
TIMEOUT = timedelta(days=1)  # while the first rank works alone; a dead rank is noticed at once
POLL_S = 0.02  # seconds between two reads of the store


class RankLost(ItemfoldError):
    """Another rank has ended, so this one cannot continue."""


@dataclass
class _Group:
    """The process group, as seen by this rank."""

    size: int = 1  # 1 until the ranks are connected
    store: Any = None  # key-value store of the ranks; failures are published there
    alone: bool = False  # whether this rank works without the others, see `alone`
    restarted: bool = False  # whether ``torchrun`` has started the ranks before
    bytes: int = 0  # sent by this rank for sums


_group = _Group()


# --- rank and size -------------------------------------------------------------------------------


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ["RANK"]) if wanted_size() > 1 else 0


def is_first() -> bool:
    """Whether this process prints, shows progress and writes files."""
    return rank() == 0


def wanted_size() -> int:
    """The number of processes that ``torchrun`` started, connected or not; 1 within `alone`."""
    if _group.alone:
        return 1
    env = os.environ
    started = "RANK" in env and "MASTER_ADDR" in env and "WORLD_SIZE" in env
    return int(env["WORLD_SIZE"]) if started else 1


def size() -> int:
    """The number of connected ranks; 1 within `alone`."""
    return 1 if _group.alone else _group.size


def is_restart() -> bool:
    """Whether ``torchrun --max-restarts`` has restarted the ranks after a failure.

    ``torchrun`` counts restarts per machine; connected ranks agree on the answer.
    """
    counted = wanted_size() > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    return _group.restarted if size() > 1 else counted


def exchanged_bytes() -> int:
    """Bytes that this rank has sent for sums over ranks."""
    return _group.bytes


def start(device: str) -> None:
    """Connect to the other ranks, if any: gloo for CPU tensors, NCCL for GPU tensors."""
    if wanted_size() == 1 or _group.size > 1 or _group.alone:
        return
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if take_gpu(device) else "gloo"
    if not dist.is_initialized():
        try:
            _connect(backend)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ItemfoldError(f"the processes cannot connect to each other: {reason}") from error
        atexit.register(stop)
    counted = is_restart()
    _group.size = dist.get_world_size()
    _group.restarted = bool(largest(int(_group.restarted or counted)))


def _connect(backend: str) -> None:
    import torch.distributed as dist
    import torch.distributed.nn  # noqa: F401 - if imported later it keeps the group: see `stop`
    from torch.distributed.rendezvous import rendezvous

    store, own, count = next(rendezvous("env://", timeout=TIMEOUT))
    name, _group.restarted = agree_on_name(dist.PrefixStore("itemfold", store), own, count)  # type: ignore[attr-defined]
    _group.store = dist.PrefixStore(f"itemfold/{name}", store)  # type: ignore[attr-defined]
    dist.init_process_group(
        backend, store=_group.store, rank=own, world_size=count, timeout=TIMEOUT
    )


def agree_on_name(store: Any, own: int, count: int) -> tuple[str, bool]:
    """A new name for the process group of ``count`` ranks, and whether there was a group before.

    After a restart ``torchrun`` may keep its store, with the addresses of dead ranks, and it has no
    restart count that is the same on all machines. So every rank publishes a random token, and the
    first one proposes the joined tokens as a name, until every rank confirms a name with its token.
    """
    token, had_group = secrets.token_hex(8), store.check(["agreed"])
    store.set(f"token/{own}", token)
    keys = [f"token/{other}" for other in range(count)]
    while True:
        if own == 0 and store.check(keys):
            store.set("name", "-".join(store.get(key).decode() for key in keys))
        name = store.get("name").decode() if store.check(["name"]) else ""
        if name.split("-")[own : own + 1] == [token]:
            store.set(f"{name}/{own}", "")
            if own == 0 and store.check([f"{name}/{other}" for other in range(count)]):
                store.set("agreed", name)
            if store.check(["agreed"]) and store.get("agreed").decode() == name:
                return name, had_group
        time.sleep(POLL_S)


def stop() -> None:
    """Disconnect from the other ranks.

    Gloo's threads end with the last reference to the process group. A thread that outlives the
    interpreter may abort the process when it frees a tensor.
    """
    import torch.distributed as dist

    _group.size, _group.store, _group.restarted = 1, None, False
    if dist.is_initialized():
        dist.destroy_process_group()


def take_gpu(device: str) -> bool:
    """Select the GPU of this rank; returns whether it uses one."""
    import torch

    if wanted_size() == 1 or device == "cpu" or not torch.cuda.is_available():
        return False
    own, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if own >= count:
        raise ItemfoldError(
            f"'--nproc-per-node' must be at most the number of GPUs ({count}); use --device cpu "
            "for more processes"
        )
    if ":" in device:
        raise ItemfoldError(
            f"'device' must be cuda with several processes, since each uses its own GPU, "
            f"got '{device}'"
        )
    torch.cuda.set_device(own)
    return True


@contextmanager
def alone() -> Iterator[None]:
    """Work as the only rank within this context; the others must not wait for this one."""
    before, _group.alone = _group.alone, True
    try:
        yield
    finally:
        _group.alone = before


def work_alone() -> None:
    """Work as the only rank from now on, after the others have ended."""
    _group.alone = True


# --- columns and rows of a rank ------------------------------------------------------------------


def column_slices(width: int) -> list[slice]:
    """The columns of each rank; the ranks' widths differ by at most one."""
    count = size()
    bounds = [width * at // count for at in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def own_columns(width: int) -> slice:
    """The columns of this rank."""
    return column_slices(width)[rank() if size() > 1 else 0]


def row_slices(count: int, multiple: int = 1) -> list[slice]:
    """The rows that each rank works on; each slice starts at a multiple of ``multiple``."""
    blocks = -(-count // multiple)
    bounds = [min(blocks * at // size() * multiple, count) for at in range(size() + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def own_rows(count: int, multiple: int = 1) -> slice:
    """The rows that this rank works on."""
    return row_slices(count, multiple)[rank() if size() > 1 else 0]


# --- collective operations -----------------------------------------------------------------------


def add_up(tensor: Tensor) -> Tensor:
    """Sum a contiguous tensor over the ranks, in place; every rank gets the same result."""
    if size() > 1:
        import torch.distributed as dist

        _count(tensor, 2)
        _exchange(dist.all_reduce, tensor)
    return tensor


def add_up_rows(tensor: Tensor) -> Tensor:
    """This rank's rows of the sum of a contiguous tensor over the ranks."""
    counts = [rows.stop - rows.start for rows in row_slices(len(tensor))]
    parts = swap(tensor, counts, [counts[rank()]] * size())
    return parts.view(size(), -1, *tensor.shape[1:]).sum(0)


def swap(tensor: Tensor, given: list[int], taken: list[int]) -> Tensor:
    """Send ``given[r]`` rows of a contiguous tensor to rank r; return ``taken[r]`` rows of each."""
    import torch.distributed as dist

    out = tensor.new_empty(sum(taken), *tensor.shape[1:])
    _group.bytes += tensor[: len(tensor) - given[rank()]].nbytes
    _exchange(dist.all_to_all_single, out, tensor, taken, given)
    return out


def all_rows(own: Tensor, count: int) -> Tensor:
    """All rows of a tensor of which each rank holds its own rows."""
    out = own.new_empty(count, *own.shape[1:])
    _count(out, 1)
    for source, rows in enumerate(row_slices(count)):
        if source == rank():
            out[rows] = own
        broadcast(out[rows], source)
    return out


def _count(tensor: Tensor, times: int) -> None:
    """Count the bytes sent: one part per other rank, once, or twice for a sum on all ranks."""
    fraction = times * (size() - 1) / size()
    _group.bytes += round(fraction * tensor.numel() * tensor.element_size())


def broadcast(tensor: Tensor, source: int) -> None:
    """Overwrite a contiguous tensor with the one on rank ``source``."""
    if size() > 1:
        import torch.distributed as dist

        _exchange(dist.broadcast, tensor, source)


def largest(number: int) -> int:
    """The largest of the ranks' numbers."""
    if size() == 1:
        return number
    import torch
    import torch.distributed as dist

    held = torch.tensor(number)
    _exchange(dist.all_reduce, held, dist.ReduceOp.MAX)
    return int(held)


def from_first(compute: Callable[[], T]) -> T:
    """A value that the first rank computes while the others wait.

    The value must be serialisable as JSON: on the other ranks tuples become lists. If the first
    rank fails, the others raise `RankLost`.
    """
    if size() == 1:
        return compute()
    value: Any = None
    if is_first():
        try:
            with alone():
                value = compute()
        except BaseException:
            _broadcast_json({"failed": True}, 0)
            raise
    message = _broadcast_json({"value": value}, 0)
    if "failed" in message:
        raise RankLost("the first rank has ended")
    return value if is_first() else message["value"]  # type: ignore[no-any-return]


def gather_rows(own: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The rows of all ranks in the order of the ranks; a rank without rows may pass None."""
    if size() == 1:
        assert own is not None
        return own
    import numpy as np
    import torch

    parts = []
    for source in range(size()):
        here = source == rank() and own is not None
        header = [str(own.dtype), own.shape] if here and own is not None else None
        header = _broadcast_json(header, source)
        if header is not None:
            part = np.ascontiguousarray(own) if here else np.empty(header[1], header[0])
            if part.size:
                broadcast(torch.from_numpy(part.view(np.uint8)), source)
            parts.append(part)
    return np.concatenate(parts)


def send_to_first(tensor: Tensor) -> None:
    """Send a tensor to the first rank, which calls `receive`."""
    import torch.distributed as dist

    _exchange(dist.send, tensor.detach().cpu().contiguous(), 0)


def receive(shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
    """The tensor that rank ``source`` sends with `send_to_first`."""
    import torch
    import torch.distributed as dist

    out = torch.empty(shape, dtype=dtype)
    _exchange(dist.recv, out, source)
    return out


def _broadcast_json(value: Any, source: int) -> Any:
    """The value of rank ``source``, sent as JSON."""
    import torch

    text = json.dumps(value).encode() if rank() == source else b""
    length = torch.tensor(len(text))
    broadcast(length, source)
    held = torch.empty(int(length), dtype=torch.uint8)
    if rank() == source:
        held = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    broadcast(held, source)
    return json.loads(bytes(held.numpy()))


def _exchange(function: Callable[..., Any], *arguments: Any) -> None:
    try:
        function(*arguments)
    except RuntimeError as error:  # from gloo and NCCL when a connection is closed
        raise RankLost(read_failure() or "another rank has ended") from error


# --- failures ------------------------------------------------------------------------------------


def publish_failure(message: str) -> bool:
    """Publish why this rank ends, for the first rank to report; returns whether it was published.

    The first rank reports its own failure, and before the ranks are connected each reports its own.
    """
    if _group.store is None or is_first():
        return False
    _group.store.set(f"error/{rank()}", message)
    return True


def read_failure() -> str:
    """The failures that other ranks have published, as one sentence; empty if there are none."""
    if _group.store is None:
        return ""
    keys = [f"error/{other}" for other in range(wanted_size())]
    messages = [
        f"rank {other}: {_group.store.get(key).decode()}"
        for other, key in enumerate(keys)
        if _group.store.check([key])
    ]
    return "; ".join(messages)
