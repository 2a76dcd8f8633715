"""Devices by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from itemrec.errors import ItemrecError


def pick_device(name: str) -> torch.device:
    """``auto`` means the GPU where there is one."""
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
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
