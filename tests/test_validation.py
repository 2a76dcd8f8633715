from typing import Any, Literal

import numpy as np
import pytest

from itemfold.data.splitting.splitters import SPLITS
from itemfold.errors import ItemfoldError
from itemfold.losses import LOSSES
from itemfold.models import GAT, MODELS
from itemfold.sampling import NEGATIVES
from itemfold.settings.schema import TrainConfig
from itemfold.validation import check_settings, lookup, schema, typed


class Component:
    """Settings of every kind."""

    def __init__(
        self,
        rate: float = 0.5,
        count: int = 3,
        on: bool = True,
        word: str = "a",
        cuts: tuple[int, ...] = (1, 2),
        heat: float | Literal["auto"] = "auto",
        depth: int | None = None,
        share: float | None = None,
        some: "list[int] | None" = None,
    ) -> None:
        self.rate = rate


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"rate": 1}, {"rate": 1.0}),
        ({"count": 7}, {"count": 7}),
        ({"count": np.int64(7)}, {"count": 7}),
        ({"on": False}, {"on": False}),
        ({"word": "b"}, {"word": "b"}),
        ({"cuts": [5, 10]}, {"cuts": (5, 10)}),
        ({"heat": 2}, {"heat": 2}),
        ({"heat": "auto"}, {"heat": "auto"}),
        ({"depth": 2}, {"depth": 2}),
        ({"depth": None}, {"depth": None}),
        ({"share": 1}, {"share": 1.0}),
        ({"some": [1]}, {"some": (1,)}),
        ({}, {}),
    ],
)
def test_settings_take_the_type_of_their_default(
    given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = check_settings(Component, "part", given)
    assert found == expected
    assert [type(v) for v in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": "fast"}, "'part.rate' must be a number, got 'fast'"),
        ({"rate": True}, "'part.rate' must be a number, got True"),
        ({"count": 2.5}, "'part.count' must be a whole number, got 2.5"),
        ({"count": True}, "'part.count' must be a whole number, got True"),
        ({"on": 1}, "'part.on' must be true or false, got 1"),
        ({"word": 3}, "'part.word' must be text, got 3"),
        ({"cuts": 5}, "'part.cuts' must be a list, got 5"),
        ({"cuts": "5"}, "'part.cuts' must be a list, got '5'"),
        ({"heat": [1]}, r"'part.heat' must be text, got \[1\]"),
        ({"depth": "deep"}, "'part.depth' must be a whole number, got 'deep'"),
        ({"depth": 2.0}, "'part.depth' must be a whole number, got 2.0"),
        ({"share": "half"}, "'part.share' must be a number, got 'half'"),
    ],
)
def test_a_wrong_type_names_parameter_rule_and_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ItemfoldError, match=message):
        check_settings(Component, "part", given)


def test_an_unknown_setting_lists_the_known_ones() -> None:
    with pytest.raises(
        ItemfoldError, match="'gat' has no setting 'head'; its settings are: dim, la"
    ):
        check_settings(GAT, "gat", {"head": 2})

    def bare(pos: Any, neg: Any, pos_mask: Any = None) -> None: ...

    with pytest.raises(ItemfoldError, match="its settings are: none"):
        check_settings(bare, "bare", {"pos_mask": 1})  # masks are inputs, not settings


def test_an_unknown_name_lists_the_choices() -> None:
    assert lookup({"a": 1}, "thing", "a") == 1
    with pytest.raises(ItemfoldError, match="'thing' must be one of a, b, got 'c'"):
        lookup({"a": 1, "b": 2}, "thing", "c")


@pytest.mark.parametrize("table", [MODELS, LOSSES, NEGATIVES, SPLITS], ids=len)
def test_every_component_accepts_its_own_defaults(table: dict[str, Any]) -> None:
    """A signature is a schema: its defaults pass the check unchanged."""
    for name, component in table.items():
        defaults = schema(component)
        assert check_settings(component, name, defaults) == defaults


def test_training_settings_are_a_schema_like_any_other() -> None:
    assert check_settings(TrainConfig, "train", schema(TrainConfig)) == schema(TrainConfig)
    assert typed(0.01, 1, "lr") == 1.0
