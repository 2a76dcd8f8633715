"""The description agrees with a naive loop and warns of unusual properties."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.data.describe import degree_statistics, describe
from itemfold.data.named.synthetic import synthetic
from itemfold.data.sources import read


def frame(rows: list, columns=("user", "item", "rating", "time")) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns)[: len(rows[0])])


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60))
def test_histogram_counts_everyone_once_in_the_right_bin(counts: list) -> None:
    histogram = degree_statistics(np.array(counts)).histogram
    for low, high, count in histogram:
        assert count == sum(low <= c <= high for c in counts)
    assert sum(count for _, _, count in histogram) == len(counts)


def test_counts_against_a_naive_loop() -> None:
    data = synthetic(users=100, items=80, interactions=1500)
    d = describe(data)
    users = Counter(data.users.tolist())
    assert (d.users, d.items, d.interactions) == (100, data.n_items, 1500)
    assert d.density == 1500 / (100 * data.n_items)
    assert d.user_degrees.quantiles["100%"] == max(users.values())
    assert d.user_degrees.mean == 15
    assert d.titles == data.n_items
    assert d.fingerprint == data.fingerprint
    assert json.loads(json.dumps(d.to_dict()))["interactions"] == 1500


def test_unusual_properties_are_warned_about(tmp_path: Path) -> None:
    rows = [(1, 1, 3.0, 5), (1, 1, 3.0, 6), (1, 2, 3.0, 7), (2, 1, 3.0, 8)]
    text = " / ".join(describe(read(frame(rows))).warnings)
    assert "2 users have fewer than 5" in text
    assert "1 duplicate row was merged" in text
    assert "1 item was seen only once" in text
    assert "all ratings are 3" in text
    assert "before 1980" in text
    assert "no times" in " ".join(describe(read(frame([(1, 2)]))).warnings)
    milliseconds = [(1, 1, 1.0, 1_600_000_000_000), (1, 2, 2.0, 1_600_000_001_000)]
    assert "milliseconds" in " ".join(describe(read(frame(milliseconds))).warnings)
    equal = [(1, 1, 1.0, 1_600_000_000), (1, 2, 2.0, 1_600_000_000)]
    assert "all times are equal" in " ".join(describe(read(frame(equal))).warnings)
    close = describe(read(frame([(1, 1, 1.0, 1_600_000_000.25), (1, 2, 2.0, 1_600_000_000.75)])))
    assert "times" not in " ".join(close.warnings)
    assert close.first == close.last == "2020-09-13 12:26:40"
    (tmp_path / "train.txt").write_text("0 1 2\n1 1\n")
    (tmp_path / "test.txt").write_text("0 3 4\n2 1\n")
    text = " / ".join(describe(read(tmp_path)).warnings)
    assert "2 items occur only in the test file" in text
    assert "1 user occurs only in the test file" in text


def test_ids_that_another_program_wrote_for_something_else_are_warned_about(tmp_path: Path) -> None:
    file = tmp_path / "plays.csv"
    file.write_text("user,item\n1.0,x\n1.0,NULL\n2.0,NULL\n2.0,y\n")
    text = " / ".join(describe(read(file)).warnings)
    assert "'NULL' counts as an item, with 2 interactions; remove such rows" in text
    assert "The user ids end with .0 and were read as whole numbers" in text
    assert read(file).user_ids.ids.tolist() == [1, 2]
    file.write_text("user,item\n1.0,x\nann,nullable\n")
    text = " / ".join(describe(read(file)).warnings)
    assert "if it means missing" not in text
    assert "whole numbers" not in text


def test_clean_data_has_no_warnings() -> None:
    assert describe(synthetic(users=1000, items=500, interactions=20_000)).warnings == ()


def test_times_beyond_the_calendar_are_shown_not_fatal() -> None:
    rows = [(1, 1, 1.0, 160_000_000_000_000_000), (1, 2, 2.0, 170_000_000_000_000_000)]
    assert describe(read(frame(rows))).first == "160000000000000000"  # in no unit a likely year


def test_a_column_that_was_left_out_is_reported(tmp_path):
    file = tmp_path / "plays.csv"
    file.write_text("user,item,rating\n" + "".join(f"{u},{i},\n" for u in "abc" for i in "xyz"))
    warnings = describe(read(file)).warnings
    assert any("The rating column was left out" in warning for warning in warnings)
