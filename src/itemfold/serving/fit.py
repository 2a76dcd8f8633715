"""`fit`: train a recommender on a table of interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from itemfold.data.datasets import load
from itemfold.data.interactions import Interactions
from itemfold.data.sources import read
from itemfold.data.splitting.splitters import keep_all
from itemfold.errors import ItemfoldError
from itemfold.models.base import Kind, Model
from itemfold.serving.recommendation_table import kind_of_frame
from itemfold.serving.recommender import Recommender
from itemfold.training.fit import train

VALID = 0.1  # fraction of the interactions on which settings are chosen


def fit(
    data: Any,
    model: Model | None = None,
    *,
    out: str | Path | None = None,
    progress: bool = True,
    budget: float | None = None,
    seed: int = 0,
    repeats: bool = False,
    **reading: Any,
) -> Recommender:
    """Train the default model on all data and return a recommender.

    Settings are chosen on the latest tenth of the interactions, or on a tenth of each user's if
    there are no times; then the model is trained again on all of them. There is no test part: to
    measure a model, use `train` with a split and `evaluate`.

    Args:
        data: A pandas, polars or Arrow table, a DuckDB relation, a path, the name of a data set, a
            sparse matrix, or what `load` and `read` return.
        model: A model, such as `ir.models.EASE()`; default: `ir.models.Hybrid()`.
        out: Folder to save the run to, for `Recommender.load`.
        progress: Show a progress bar.
        budget: Time limit of training in seconds; default: no limit.
        seed: Seed of the validation part and of training.
        repeats: People come back, as in check-ins and plays: lists keep what a user has seen.
        **reading: Arguments of `read` and `load`, such as `user`, `item` and `min_rating`.

    Returns:
        A recommender; its `run` has the settings and the metrics on the validation part.

    Raises:
        ItemfoldError: The data cannot be read, no user has two interactions, a setting is invalid,
            or `out` holds another run.

    Examples:
        >>> import polars as pl
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> plays = pl.DataFrame({"user_id": data.users, "item_id": data.items})
        >>> recommender = ir.fit(plays, progress=False, budget=2)
        >>> len(recommender.recommend(7, k=5)), recommender.interactions.nnz
        (5, 900)
    """
    if not isinstance(data, Interactions):
        interactions = (load if isinstance(data, str | Path) else read)(data, **reading)
    elif reading:
        raise ItemfoldError(
            f"'{next(iter(reading))}' has no effect on 'data' that is already read; give it to "
            "'read' or 'load'"
        )
    else:
        interactions = data
    folds_in = model is None or model.inductive
    how: Literal["time", "random"] | None = None if folds_in else "random"  # users may be new
    how = "time" if repeats else how
    try:
        split = keep_all(interactions, seed=seed, valid=VALID, valid_by=how, repeats=repeats)
    except ItemfoldError:
        if model is None or model.kind is not Kind.CLOSED_FORM:
            raise
        # without validation: typical values for the settings left open
        split = keep_all(interactions, seed=seed, repeats=repeats)
    run = train(split, model, out=out, progress=progress, seed=seed, budget=budget)
    return Recommender(run, frames=kind_of_frame(data))
