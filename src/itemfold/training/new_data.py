"""Reading of the new data of an update, with the settings of the run's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import scipy.sparse as sp

from itemfold.data.datasets import load
from itemfold.data.feedback.reading import is_feedback
from itemfold.data.interactions import Interactions
from itemfold.data.items.item_features import ItemFeatures, read_item_features
from itemfold.data.sources import read
from itemfold.data.splitting.user_parts import is_hidden
from itemfold.errors import ItemfoldError, NoRowsError

COLUMNS = ("user", "item", "rating", "time", "header", "skip_bad_rows")
READING = (*COLUMNS, "min_rating")  # settings that an updated run keeps


def read_new(before: dict[str, Any], new: Any, given: dict[str, Any]) -> Interactions | None:
    """The new interactions, or None if there are none.

    ``before`` are the settings that the run's data was read with, ``given`` override them. The
    run's ``min_rating`` applies if the new data has ratings.
    """
    data = new if isinstance(new, Interactions) else _read(before, new, given)
    if data is not None and data.weights is not None:
        raise ItemfoldError(
            "'update' does not support weights: remove 'weight', 'half_life' and 'duplicates' "
            "(--weight-col, --half-life, --duplicates), or train a new run with them"
        )
    if data is not None and data.held_out is not None:
        data = data.where(~data.held_out)  # without its test part
    if data is not None and data.user_parts is not None:
        data = data.where(~is_hidden(data.user_parts))
    return data if data is not None and len(data) else None


def grown_features(
    features: ItemFeatures | None, data: Interactions | None, table: Any
) -> ItemFeatures | None:
    """The features of a run extended by those of a table or of the new data."""
    more = None if data is None else data.features
    if table is None and more is None:
        return features
    if features is None:
        raise ItemfoldError(
            "'item_features' cannot be added to a run that was trained without features: "
            "train a new run with them"
        )
    if table is not None:
        return features.plus(read_item_features(table, like=features))
    assert more is not None
    if more.layout != features.layout:
        names = ", ".join(column.name for column in features.columns)
        raise ItemfoldError(f"'new' must have the same item features as the run ({names})")
    return features.plus(more)


def _read(before: dict[str, Any], new: Any, given: dict[str, Any]) -> Interactions | None:
    given = {key: value for key, value in given.items() if value is not None}
    min_rating = given.pop("min_rating", None)
    names = {key: before[key] for key in COLUMNS if key in before} if _has_columns(new) else {}
    try:
        data = (load if isinstance(new, str | Path) else read)(new, **{**names, **given})
    except NoRowsError:
        return None
    if min_rating is not None:
        return data.at_least(min_rating)
    min_rating = before.get("min_rating")
    if min_rating is None or data.ratings is None:
        return data
    return data.where(data.ratings >= min_rating)


def _has_columns(new: Any) -> bool:
    """Whether a source is a table, to which the run's column names apply."""
    if isinstance(new, str | Path):
        path = Path(new).expanduser()
        return path.is_file() and not is_feedback(path)
    return not sp.issparse(new)
