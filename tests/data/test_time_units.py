"""Times in milliseconds, microseconds or nanoseconds become seconds; the oracle is a division."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.columns.time_units import CALENDAR, in_seconds
from itemfold.errors import ItemfoldError

FACTORS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@given(
    st.lists(st.integers(700_000_000, 1_700_000_000), min_size=1, max_size=20),
    st.sampled_from(sorted(FACTORS)),
)
def test_every_unit_is_recognised(seconds: list[int], unit: str) -> None:
    column = np.array(seconds, dtype=np.float64) * FACTORS[unit]
    found, notes = in_seconds(column, "x")
    np.testing.assert_allclose(found, seconds, rtol=1e-12)
    told = () if unit == "seconds" else (f"Times are in {unit}: divided by {FACTORS[unit]:,}.",)
    assert notes == told


@given(st.lists(st.integers(-(10**6), 3 * 10**8), min_size=1, max_size=20))
def test_relative_times_stay_as_they_are(values: list[int]) -> None:
    column = np.array(values, dtype=np.float64)
    assume(not any(low <= min(values) and max(values) <= high for low, high in CALENDAR))
    found, notes = in_seconds(column, "x")
    assert found.tolist() == values
    told = "All times lie before 1980; they are taken as seconds."
    assert notes == ((told,) if len(set(values)) > 1 else ())


@pytest.mark.parametrize("values", [[19_000_101, 21_001_231], [1999, 2024]])
def test_dates_written_as_numbers_keep_their_order_and_are_reported(values: list[int]) -> None:
    found, notes = in_seconds(np.array(values, dtype=np.float64), "x")
    assert found.tolist() == values
    assert notes == (f"Times such as {values[0]} are not seconds; only their order is used.",)


def frame(times: list[Any]) -> pl.DataFrame:
    n = len(times)
    return pl.DataFrame({"user": np.arange(n) % 3, "item": np.arange(n) // 3, "timestamp": times})


def test_mixed_units_are_an_error_that_names_both(tmp_path: Path) -> None:
    mixed = [1_500_000_000] * 4 + [1_500_000_000_000] * 5
    text = "the times must have one unit, got 4 in seconds and 5 in milliseconds"
    with pytest.raises(ItemfoldError, match=text):
        ir.read(frame(mixed))
    frame(mixed).write_csv(tmp_path / "mixed.csv")
    with pytest.raises(ItemfoldError, match=text):
        ir.read(tmp_path / "mixed.csv")
    with pytest.raises(ItemfoldError, match=text):
        ir.prepare(tmp_path / "mixed.csv", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_times_in_the_future_are_counted() -> None:
    now = int(time.time())
    data = ir.read(frame([now - 5, now, now + 3600, 4_000_000_000, 4_000_000_001, now - 9]))
    assert data.notes == ("Interactions with a time in the future: 2, the latest 2096-10-02.",)
    assert ir.split_interactions(data).notes[0] == data.notes[0]


@pytest.mark.parametrize("missing", [0, -1])
def test_missing_times_among_dates_are_counted_also_in_a_prepared_folder(
    missing: int, tmp_path: Path
) -> None:
    rows = frame([1_500_000_000 + n if n % 3 else missing for n in range(9)])
    told = "Times of 0 or before: 3 of 9; they count as the earliest. Remove these rows if that "
    assert ir.read(rows).notes == (f"{told}means missing.",)
    rows.write_csv(tmp_path / "x.csv")
    ir.prepare(tmp_path / "x.csv", tmp_path / "out")
    assert ir.read(tmp_path / "out").notes == (f"{told}means missing.",)


def test_a_half_life_is_the_same_in_every_unit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seconds = rng.integers(1_400_000_000, 1_500_000_000, 60)
    plain = ir.read(frame(seconds.tolist()), half_life="90d")
    milli = ir.read(frame((seconds * 1000).tolist()), half_life="90d")
    assert plain.weights is not None
    np.testing.assert_allclose(milli.weights, plain.weights, rtol=1e-9)
    frame((seconds * 1000).tolist()).write_csv(tmp_path / "milli.csv")
    ir.prepare(tmp_path / "milli.csv", tmp_path / "out", half_life="90d")
    prepared = ir.load(tmp_path / "out")
    np.testing.assert_allclose(prepared.weights, plain.weights, rtol=1e-9)
    np.testing.assert_allclose(prepared.times, plain.times)
    assert prepared.notes == ("Times are in milliseconds: divided by 1,000.",)
