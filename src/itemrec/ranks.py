"""The processes of one run that ``torchrun`` has started, called ranks, and what they exchange.

Every rank executes the same program on the same data and with the same random numbers, but holds
only some columns of the embeddings. Until `start` is called, and with one process, there is one
rank, and every function does nothing. Nothing heavy is imported before several ranks start.
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

from itemrec.errors import ItemrecError

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch
    from torch import Tensor

T = TypeVar("T")
# Ranks wait while the first one works alone. A rank that dies is noticed at once, not by this.
PATIENCE = timedelta(days=1)
POLL = 0.02  # seconds between two looks at the store


class RankLost(ItemrecError):
    """Another rank has ended, so that this one cannot go on."""


@dataclass
class _Group:
    """The ranks that have found each other."""

    size: int = 1  # 1 until they have
    store: Any = None  # where a rank leaves its last words
    alone: bool = False  # whether the first one works for all at the moment
    again: bool = False  # whether ranks of this ``torchrun`` had met before
    bytes: int = 0  # sent for sums since the start


_group = _Group()


# --- who we are ----------------------------------------------------------------------------------


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ["RANK"]) if wanted_size() > 1 else 0


def is_first() -> bool:
    """Whether this process prints, shows progress and writes files."""
    return rank() == 0


def wanted_size() -> int:
    """How many processes are to work together, whether or not they have found each other."""
    if _group.alone:
        return 1
    env = os.environ
    started = "RANK" in env and "MASTER_ADDR" in env and "WORLD_SIZE" in env
    return int(env["WORLD_SIZE"]) if started else 1


def size() -> int:
    """The number of ranks that work together now; 1 within `alone`."""
    return 1 if _group.alone else _group.size


def is_restart() -> bool:
    """Whether ``torchrun --max-restarts`` has started the ranks again after one of them failed.

    It counts the failures of each machine alone; ranks that have met agree.
    """
    counted = wanted_size() > 1 and int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)) > 0
    return _group.again if size() > 1 else counted


def exchanged_bytes() -> int:
    """Bytes that this rank has sent for sums over ranks since it started."""
    return _group.bytes


def start(device: str) -> None:
    """Find the other ranks, if there are any: gloo on CPUs, NCCL for what is on GPUs."""
    if wanted_size() == 1 or _group.size > 1 or _group.alone:
        return
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if take_gpu(device) else "gloo"
    if not dist.is_initialized():
        try:
            _meet(backend)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise ItemrecError(f"the processes do not find each other: {reason}") from error
        atexit.register(stop)
    counted = is_restart()
    _group.size = dist.get_world_size()
    _group.again = bool(largest(int(_group.again or counted)))


def _meet(backend: str) -> None:
    import torch.distributed as dist
    import torch.distributed.nn  # noqa: F401 - if imported later it keeps the group: see `stop`
    from torch.distributed.rendezvous import rendezvous

    store, own, count = next(rendezvous("env://", timeout=PATIENCE))
    name, _group.again = agree(dist.PrefixStore("itemrec", store), own, count)  # type: ignore[attr-defined]
    _group.store = dist.PrefixStore(f"itemrec/{name}", store)  # type: ignore[attr-defined]
    dist.init_process_group(
        backend, store=_group.store, rank=own, world_size=count, timeout=PATIENCE
    )


def agree(store: Any, own: int, count: int) -> tuple[str, bool]:
    """A name for a meeting of so many ranks that no meeting before had, and whether one was before.

    ``torchrun`` may keep its store when it starts ranks again, with the addresses of dead ones, and
    has no number that is the same on all machines. So every rank leaves a random word, and the
    first one makes a name of all words, again and again, until all confirm one with their own.
    """
    word, is_again = secrets.token_hex(8), store.check(["met"])
    store.set(f"word/{own}", word)
    others = [f"word/{other}" for other in range(count)]
    while True:
        if own == 0 and store.check(others):
            store.set("name", "-".join(store.get(other).decode() for other in others))
        name = store.get("name").decode() if store.check(["name"]) else ""
        if name.split("-")[own : own + 1] == [word]:
            store.set(f"{name}/{own}", "")
            if own == 0 and store.check([f"{name}/{other}" for other in range(count)]):
                store.set("met", name)
            if store.check(["met"]) and store.get("met").decode() == name:
                return name, is_again
        time.sleep(POLL)


def stop() -> None:
    """Leave the other ranks.

    Gloo's threads end with the last reference to the group. One that is alive when Python ends may
    abort the process: it frees a tensor, and the lock for that is gone.
    """
    import torch.distributed as dist

    _group.size, _group.store, _group.again = 1, None, False
    if dist.is_initialized():
        dist.destroy_process_group()


def take_gpu(device: str) -> bool:
    """Use the GPU of this rank from now on; returns whether it uses one."""
    import torch

    if wanted_size() == 1 or device == "cpu" or not torch.cuda.is_available():
        return False
    own, count = int(os.environ.get("LOCAL_RANK", 0)), torch.cuda.device_count()
    if own >= count:
        raise ItemrecError(
            f"'--nproc-per-node' must be at most the number of GPUs, {count}; use --device cpu for "
            "more processes"
        )
    if ":" in device:
        raise ItemrecError(
            f"'device' must be cuda for several processes, each has its own, got '{device}'"
        )
    torch.cuda.set_device(own)
    return True


@contextmanager
def alone() -> Iterator[None]:
    """Within this context there is one rank: the others must not wait for this one."""
    before, _group.alone = _group.alone, True
    try:
        yield
    finally:
        _group.alone = before


def work_alone() -> None:
    """From now on there is one rank: the others have ended."""
    _group.alone = True


# --- what belongs to a rank ----------------------------------------------------------------------


def column_slices(width: int) -> list[slice]:
    """The columns of each rank: equal parts, or parts that differ by one column."""
    count = size()
    bounds = [width * at // count for at in range(count + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def own_columns(width: int) -> slice:
    """The columns of this rank."""
    return column_slices(width)[rank() if size() > 1 else 0]


def row_slices(count: int, multiple: int = 1) -> list[slice]:
    """The rows that each rank works on; they begin at multiples of a number."""
    blocks = -(-count // multiple)
    bounds = [min(blocks * at // size() * multiple, count) for at in range(size() + 1)]
    return [slice(a, b) for a, b in pairwise(bounds)]


def own_rows(count: int, multiple: int = 1) -> slice:
    """The rows that this rank works on."""
    return row_slices(count, multiple)[rank() if size() > 1 else 0]


# --- exchange ------------------------------------------------------------------------------------


def add_up(tensor: Tensor) -> Tensor:
    """The sum of a contiguous tensor over the ranks, in its own memory, the same on every rank."""
    if size() > 1:
        import torch.distributed as dist

        _count(tensor, 2)
        _exchange(dist.all_reduce, tensor)
    return tensor


def add_up_rows(tensor: Tensor) -> Tensor:
    """The sum of a contiguous tensor over the ranks, of which each gets its own rows."""
    counts = [rows.stop - rows.start for rows in row_slices(len(tensor))]
    parts = swap(tensor, counts, [counts[rank()]] * size())
    return parts.view(size(), -1, *tensor.shape[1:]).sum(0)


def swap(tensor: Tensor, given: list[int], taken: list[int]) -> Tensor:
    """Give so many rows of a contiguous tensor to each rank; the rows that they give, in order."""
    import torch.distributed as dist

    out = tensor.new_empty(sum(taken), *tensor.shape[1:])
    _group.bytes += tensor[: len(tensor) - given[rank()]].nbytes
    _exchange(dist.all_to_all_single, out, tensor, taken, given)
    return out


def all_rows(own: Tensor, count: int) -> Tensor:
    """The rows of all ranks, of which each has its own."""
    out = own.new_empty(count, *own.shape[1:])
    _count(out, 1)
    for source, rows in enumerate(row_slices(count)):
        if source == rank():
            out[rows] = own
        broadcast(out[rows], source)
    return out


def _count(tensor: Tensor, times: int) -> None:
    """Count what a rank sends: a part for each of the others, once or, for a sum on all, twice."""
    share = times * (size() - 1) / size()
    _group.bytes += round(share * tensor.numel() * tensor.element_size())


def broadcast(tensor: Tensor, source: int) -> None:
    """Overwrite a contiguous tensor with that of one rank."""
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
    """A value that the first rank computes alone while the others wait for it.

    It consists of what JSON can say; the others get a copy in which tuples are lists. If the first
    rank fails, the others end as well.
    """
    if size() == 1:
        return compute()
    value: Any = None
    if is_first():
        try:
            with alone():
                value = compute()
        except BaseException:
            _say({"failed": True}, 0)
            raise
    said = _say({"value": value}, 0)
    if "failed" in said:
        raise RankLost("the first rank has ended")
    return value if is_first() else said["value"]  # type: ignore[no-any-return]


def gather_rows(own: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The rows of all ranks, one rank after another; a rank without any may give None."""
    if size() == 1:
        assert own is not None
        return own
    import numpy as np
    import torch

    parts = []
    for source in range(size()):
        here = source == rank() and own is not None
        about = _say([str(own.dtype), own.shape] if here and own is not None else None, source)
        if about is not None:
            part = np.ascontiguousarray(own) if here else np.empty(about[1], about[0])
            if part.size:
                broadcast(torch.from_numpy(part.view(np.uint8)), source)
            parts.append(part)
    return np.concatenate(parts)


def send_to_first(tensor: Tensor) -> None:
    """Send a tensor to the first rank, which calls `receive`."""
    import torch.distributed as dist

    _exchange(dist.send, tensor.detach().cpu().contiguous(), 0)


def receive(shape: tuple[int, ...], dtype: torch.dtype, source: int) -> Tensor:
    """The tensor that another rank sends to the first."""
    import torch
    import torch.distributed as dist

    out = torch.empty(shape, dtype=dtype)
    _exchange(dist.recv, out, source)
    return out


def _say(value: Any, source: int) -> Any:
    """What one rank says, as JSON."""
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
    except RuntimeError as error:  # what gloo and NCCL raise if a connection has ended
        raise RankLost(last_words() or "another rank has ended") from error


# --- errors --------------------------------------------------------------------------------------


def leave_word(sentence: str) -> bool:
    """Before a rank ends with an error: let the first one know why; returns whether it will.

    The first one speaks for itself, and before the ranks have met it cannot be told.
    """
    if _group.store is None or is_first():
        return False
    _group.store.set(f"error/{rank()}", sentence)
    return True


def last_words() -> str:
    """Why other ranks have ended, as the first one tells the user; empty if nothing is known."""
    if _group.store is None:
        return ""
    names = [f"error/{other}" for other in range(wanted_size())]
    said = [
        f"rank {other}: {_group.store.get(name).decode()}"
        for other, name in enumerate(names)
        if _group.store.check([name])
    ]
    return "; ".join(said)
