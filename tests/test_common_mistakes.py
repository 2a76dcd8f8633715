"""What people try first in Python: short reprs, and one sentence for each common mistake."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from small import board_split, checkerboard

import itemfold as ir
from itemfold.errors import ItemfoldError

DATA, SPLIT = checkerboard(), board_split("inductive")
RUN = ir.train(SPLIT, ir.models.EASE())


@pytest.mark.parametrize("value", [DATA, SPLIT, SPLIT.test, RUN], ids=lambda v: type(v).__name__)
def test_a_repr_is_one_short_line(value: object) -> None:
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert len(repr(value)) < 200
    assert "\n" not in repr(value)
    assert "array" not in repr(value)


def test_a_repr_tells_what_it_is() -> None:
    assert repr(DATA) == "Interactions('checkerboard': 592 interactions of 40 users with 40 items)"
    assert "inductive" in repr(SPLIT)
    assert f"ndcg@20 {RUN.metrics['test']['ndcg@20']:.4f}" in repr(RUN)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "data for a split": (
        lambda: ir.train(DATA, ir.models.EASE()),
        r"'split' must be a Split, such as ir.split_users\(data\), got Interactions",
    ),
    "frame for a split": (
        lambda: ir.train(pd.DataFrame({"user": range(1000)}), ir.models.EASE()),
        r"'split' must be a Split, .* got a pandas DataFrame; ir.fit takes a table",
    ),
    "folder for a run": (
        lambda: ir.Recommender("runs/x"),
        r"'run' must be a Run, got 'runs/x'; for a folder use Recommender.load\(folder\)",
    ),
    "folder to evaluate": (
        lambda: ir.evaluate("runs/x", SPLIT),
        r"'run' must be a Run, a model, .* got 'runs/x'; load a folder with Run.load\(folder\)",
    ),
    "a function of users alone": (
        lambda: ir.evaluate(lambda users: np.zeros((len(users), 9)), SPLIT),
        "'run' must be a function of two arguments, a sparse matrix with the history",
    ),
    "data to evaluate on": (
        lambda: ir.evaluate(RUN, DATA),
        r"'split' must be a Split, .* got Interactions",
    ),
    "no folder": (
        lambda: ir.Recommender.load(None),
        "'folder' must be the path of a run folder, got None",
    ),
    "a run for a folder": (
        lambda: ir.Run.load(RUN),
        r"'folder' must be the path of a run folder, got Run\(ease",
    ),
    "text for a number": (
        lambda: ir.models.LightGCN(dim="64"),
        "'dim' must be a whole number, got '64'",
    ),
    "a number by position": (
        lambda: ir.models.EASE([1.0]),
        r"'l2' must be a number, got \[1.0\]",
    ),
    "a frame for a history": (
        lambda: ir.Recommender(RUN).recommend(history=pd.DataFrame({"item": [100, 102]})),
        "'history' must be a list, got a DataFrame; give a single column or row of it",
    ),
    "a polars frame for a history": (
        lambda: ir.Recommender(RUN).recommend(history=pl.DataFrame({"item": [100, 102]})),
        "'history' must be a list, got a DataFrame",
    ),
    "a matrix for a history": (
        lambda: ir.Recommender(RUN).recommend(history=np.array([[100], [102]])),
        "'history' must be a list, got a ndarray",
    ),
    "text for a history": (
        lambda: ir.Recommender(RUN).recommend(history="100"),
        "'history' must be a list, got '100'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_common_mistake_is_one_sentence(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(ItemfoldError, match=message) as caught:
        call()
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "kind", [torch.tensor, np.array, pd.Series, pl.Series, tuple, pd.Index, iter]
)
def test_a_history_may_be_any_kind_of_list(kind: Callable[[list[int]], Any]) -> None:
    recommender = ir.Recommender(RUN)
    expected = recommender.recommend(history=[100, 102, 104], k=5)
    found = recommender.recommend(history=kind([100, 102, 104]), k=5)
    assert found.fallback == ""
    assert [pick.item for pick in found] == [pick.item for pick in expected]


def test_settings_of_models_may_be_numpy_numbers() -> None:
    assert ir.models.LightGCN(dim=np.int64(8)).settings["dim"] == 8
    assert ir.models.EASE(l2=300).settings["l2"] == 300
