"""Devices by name."""

from __future__ import annotations

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
