"""The new interactions of an update, read in the way that those of the run were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import scipy.sparse as sp

from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.sources import read
from itemrec.errors import NoRowsError

COLUMNS = ("user", "item", "rating", "time", "skip_bad_rows")
READING = (*COLUMNS, "min_rating")  # what is kept of how a run's data was read


def read_new(before: dict[str, Any], new: Any, given: dict[str, Any]) -> Interactions | None:
    """New interactions; None if there are none.

    ``before`` says how the data of the run was read, ``given`` what is to be different. The least
    rating of the run applies if the new data has ratings.
    """
    data = new if isinstance(new, Interactions) else _read(before, new, given)
    if data is not None and data.held_out is not None:
        data = data.where(~data.held_out)  # a test part stays out
    return data if data is not None and len(data) else None


def _read(before: dict[str, Any], new: Any, given: dict[str, Any]) -> Interactions | None:
    given = {key: value for key, value in given.items() if value is not None}
    least = given.pop("min_rating", None)
    names = {key: before[key] for key in COLUMNS if key in before} if _has_columns(new) else {}
    try:
        data = (load if isinstance(new, str | Path) else read)(new, **{**names, **given})
    except NoRowsError:
        return None
    if least is not None:
        return data.at_least(least)
    least = before.get("min_rating")
    if least is None or data.ratings is None:
        return data
    return data.where(data.ratings >= least)


def _has_columns(new: Any) -> bool:
    """Whether a source is a table, whose columns may have the names of the run's."""
    if isinstance(new, str | Path):
        return Path(new).expanduser().is_file() and not str(new).endswith(".jsonl")
    return not sp.issparse(new)
