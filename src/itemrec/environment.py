"""The machine: devices by name, memory, precision, and packages that only some parts need."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from itemrec.errors import ItemrecError

if TYPE_CHECKING:
    import torch


def pick_device(name: str) -> torch.device:
    """``auto`` means the GPU where there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ItemrecError("'device' is cuda, but torch sees no GPU here; use cpu or auto")
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise ItemrecError(f"'device' must be cpu, cuda or auto, got {name!r}") from error


def memory_of(device: torch.device) -> int:
    """Bytes that a GPU, or the machine, has in all."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):  # Windows does not say
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def tensor_cores(on: bool) -> Iterator[None]:
    """Within this context a GPU multiplies dense matrices with ten bits of mantissa (TF32).

    That is plenty for a gradient and several times as fast; scores are ranked in full precision.
    """
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def check_square_fits(name: str, n_items: int, device: torch.device) -> None:
    """Refuse an items × items matrix that the device could never hold, before it is asked for."""
    needed, there = 4 * n_items**2, memory_of(device)
    if needed > there:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemrecError(
            f"'{name}' needs an items × items matrix: {n_items:,} items take "
            f"{needed / 2**30:,.0f} GiB; {where} has {there / 2**30:,.0f} GiB; "
            "choose lightgcn or thin the data with --k-core"
        )


def out_of_memory(error: Exception) -> str:
    """A sentence if memory was what was missing, nothing for any other error.

    >>> out_of_memory(RuntimeError("can't allocate memory: you tried to allocate 5368709120 bytes"))
    'out of memory: 5.0 GiB were asked for; choose a smaller --dim or --batch, or another --model'
    """
    text = str(error)
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if not named and "can't allocate memory" not in text:
        return ""
    sentence = "out of memory"
    if asked := re.search(r"allocate ([0-9.]+) (bytes|[KMGTP]iB)", text):
        size, unit = asked[1].rstrip("."), asked[2]
        many = f"{int(size) / 2**30:,.1f} GiB" if unit == "bytes" else f"{size} {unit}"
        sentence += f": {many} were asked for"
    return f"{sentence}; choose a smaller --dim or --batch, or another --model"


# --- packages that only some parts need ----------------------------------------------------------

EXTRAS = {"serve": ("fastapi", "uvicorn", "prometheus-client"), "tune": ("optuna",)}


def missing_packages(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [name for name in EXTRAS[extra] if find_spec(name.replace("-", "_")) is None]


def need_extra(extra: str) -> None:
    """Refuse to go on without them."""
    if absent := missing_packages(extra):
        raise ItemrecError(
            f"'itemrec {extra}' needs {' and '.join(absent)}: pip install {' '.join(absent)}"
        )
