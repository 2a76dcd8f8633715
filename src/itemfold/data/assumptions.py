"""Sentences that report the assumptions made when data was read."""

from __future__ import annotations

from dataclasses import replace
from shlex import quote

import numpy as np

from itemfold.data.columns.values import MISSING
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.split import Split

MOST = 5  # sentences
ABOUT_TIMES = ("Split by time", "The times are not used")  # what notes of a split begin with
LIKED = 0.6  # of the highest rating: the lowest rating that is rather a like


def reading_assumptions(data: Interactions) -> list[str]:
    """Sentences on the chosen columns and on what counts as a like.

    >>> import polars as pl
    >>> import itemfold as ir
    >>> rows = {"customer": [1, 1, 2], "product": ["x", "y", "x"], "stars": [5, 1, 3]}
    >>> for line in reading_assumptions(ir.read(pl.DataFrame(rows))):
    ...     print(line)
    columns: --user-col customer --item-col product --rating-col stars
    Every rating counts as a like, also the 33 % below 3: try --min-rating 3.
    """
    return [line for line in (_columns(data), _likes(data)) if line]


def assumptions(data: Interactions, split: Split) -> tuple[str, ...]:
    """At most five sentences: columns, likes, repeats, the test part, and skipped rows."""
    lines = [*reading_assumptions(data), _repeats(data), _test_part(data, split)]
    return tuple(line for line in (*lines, " ".join((*id_notes(data), *data.notes))) if line)[:MOST]


def id_notes(data: Interactions) -> list[str]:
    """Notes on text ids that look like missing values.

    >>> import polars as pl
    >>> import itemfold as ir
    >>> id_notes(ir.read(pl.DataFrame({"user": ["ann", "bob"], "item": ["NULL", "x"]})))
    ["'NULL' counts as an item, with 1 interaction; remove such rows if it means missing."]
    """
    notes = []
    for role, ids, rows in (
        ("a user", data.user_ids.ids, data.users), ("an item", data.item_ids.ids, data.items)
    ):  # fmt: skip
        if ids.dtype.kind == "i":
            continue
        for row in (n for n, text in enumerate(ids.tolist()) if text.lower() in MISSING):
            count = int((rows == row).sum())
            notes.append(
                f"{str(ids[row])!r} counts as {role}, with {count:,} "
                f"interaction{'s' if count != 1 else ''}; remove such rows if it means missing."
            )
    return notes


def _columns(data: Interactions) -> str:
    """The options that name the columns, unless all were named."""
    if data.layout is None:
        return ""
    used = {role: c for role, c in data.layout.columns.items() if role not in data.left_out}
    if all(role in data.source for role in used):
        return ""
    return f"columns: {replace(data.layout, columns=used).options}"


def _likes(data: Interactions) -> str:
    """A sentence on what counts as a like, and on alternatives."""
    threshold = data.source.get("min_rating")
    if threshold is not None:
        return f"Ratings of at least {threshold:g} count as likes."
    if data.ratings is None or data.ratings.min() == data.ratings.max():
        if data.layout is None:
            return ""
        text = "Every row counts as a like"
        if data.layout.events:
            column = "" if data.layout.header else "column "
            text += f", whatever {column}{data.layout.events[0]} says"
    else:
        least = like_threshold(data)
        share = f"{100 * float((data.ratings < least).mean()):.0f} % below {least:g}"
        text = f"Every rating counts as a like, also the {share}: try --min-rating {least:g}"
    return f"{'; '.join((text, *_hints(data)))}."


def _hints(data: Interactions) -> list[str]:
    """What to try with columns that are not used."""
    if data.layout is None:
        return []
    hints = []
    if flags := data.layout.flags:
        option = f"--rating-col {quote(flags[0])} --min-rating 1"
        hints.append(f"{' or '.join(flags[:MOST])} may say which rows are likes: try {option}")
    if data.layout.weights and data.weights is None:
        weight = data.layout.weights[0]
        hints.append(f"{weight} looks like a weight: try --weight-col {quote(weight)}")
    return hints


def like_threshold(data: Interactions) -> float:
    """The lowest rating that indicates a like: 3 of 5, 6 of 10, or above 0.

    >>> import polars as pl
    >>> import itemfold as ir
    >>> like_threshold(ir.read(pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [1, 10]})))
    10.0
    """
    assert data.ratings is not None
    values = np.unique(data.ratings)
    highest = float(values[-1])
    wanted = LIKED * highest if values[0] >= -1 else 0.0  # -1 is often "no rating"
    above = values[values >= wanted - 1e-6] if wanted > 0 else values[values > 0]
    return float(above[0]) if len(above) else highest


def _repeats(data: Interactions) -> str:
    if not data.duplicates:
        return ""
    summed = data.source.get("duplicates") == "sum"
    how = "their weights were added up" if summed else "--duplicates sum counts them as weights"
    one = data.duplicates == 1
    return (
        f"{data.duplicates:,} row{' repeats' if one else 's repeat'} a user and an item and "
        f"{'was' if one else 'were'} merged; {how}."
    )


def _test_part(data: Interactions, split: Split) -> str:
    """A sentence on the use of times and the source of the test part."""
    if note := next((note for note in split.notes if note.startswith(ABOUT_TIMES)), ""):
        return note
    strategy = split.settings.get("strategy")
    if strategy == "all" or not len(split.test):
        return ""
    if split.settings.get("test") == "given":
        return f"The test part is that of the data, {data.n_held_out:,} interactions."
    times = no_times(data) or "times are not used"
    if strategy == "interactions":
        return f"A random {split.settings['test']:.0%} of each user's items is held out: {times}."
    return ""


def no_times(data: Interactions) -> str:
    """Why there are no times, or an empty string.

    >>> import polars as pl
    >>> import itemfold as ir
    >>> rows = {"user": [1], "item": [2], "made_at": ["2024-01-31"], "sent_at": ["2024-02-01"]}
    >>> no_times(ir.read(pl.DataFrame(rows)))
    'made_at or sent_at could be the times, name one with --time-col'
    """
    if data.times is not None:
        return ""
    if "time" in data.left_out:
        return "the time column was left out"
    if data.layout is not None and data.layout.times:
        either = " or ".join(data.layout.times)
        return f"{either} could be the times, name one with --time-col"
    return "there are no times"
