"""The sparse form of linear models: exact on its neighbours, dense with all of them, a contract."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import contract
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from contract import CONTRACT
from small import board_split, random_matrix

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.models import EASE, RLAE, SLIM
from itemfold.models import neighbourhoods as near
from itemfold.models.linear_update import update_linear
from itemfold.serving.exports.score_parts import weights_of
from itemfold.training.strategies.candidates import MAX_DENSE_ITEMS

X = random_matrix(70, 30, 0.15)
SPARSE = {
    "ease": {"form": "sparse"},
    "rlae": {"form": "sparse"},
    "hybrid": {"linear": {"l2": 20.0, "items": 40, "form": "sparse"}},
}


@pytest.fixture(params=["one dense matrix", "rows on demand"])
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a small head, most items are in no dense matrix, and blocks are small."""
    if request.param == "rows on demand":
        for name, value in (("HEAD", 7), ("PRODUCTS", 50), ("LOCAL", 200)):
            monkeypatch.setattr(near, name, value)


def fitted(model: Any, train: sp.csr_array = X) -> Any:
    model.setup(train, inductive=True, generator=torch.Generator())
    model.solve(train)
    return model


def weights(model: EASE | RLAE | SLIM) -> np.ndarray:
    """The dense weights of a fitted model: the scores of one-item histories."""
    eye = sp.csr_array(np.eye(model.n_items, dtype=np.float32))
    return model.scores(eye, np.full(model.n_items, -1)).numpy()


@pytest.mark.usefixtures("head")
def test_each_column_is_the_ridge_regression_on_the_nearest_items() -> None:
    found = weights(fitted(EASE(l2=3.0, form="sparse", neighbours=6)))
    x = X.toarray().astype(np.float64)
    gram = x.T @ x
    cosine = gram / np.sqrt(np.maximum(np.outer(gram.diagonal(), gram.diagonal()), 1))
    np.fill_diagonal(cosine, -1)
    for j in range(29):
        used = np.flatnonzero(found[:, j])
        assert len(used) <= 6
        assert j not in used
        least = np.sort(cosine[:, j])[-6]
        assert set(np.flatnonzero(cosine[:, j] > least + 1e-9)) <= set(used)  # but for ties
        assert (cosine[used, j] >= least - 1e-9).all()
        system = gram[np.ix_(used, used)] + 3.0 * np.eye(len(used))
        expected = np.linalg.solve(system, gram[used, j])
        np.testing.assert_allclose(found[used, j], expected, rtol=1e-4, atol=1e-6)
    assert not found[:, 29].any()  # an item without interactions


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    "settings",
    [
        {"l2": 3.0},
        {"l2": 3.0, "dropout": 0.4},
        {"l2": 3.0, "relax": 0.3, "user_power": 0.3},
        {"l2": 3.0, "item_power": 0.2, "user_power": 0.3, "dropout": 0.5, "relax": 0.1},
        {"l2": 3.0, "item_power": 0.2, "items": 20},
    ],
)
def test_with_all_items_as_neighbours_it_is_the_dense_form(settings: dict[str, float]) -> None:
    dense = weights(fitted(RLAE(**settings, form="dense")))  # type: ignore[arg-type]
    found = weights(fitted(RLAE(**settings, form="sparse", neighbours=1000)))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, dense, rtol=1e-3, atol=1e-5)


def test_ease_of_all_neighbours_is_ease_and_slim() -> None:
    dense = fitted(EASE(l2=3.0, form="dense")).weights.numpy()
    found = fitted(EASE(l2=3.0, form="sparse", neighbours=29))
    np.testing.assert_allclose(weights(found), dense, rtol=1e-4, atol=1e-6)
    exported = weights_of(found)
    assert exported is not None
    np.testing.assert_array_equal(exported.toarray(), weights(found))
    some = weights(fitted(EASE(l2=3.0, form="sparse", neighbours=8)))
    slim = weights(fitted(SLIM(neighbours=8, l2=3.0)))
    np.testing.assert_allclose(some, slim, rtol=1e-5, atol=1e-7)


def test_more_neighbours_come_closer() -> None:
    """Neighbours of a smaller number are among those of a larger one: columns can only improve."""
    gram = (X.T @ X).toarray().astype(np.float64)

    def objective(w: np.ndarray) -> np.ndarray:
        return 0.5 * np.einsum("ij,ik,kj->j", w, gram, w) - (w * gram).sum(0) + 1.5 * (w**2).sum(0)

    models = [EASE(l2=3.0, form="sparse", neighbours=k) for k in (1, 2, 4, 8, 16, 29)]
    values = np.array([objective(weights(fitted(model)).astype(np.float64)) for model in models])
    assert (np.diff(values, axis=0) < 1e-5).all()
    dense = objective(fitted(EASE(l2=3.0, form="dense")).weights.double().numpy())
    np.testing.assert_allclose(values[-1], dense, rtol=1e-5)


def test_weights_may_be_pruned_further() -> None:
    whole, pruned = (
        weights(fitted(RLAE(l2=3.0, form="sparse", neighbours=10, keep=k))) for k in (10, 4)
    )
    assert (np.count_nonzero(pruned, axis=0) <= 4).all()
    kept = pruned != 0
    np.testing.assert_array_equal(pruned[kept], whole[kept])
    for j in range(29):
        left = np.abs(np.where(kept[:, j], 0, whole[:, j])).max()
        assert left <= np.abs(pruned[kept[:, j], j]).min()


# --- the contract --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sparse_settings() -> Iterator[None]:
    """Clauses train the sparse form; a run is shared by all of them."""
    contract.trained.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        for name, settings in SPARSE.items():
            patch.setitem(contract.SETTINGS, name, {**contract.SETTINGS[name], **settings})
        yield
    contract.trained.cache_clear()


@pytest.mark.usefixtures("sparse_settings")
@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", SPARSE)
def test_contract(clause: Callable[[str, Path], None], name: str, tmp_path: Path) -> None:
    clause(name, tmp_path)


# --- which form ----------------------------------------------------------------------------------


def small_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("itemfold.environment.memory_of", lambda device: size)


def test_a_catalogue_too_large_for_the_dense_form_has_the_sparse_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    split = board_split()
    assert ir.train(split, EASE(l2=20.0)).model.has_all_weights
    small_memory(monkeypatch, 4 * 40 * 40 + 1)  # the matrix fits, but takes more than half
    run = ir.train(split, EASE(l2=20.0, neighbours=10), out=tmp_path / "r")
    assert not run.model.has_all_weights
    assert len(run.model.weight_values) <= 400
    similar = ir.Recommender(run).similar_items(103, k=4)
    assert {pick.item % 2 for pick in similar} == {1}
    monkeypatch.undo()  # a larger machine reads what the smaller one wrote
    back = ir.Run.load(tmp_path / "r")
    test = split.test
    expected = run.model.scores(test.history, test.users)
    assert torch.equal(back.model.scores(test.history, test.users), expected)
    assert ir.export(back, "parquet", tmp_path / "export")["exact"]


def test_the_dense_form_can_be_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    small_memory(monkeypatch, 2000)
    with pytest.raises(ItemfoldError, match=r"'ease' needs .* choose form=sparse or reduce"):
        fitted(EASE(form="dense"))
    with pytest.raises(ItemfoldError, match="'form' must be auto, dense or sparse, got 'thin'"):
        EASE(form="thin")
    with pytest.raises(ItemfoldError, match="'form' must be auto, dense or sparse"):
        ir.models.Hybrid(linear={"form": "thin"})


def test_a_hybrid_of_a_large_catalogue_covers_all_items(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(MAX_DENSE_ITEMS, "cpu", 30)
    run = ir.train(
        board_split(), ir.models.Hybrid(gnn={"dim": 8}), epochs=2, device="cpu", out=tmp_path
    )
    assert run.config["model"]["linear"]["form"] == "sparse"
    assert run.metrics["chosen"]["model"]["linear"]["form"] == "sparse"
    assert run.config["model"]["linear"]["items"] is None
    assert len(run.model.linear.weight_starts) == 41
    picks = ir.Recommender.load(tmp_path).recommend(history=[101, 103], k=3, explain=True)
    for pick in picks:
        assert pick.score == pytest.approx(sum(r.share for r in pick.reasons) + pick.own, abs=1e-4)


@pytest.mark.parametrize("kind", [EASE, RLAE])
def test_an_update_fits_the_sparse_form_anew(kind: type[EASE] | type[RLAE]) -> None:
    before = X.copy()
    before.data[:20] = 0
    before.eliminate_zeros()
    old, new, fresh = (kind(l2=3.0, form="sparse", neighbours=8) for _ in range(3))
    fitted(old, before)
    new.setup(X, inductive=True, generator=torch.Generator())
    how = update_linear(new, old, before, X)
    assert str(how) == "refitted, because its stored weights are pruned"
    np.testing.assert_array_equal(weights(new), weights(fitted(fresh)))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weight_items", torch.tensor([0, 30], dtype=torch.int32), "of items outside"),
        ("weight_items", torch.tensor([0], dtype=torch.int32), "are not those of 30 items"),
        ("weight_starts", torch.arange(32).clamp(max=2), "are not those of 30 items"),
        ("weight_starts", torch.tensor([0, 2, 1] + [2] * 28), "overlap"),
    ],
)
def test_damaged_weights_are_refused(name: str, value: torch.Tensor, message: str) -> None:
    model = fitted(EASE(form="sparse"))
    parts = {
        "weight_starts": torch.arange(31).clamp(max=2),
        "weight_items": torch.tensor([0, 29], dtype=torch.int32),
        "weight_values": torch.ones(2),
    }
    for key, tensor in parts.items():
        model.store(key, tensor)
    model.restore(X)
    model.store(name, value)
    with pytest.raises(ValueError, match=message):
        model.restore(X)
