from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from contract import CONTRACT
from small import random_matrix

from itemfold.errors import ItemfoldError
from itemfold.models import EASE, GAT, GIN, GNN, MF, MODELS, LightGCN, Model, Popularity
from itemfold.validation import schema


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_contract(name: str, clause: Callable[[str, Path], None], tmp_path: Path) -> None:
    clause(name, tmp_path)


def fit(model: Model, train: sp.csr_array) -> Model:
    model.setup(train, inductive=False, generator=torch.Generator().manual_seed(0))
    model.solve(train)
    return model


@pytest.mark.parametrize("l2", [1.0, 50.0])
def test_ease_equals_its_formula(l2: float) -> None:
    train = random_matrix(60, 25, 0.3)
    x = train.toarray().astype(np.float64)
    p = np.linalg.inv(x.T @ x + l2 * np.eye(25))
    expected = np.eye(25) - p @ np.diag(1 / np.diag(p))
    model = fit(EASE(l2=l2), train)
    np.testing.assert_allclose(model.weights, expected, atol=1e-5)
    assert (model.weights.diagonal() == 0).all()
    scores = model.scores(train, np.full(60, -1))
    np.testing.assert_allclose(scores, x @ expected, atol=1e-4)


def test_popularity_counts_and_is_the_same_for_all_users() -> None:
    train = random_matrix(60, 25, 0.3)
    scores = fit(Popularity(), train).scores(train[:3], np.array([0, -1, 2]))
    for row in scores:
        assert row.tolist() == train.toarray().sum(0).tolist()


def test_popularity_is_summed_in_full_precision() -> None:
    weights = np.array([[2.0**24], [1.0], [1.0], [1.0]], dtype=np.float32)
    model = fit(Popularity(), sp.csr_array(weights))
    assert model.counts.tolist() == [np.float32(2**24 + 3)]  # in float32 the ones would be lost


def test_mf_scores_are_products_of_its_parameters() -> None:
    train = random_matrix(6, 5, 0.5)
    model = MF(dim=3)
    model.setup(train, inductive=False, generator=torch.Generator().manual_seed(0))
    model.cache_embeddings(None)
    users = np.array([4, 0])
    expected = model.users.detach().numpy()[users] @ model.items.detach().numpy().T
    np.testing.assert_allclose(model.scores(train[users], users), expected, rtol=1e-6)


def test_a_model_without_a_constructor_has_its_parents_settings() -> None:
    class Same(LightGCN):
        pass

    class Nothing(Model):
        pass

    class Wrapped(LightGCN):
        def __init__(self, width: int = 4) -> None:
            super().__init__(dim=width)

    own = {"dim": 8, "layers": None, "pooling": "auto", "start": "random"}
    assert Same(dim=8).settings == own
    assert Nothing().settings == {}
    assert Wrapped(width=6).settings == {"width": 6}  # its own arguments, not its parent's


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LightGCN(dim=0), "'dim' must be a positive integer, got 0"),
        (lambda: LightGCN(layers=0), "'layers' must be a positive integer, got 0"),
        (lambda: LightGCN(pooling="max"), "'pooling' must be auto, mean, sum or concat, got 'max'"),
        (lambda: GAT(dim=6, heads=4), "'heads' must divide 'dim' .6., got 4"),
        (lambda: MF(dim=-1), "'dim' must be a positive integer, got -1"),
        (lambda: EASE(l2=0), "'l2' must be a positive number, got 0"),
    ],
)
def test_bad_settings_name_the_parameter_the_rule_and_the_value(
    make: Callable[[], Model], message: str
) -> None:
    with pytest.raises(ItemfoldError, match=message):
        make()


@pytest.mark.parametrize("name", ["ease", "rlae"])
def test_a_matrix_larger_than_memory_is_refused_before_allocation(name: str) -> None:
    train = sp.csr_array((1, 10_000_000), dtype=np.float32)  # 4 · 10¹⁴ bytes
    with pytest.raises(ItemfoldError, match=rf"'{name}' .* 10,000,000 items take 372,529 GiB; th"):
        fit(MODELS[name](form="dense"), train)


@pytest.mark.parametrize("name", MODELS)
def test_no_setting_may_be_nan(name: str) -> None:
    for setting in (key for key, value in schema(MODELS[name]).items() if type(value) is float):
        with pytest.raises(ItemfoldError, match=f"'{setting}' must be .*, got nan"):
            MODELS[name](**{setting: float("nan")})


@pytest.mark.parametrize("inductive", [False, True])
def test_depth_and_pooling_follow_the_protocol_by_default(inductive: bool) -> None:
    def ready(model: GNN) -> GNN:
        train = random_matrix(6, 5, 0.5)
        model.setup(train, inductive=inductive, generator=torch.Generator())
        return model

    automatic = ready(LightGCN(dim=4))
    assert automatic.depth == (2 if inductive else 3)
    assert automatic.pool_by == ("sum" if inductive else "mean")
    assert ready(GIN(dim=4)).pool_by == "sum"
    given = ready(LightGCN(dim=4, layers=5, pooling="sum" if inductive else "concat"))
    assert (given.depth, given.pool_by) == (5, "sum" if inductive else "concat")
    if inductive:  # layers of users and of items alternate
        with pytest.raises(ItemfoldError, match="must be sum or mean in the inductive protocol"):
            ready(LightGCN(dim=4, pooling="concat"))
    assert (given.user_embedding is None) == inductive  # unseen users: no user has parameters
