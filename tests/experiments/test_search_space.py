"""The search space: how ranges are parsed, and the defaults of a model."""

import pytest

from itemfold.errors import ItemfoldError
from itemfold.experiments.search_space import default_search_space, parse_search_space
from itemfold.models import MODELS


def test_the_form_of_a_range_follows_its_setting():
    space = parse_search_space(
        {"negatives": {"name": "ppr"}},
        [
            "lr=0.01..0.1",
            "ema_decay=0..0.9",
            "l2=1..9",
            "layers=1..20",
            "batch=16,32",
            "band=[1,2],[3,4]",
        ],
    )
    found = {key: (one.log, one.whole) for key, one in space.items()}
    assert found["train.lr"] == (True, False)
    assert found["train.ema_decay"] == (False, False)
    assert found["train.l2"] == (False, False)  # 1 means 1.0 here
    assert found["model.layers"] == (False, True)
    assert space["train.batch"].choices == (16, 32)
    assert space["negatives.band"].choices == ([1, 2], [3, 4])


def test_default_ranges_contain_earlier_best_values():
    for sections, key, values in (
        ({"model": {"name": "ease"}}, "model.l2", (50, 200, 1000)),
        ({"model": {"name": "ials"}}, "model.alpha", (0.03, 0.3)),
        ({"model": {"name": "itemknn"}}, "model.neighbours", (50, 200)),
        ({"model": {"name": "simgcl"}}, "model.weight", (0.02, 0.5)),
        ({"model": {"name": "lightgcn"}}, "train.lr", (0.001, 0.01)),
        ({"model": {"name": "lightgcn"}}, "train.l2", (0.0001, 0.003)),
        ({"model": {"name": "lightgcn"}}, "loss.tau", (0.5, 1.5)),
        ({"train": {"similarity": "cosine"}}, "loss.tau", (0.07, 0.2)),
    ):
        space = default_search_space(sections)[key]
        assert space.low <= min(values) < max(values) <= space.high, key
    assert "train.lr" not in default_search_space({"model": {"name": "ease"}})
    assert "loss.tau" not in default_search_space({"model": {"name": "mf"}})


@pytest.mark.parametrize("name", [name for name in MODELS if name != "popularity"])
def test_every_model_has_something_to_search(name):
    settings = {"model": {"name": name}}
    space = default_search_space(settings)
    assert space
    assert parse_search_space(settings, [str(one) for one in space.values()]) == space


LIGHTGCN = {"model": {"name": "lightgcn"}}


def test_spaces_are_allowed_and_numbers_must_be_finite():
    assert parse_search_space(LIGHTGCN, ["pooling=sum, mean"])["model.pooling"].choices == (
        "sum",
        "mean",
    )
    with pytest.raises(ItemfoldError, match=r"'train\.lr' must be a finite number, got inf"):
        parse_search_space({}, ["lr=inf,0.1"])
    with pytest.raises(ItemfoldError, match=r"'model.gnn.dim' must be a whole number, got '99"):
        parse_search_space({}, ["dim=1.." + "9" * 5000])
