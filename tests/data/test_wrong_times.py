"""Wrong times and mixed-up files: one sentence each, and no fall-back without one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import make_split

N = 600
RNG = np.random.default_rng(0)
TIMES = np.sort(RNG.integers(1_500_000_000, 1_560_000_000, N))
ROWS = pl.DataFrame({"user": RNG.integers(0, 40, N), "item": RNG.integers(0, 30, N), "time": TIMES})
DAYS = [dt.datetime.fromtimestamp(int(moment), dt.UTC) for moment in TIMES]
FIRST, LATER = ROWS[:480], ROWS[480:]

# (times, strategy or None for an error, what is said)
COLUMNS: dict[str, tuple[Any, str | None, str]] = {
    "two units": (
        np.where(np.arange(N) % 7, TIMES, TIMES * 1000),
        None,
        "one unit, got 514 in seconds and 86 in milliseconds; convert all to seconds",
    ),
    "one value in milliseconds": (
        np.where(np.arange(N) == 9, TIMES * 1000, TIMES),
        None,
        "one unit, got 599 in seconds and 1 in milliseconds",
    ),
    "equal": (np.full(N, 1_500_000_000), "interactions", "random: all times are equal."),
    "two values": (
        np.where(np.arange(N) > 300, TIMES[-1], TIMES[0]),
        "interactions",
        "random: there are too few different times, so the training part would be empty.",
    ),
    "future": (
        np.where(np.arange(N) > 590, 4_000_000_000, TIMES),
        "time",
        "Interactions with a time in the future: 9, the latest 2096-10-02.",
    ),
    "year 9999": (
        np.where(np.arange(N) > 597, 253_402_300_799, TIMES),
        "time",
        "Interactions with a time in the future: 2, the latest 9999-12-31.",
    ),
    "negative": (
        np.where(np.arange(N) % 3, TIMES, -TIMES),
        "time",
        "Times of 0 or before: 200 of 600; they count as the earliest.",
    ),
    "zero": (np.where(np.arange(N) % 3, TIMES, 0), "time", "Times of 0 or before: 200 of 600"),
    "words": (
        ["yesterday"] * N,
        "interactions",
        "The split is random, because the time column was left out.",
    ),
    "a word among numbers": (
        ["unknown" if n == 5 else str(moment) for n, moment in enumerate(TIMES)],
        "interactions",
        "the time must be seconds or a date like 2024-01-31, got 'unknown'",
    ),
    "a missing value": (
        [None if n == 5 else int(moment) for n, moment in enumerate(TIMES)],
        "interactions",
        "The split is random, because the time column was left out.",
    ),
    "infinite": (
        [float("inf") if n == 5 else float(moment) for n, moment in enumerate(TIMES)],
        "interactions",
        "line 7: the time is missing or not finite; leave such rows out with skip_bad_rows=True",
    ),
    "names of time zones": (
        [f"{day:%Y-%m-%d %H:%M} {'EST' if n % 2 else 'CET'}" for n, day in enumerate(DAYS)],
        "interactions",
        "line 2: the time must be seconds or a date like 2024-01-31",
    ),
    "day or month": (
        [f"{day:%m}/{day.day % 12 + 1:02}/{day:%Y}" for day in DAYS],
        "interactions",
        "the times could be day/month or month/day",
    ),
    "always infinite": (
        [float("inf")] * N,
        "interactions",
        "line 2: the time is missing or not finite.",  # leaving rows out is no help
    ),
    "days as numbers": (
        [f"{day:%Y%m%d}" for day in DAYS],
        "time",
        "train before 20181102, validation until 2019",
    ),
    "most on one day": (
        np.where(np.arange(N) % 10, 1_530_000_000 + np.arange(N), TIMES),
        "time",
        "train before 2018-06-26 08:06, validation until 2018-06-26 08:08, test after",
    ),
    "years": (
        [day.year for day in DAYS],
        "time",
        "Times such as 2017 are not seconds; only their order is used.",
    ),
}
FILES: dict[str, tuple[dict[str, pl.DataFrame], str | None, str]] = {
    "test before train": (
        {"train": ROWS[120:], "test": ROWS[:120]},
        "interactions",
        "The given test part is older than the training part: 100% of it before 2018-10-23",
    ),
    "test within train": (
        {"train": ROWS, "test": FIRST},
        None,
        "every test interaction of 'x' is a training interaction, too",
    ),
    "test of other users": (
        {"train": FIRST, "test": LATER.with_columns(pl.col("user") + 100)},
        None,
        "no test user of 'x' has a training interaction",
    ),
    "files of two units": (
        {"train": FIRST.with_columns(pl.col("time") * 1000), "test": LATER},
        None,
        "one unit, got 120 in seconds and 480 in milliseconds",
    ),
    "one file without times": (
        {"train": FIRST.drop("time"), "test": LATER},
        "interactions",
        "train.csv has no time column.",
    ),
    "an empty test file": (
        {"train": FIRST, "test": LATER[:0]},
        None,
        "test.csv: the file has a header but no rows",
    ),
}


def check(read: Callable[[], ir.Interactions], strategy: str | None, message: str) -> None:
    """Whether an error, or a note of the split, says it in one line."""
    if strategy is None:
        with pytest.raises(ItemfoldError) as caught:
            make_split({}, read())
        said: tuple[str, ...] = (str(caught.value),)
    else:
        split = make_split({}, read())
        assert split.settings["strategy"] == strategy
        said = split.notes
    found = [text for text in said if message in text]
    assert len(found) == 1, said
    assert "\n" not in found[0]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_wrong_time_column_is_one_sentence(name: str, tmp_path: Path) -> None:
    times, strategy, message = COLUMNS[name]
    path = tmp_path / "x.csv"
    ROWS.with_columns(time=pl.Series(times, strict=False)).write_csv(path)
    check(lambda: ir.read(path), strategy, message)


@pytest.mark.parametrize("name", FILES)
def test_mixed_up_files_are_one_sentence(name: str, tmp_path: Path) -> None:
    files, strategy, message = FILES[name]
    folder = tmp_path / "x"
    folder.mkdir()
    for part, frame in files.items():
        frame.write_csv(folder / f"{part}.csv")
    check(lambda: ir.read(folder), strategy, message)


def test_offsets_of_time_zones_are_taken_off(tmp_path: Path) -> None:
    zones = [dt.timezone(dt.timedelta(hours=n % 5 - 2)) for n in range(N)]
    own = [day.astimezone(zone).isoformat() for day, zone in zip(DAYS, zones, strict=True)]
    ROWS.with_columns(time=pl.Series(own)).write_csv(tmp_path / "x.csv")
    ROWS.write_csv(tmp_path / "y.csv")
    found, expected = ir.read(tmp_path / "x.csv"), ir.read(tmp_path / "y.csv")
    assert found.times is not None
    assert found.times.tolist() == expected.times.tolist()
    assert make_split({}, found).settings["strategy"] == "time"
