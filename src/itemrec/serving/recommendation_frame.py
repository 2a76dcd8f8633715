"""Recommendations as a pandas or polars frame, of the kind that the user works with."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError
from itemrec.serving.recommendation_table import RecommendationTable
from itemrec.validation import one_of

FRAMES = ("polars", "pandas")


def kind_of_frame(thing: Any) -> str | None:
    """ "pandas" or "polars" for a frame or a column of that library, else None."""
    module = type(thing).__module__.split(".")[0]
    return module if module in FRAMES else None


def check_frames(frames: str | None) -> str:
    """The library of frames: the wanted one, else one that is installed."""
    if frames is None:
        frames = next((name for name in FRAMES if find_spec(name)), FRAMES[0])
    one_of("frames", frames, FRAMES)
    if find_spec(frames) is None:
        raise ItemrecError(f"'frames' is {frames}, which is not installed: pip install {frames}")
    return frames


def frame_of(
    table: RecommendationTable, titles: npt.NDArray[Any] | None, frames: str | None
) -> Any:
    """One row per recommendation: user_id, item_id, title if there are titles, rank, score."""
    columns = table.columns()
    if titles is not None:
        shown = titles[table.rows[table.rows >= 0]]
        columns = {
            **{name: columns[name] for name in ("user_id", "item_id")},
            "title": np.array([str(text) for text in shown], dtype=object),
            **{name: columns[name] for name in ("rank", "score")},
        }
    if check_frames(frames) == "pandas":
        import pandas as pd

        return pd.DataFrame(columns)
    import polars as pl

    return pl.DataFrame(columns)
