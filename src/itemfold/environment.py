"""Devices, their memory and precision, and optional packages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    import torch

UNSUPPORTED = {
    "mps": "Apple's mps has no 64-bit numbers, which training needs",
    "xpu": "Intel's xpu has no kernels for sparse products here",
}


def pick_device(name: str) -> torch.device:
    """Return the device of this name; ``auto`` is the GPU if there is one."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = str(name).partition(":")[0]
    if kind in UNSUPPORTED:
        raise ItemfoldError(f"'device' must be cpu, cuda or auto: {UNSUPPORTED[kind]}; use cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ItemfoldError("'device' is cuda, but torch sees no GPU here; use cpu or auto")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ItemfoldError(f"'device' must be cpu, cuda or auto, got {name!r}")
    return device


def memory_of(device: torch.device) -> int:
    """Total memory of a GPU, or of the machine, in bytes."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if not hasattr(os, "sysconf"):  # Windows does not report it
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@contextmanager
def tensor_cores(on: bool) -> Iterator[None]:
    """Let a GPU multiply dense matrices as TF32 (ten-bit mantissa) within this context.

    This is precise enough for gradients and several times faster; scores are always float32.
    """
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def square_has_room(n_items: int, device: torch.device) -> bool:
    """Whether an items × items matrix takes at most half of the device's memory."""
    return 8 * n_items**2 <= memory_of(device)


def check_square_fits(name: str, n_items: int, device: torch.device) -> None:
    """Raise an error if an items × items matrix exceeds the memory of the device."""
    needed, available = 4 * n_items**2, memory_of(device)
    if needed > available:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemfoldError(
            f"'{name}' needs an items × items matrix: {n_items:,} items take "
            f"{needed / 2**30:,.0f} GiB; {where} has {available / 2**30:,.0f} GiB; "
            "choose form=sparse or reduce the data with --k-core"
        )


def out_of_memory(error: Exception) -> str:
    """The message for an out-of-memory error, an empty string for any other error.

    >>> out_of_memory(RuntimeError("can't allocate memory: you tried to allocate 5368709120 bytes"))
    'out of memory: cannot allocate 5.0 GiB; choose a smaller --dim or --batch, or another --model'
    """
    text = str(error)
    is_memory_error = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if not is_memory_error and "can't allocate memory" not in text:
        return ""
    sentence = "out of memory"
    if request := re.search(r"allocate ([0-9.]+) (bytes|[KMGTP]iB)", text):
        size, unit = request[1].rstrip("."), request[2]
        amount = _bytes_text(int(size)) if unit == "bytes" else f"{size} {unit}"
        sentence += f": cannot allocate {amount}"
    return f"{sentence}; choose a smaller --dim or --batch, or another --model"


def _bytes_text(size: int) -> str:
    """An amount of memory in the largest unit of which it is at least one.

    >>> _bytes_text(5 * 2**30), _bytes_text(3_000_000), _bytes_text(80)
    ('5.0 GiB', '2.9 MiB', '80 bytes')
    """
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size / 2**power:,.1f} {unit}"
    return f"{size} bytes"


# --- optional packages ---------------------------------------------------------------------------

EXTRAS = {"serve": ("fastapi", "uvicorn", "prometheus-client"), "tune": ("optuna",)}

WHEELS = {  # where the names differ
    "faiss": "faiss-cpu",
    "mlflow": "mlflow-skinny",
    "opentelemetry.exporter.otlp": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "psycopg": "'psycopg[binary]'",
}


def need_extra(extra: str) -> None:
    """Raise an error if a package of the extra is not installed."""
    need_packages(f"itemfold {extra}", [name.replace("-", "_") for name in EXTRAS[extra]])


def need_packages(what: str, modules: Sequence[str]) -> None:
    """Raise an error if a module that a command or an option needs is not installed."""
    absent = [name for name in modules if not _is_installed(name)]
    if absent:
        absent = [WHEELS.get(name, name.replace("_", "-")) for name in absent]
        listed = " and ".join(absent)
        raise ItemfoldError(f"'{what}' needs {listed}: pip install {' '.join(absent)}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False
