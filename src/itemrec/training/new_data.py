"""The new interactions of an update, read in the way that those of the run were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import scipy.sparse as sp

from itemrec.data.datasets import load
from itemrec.data.interactions import Interactions
from itemrec.data.item_features import ItemFeatures, read_item_features
from itemrec.data.sources import read
from itemrec.errors import ItemrecError, NoRowsError

COLUMNS = ("user", "item", "rating", "time", "skip_bad_rows")
READING = (*COLUMNS, "min_rating")  # what is kept of how a run's data was read


def read_new(before: dict[str, Any], new: Any, given: dict[str, Any]) -> Interactions | None:
    """New interactions; None if there are none.

    ``before`` says how the data of the run was read, ``given`` what is to be different. The least
    rating of the run applies if the new data has ratings.
    """
    data = new if isinstance(new, Interactions) else _read(before, new, given)
    if data is not None and data.weights is not None:
        raise ItemrecError(
            "the new data of an update cannot have weights: leave out 'weight', 'half_life' and "
            "'duplicates' (--weight-col, --half-life, --duplicates), or train anew with them"
        )
    if data is not None and data.held_out is not None:
        data = data.where(~data.held_out)  # a test part stays out
    return data if data is not None and len(data) else None


def grown_features(
    features: ItemFeatures | None, data: Interactions | None, table: Any
) -> ItemFeatures | None:
    """The features of a run with those of further items, from a table or from the new data."""
    more = None if data is None else data.features
    if table is None and more is None:
        return features
    if features is None:
        raise ItemrecError(
            "'item_features' must be left out for a run that was trained without features: "
            "train it anew with them"
        )
    if table is not None:
        return features.plus(read_item_features(table, like=features))
    assert more is not None
    if more.layout != features.layout:
        names = ", ".join(column.name for column in features.columns)
        raise ItemrecError(f"'new' must have item features of the kinds of the run ({names})")
    return features.plus(more)


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
