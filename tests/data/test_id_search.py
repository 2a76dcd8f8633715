"""A binary search finds what a dictionary of texts finds."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.data import interactions
from itemfold.data.id_arrays import text_array
from itemfold.data.interactions import IdMap

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
IDS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=9).map(
        lambda ids: np.array(ids, dtype=np.int64)
    ),
    st.lists(TEXTS.map(str.strip), unique=True, min_size=1, max_size=9).map(text_array),
    st.lists(TEXTS.map(str.strip), unique=True, max_size=9).map(
        lambda ids: np.array(ids, dtype=object)
    ),
)
ASKED = st.one_of(TEXTS, st.integers(), st.floats(), st.binary(max_size=3), st.none())


def by_dictionary(ids: list[Any], asked: list[Any]) -> list[int]:
    rows = {str(value): row for row, value in enumerate(ids)}
    found = []
    for value in asked:
        text = value.decode(errors="surrogateescape") if isinstance(value, bytes) else str(value)
        row = rows.get(text.strip(), -1)
        if row < 0 and isinstance(value, float) and value.is_integer():
            row = rows.get(str(int(value)), -1)
        elif row < 0 and all(type(known) is int for known in ids):
            row = rows.get(text.strip().removesuffix(".0"), -1)
        found.append(row)
    return found


@settings(max_examples=150, deadline=None)
@given(IDS, st.lists(ASKED, max_size=5), st.randoms())
def test_any_id_is_found_as_by_a_dictionary(ids: Any, others: list[Any], random: Any) -> None:
    listed = ids.tolist()
    known = [value if random.random() < 0.5 else str(value) for value in listed]
    asked = [
        *known,
        *others,
        *(f"{value}.0" for value in listed),
        *(f" {value}\t" for value in listed),
        "ann\0",
        b"\xff",
    ]
    random.shuffle(asked)
    expected = by_dictionary(listed, asked)
    assert IdMap(ids).index(asked).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interactions, "MOST_IN_DICT", -1)
        searched = IdMap(ids)
        assert searched.index(asked).tolist() == expected
        assert "_row_of" not in vars(searched)


def test_arrays_of_numbers_are_searched_at_once() -> None:
    ids = np.random.default_rng(0).permutation(1000)[:300] * 10**15
    asked = np.array([*ids[:5], 1, -4, ids.max() + 1])
    assert IdMap(ids).index(asked).tolist() == by_dictionary(ids.tolist(), asked.tolist())
    assert IdMap(np.empty(0, np.int64)).index(asked).tolist() == [-1] * len(asked)
