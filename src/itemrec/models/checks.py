"""Rules that settings obey, each refused with the name, the rule and the value."""

from __future__ import annotations

import torch

from itemrec.devices import memory_of
from itemrec.errors import ItemrecError


def positive_integers(**values: int) -> None:
    """Refuse what is below 1.

    >>> positive_integers(dim=0)
    Traceback (most recent call last):
    itemrec.errors.ItemrecError: 'dim' must be a positive integer, got 0
    """
    for name, value in values.items():
        if value < 1:
            raise ItemrecError(f"'{name}' must be a positive integer, got {value}")


def positive(**values: float) -> None:
    """Refuse what is not above 0."""
    for name, value in values.items():
        if not value > 0:
            raise ItemrecError(f"'{name}' must be positive, got {value}")


def at_least_zero(**values: float) -> None:
    """Refuse what is below 0."""
    for name, value in values.items():
        if not value >= 0:
            raise ItemrecError(f"'{name}' must be at least 0, got {value}")


def share_below_one(**values: float) -> None:
    """Refuse what is not in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ItemrecError(f"'{name}' must be at least 0 and below 1, got {value}")


def room_for_square(name: str, n_items: int, device: torch.device) -> None:
    """Refuse an items × items matrix that the device could never hold, before it is asked for."""
    needed, there = 4 * n_items**2, memory_of(device)
    if needed > there:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemrecError(
            f"'{name}' needs an items × items matrix: {n_items:,} items take "
            f"{needed / 2**30:,.0f} GiB; {where} has {there / 2**30:,.0f} GiB; "
            "choose lightgcn or thin the data with --k-core"
        )
