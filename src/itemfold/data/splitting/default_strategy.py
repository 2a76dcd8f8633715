"""The split strategy that data gets unless one is chosen."""

from __future__ import annotations

from itemfold.data.datasets import is_named
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import Protocol
from itemfold.data.splitting.time_splits import time_problem


def default_strategy(
    data: Interactions,
    protocol: Protocol = "transductive",
    *,
    valid: float = 0.25,
    test: float = 0.2,
) -> str:
    """The default split strategy of data.

    Data with usable times is split by time, which is closest to production. Data sets known by name
    and data with its own test part are split at random, as for published figures.

    Args:
        data: Interactions, as returned by `load` or `read`.
        protocol: "transductive" or "inductive".
        valid: Fraction of the interactions for validation.
        test: Fraction of the interactions for test.

    Returns:
        A name in `SPLITS`: "users", "time" or "interactions".

    Examples:
        >>> import itemfold as ir
        >>> default_strategy(ir.load("synthetic:users=60,items=80,interactions=900"))
        'interactions'
    """
    if protocol == "inductive" or data.user_parts is not None:
        return "users"
    is_timed = prefers_time(data) and not time_problem(data, valid, test)
    return "time" if is_timed else "interactions"


def prefers_time(data: Interactions) -> bool:
    """Whether data is split by time if its times are usable."""
    return data.times is not None and data.held_out is None and not is_named(data)
