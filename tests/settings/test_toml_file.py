import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.errors import ItemfoldError
from itemfold.settings.toml_file import dump_config, load_config, normalise

KEYS = st.from_regex(r"[a-z][a-z0-9_\-]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    TEXT,
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=2)),
    max_leaves=5,
)
CONFIGS = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=3)


def same(left: Any, right: Any) -> bool:
    """Whether values and types are equal; NaN equals NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@settings(max_examples=50)
@given(CONFIGS)
def test_a_written_configuration_reads_back_unchanged(config: dict[str, dict[str, Any]]) -> None:
    assert same(tomllib.loads(dump_config(config)), config)
    assert same(normalise(config), config)


@pytest.mark.parametrize(
    "text",
    ["", '"', "\\", "a\nb", "\t", "\x00", "\x1f", "\x7f", "\x85", "ü→∞😀", "'''", "#", "[x]"],
)
def test_odd_text_survives_the_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(dump_config({"data": {"data": text}}), encoding="utf-8")
    assert load_config(path)["data"]["data"] == text


def test_none_is_left_out_and_tuples_become_lists() -> None:
    config = {"model": {"layers": None, "dim": 4}, "loss": {"ks": (1, 2)}, "data": {}}
    assert normalise(config) == {"model": {"dim": 4}, "loss": {"ks": [1, 2]}, "data": {}}


def test_paths_and_numpy_numbers_become_plain_values() -> None:
    config = {"a": {"path": Path("x") / "y", "rate": np.float64(0.1), "many": [np.float64(2.0)]}}
    assert normalise(config) == {"a": {"path": str(Path("x") / "y"), "rate": 0.1, "many": [2.0]}}
    assert normalise({"a": {"n": np.int64(3), "yes": np.bool_(True)}}) == {
        "a": {"n": 3, "yes": True}
    }


def test_a_value_without_a_toml_type_is_refused() -> None:
    with pytest.raises(ItemfoldError, match="a setting must be a number, text, list or table"):
        dump_config({"a": {"f": print}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"lr = 0.1\n", "'lr' must be in a section such as"),
        (b"[train\n", "is not a TOML file"),
        (b"[train]\nlr = fast\n", "is not a TOML file"),
        (b"\xff\xfe", "is not a TOML file"),
    ],
)
def test_a_bad_file_gets_one_sentence_with_its_name(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    with pytest.raises(ItemfoldError, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ItemfoldError, match=r"cannot read .*nosuch.toml: No such file"):
        load_config(tmp_path / "nosuch.toml")
    with pytest.raises(ItemfoldError, match="cannot read"):
        load_config(tmp_path)
