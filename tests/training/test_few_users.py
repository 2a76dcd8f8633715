"""A few dozen new users validate: what is chosen on training users, and what is typical."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.splitting.split import HeldOut
from itemfold.models.base import Model
from itemfold.models.hybrid import TYPICAL_PRIOR, TYPICAL_WEIGHT
from itemfold.training.fit import train
from itemfold.training.strategies import candidates, noise
from itemfold.training.strategies.blend import Blend, BlendSearch
from itemfold.training.strategies.noise import has_few, is_clear
from itemfold.training.strategies.rotation import ENOUGH, rotations

DATA = "synthetic:users=300,items=60,interactions=4000"


@given(st.integers(0, 20), st.integers(5, 400), st.floats(0.2, 3))
def test_a_gain_is_clear_beyond_one_standard_error_and_beyond_two_with_few_users(
    seed: int, n: int, size: float
) -> None:
    gain = np.random.default_rng(seed).standard_normal(n)
    gain += size * gain.std() / np.sqrt(n) - gain.mean()  # so many standard errors
    expected = size > (2 if n < noise.FEW else 1)
    assert is_clear(gain) == expected or abs(size - round(size)) < 1e-6


def test_training_users_are_held_out_in_turn() -> None:
    split = ir.split_users(ir.load(DATA), seed=1)
    assert split.valid is not None
    seen = np.zeros(split.n_users, np.int64)
    rows = {tuple(split.train[[row]].indices): row for row in range(split.n_users)}
    parts = list(rotations(split, 0))
    for rest, held in parts:
        whole = (held.history + held.target).tocsr()
        assert (held.users == -1).all()
        assert not held.history.multiply(held.target).nnz
        assert np.diff(held.history.indptr).min() >= 1
        assert np.diff(held.target.indptr).min() >= 1
        users = [rows[tuple(sorted(whole[[row]].indices))] for row in range(len(held))]
        seen[users] += 1
        others = np.setdiff1d(np.arange(split.n_users), users)
        assert rest.shape[0] >= split.n_users - len(split.valid)
        assert (rest != split.train[others]).nnz == 0 or len(users) < len(split.valid)
    assert seen.max() == 1
    left = (seen == 0).sum() - (np.diff(split.train.indptr) < 2).sum()
    assert seen.sum() + len(split.valid) >= ENOUGH - len(split.valid) or left < len(split.valid)
    share = sum(held.history.nnz for _, held in parts) / sum(
        held.history.nnz + held.target.nnz for _, held in parts
    )
    own = split.valid.history.nnz / (split.valid.history.nnz + split.valid.target.nnz)
    assert share == pytest.approx(own, abs=0.04)


@pytest.mark.parametrize("strategy", ["known users", "many users"])
def test_nobody_is_held_out_in_turn_if_enough_users_validate(
    strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = (ir.split_interactions if strategy == "known users" else ir.split_users)(ir.load(DATA))
    if strategy == "many users":
        monkeypatch.setattr(noise, "FEW", 20)
    assert not has_few(split.valid)
    assert not list(rotations(split, 0))


class ByRow(Model):
    """Scores from a matrix: new users are told apart by their order only."""

    def __init__(self, matrix: np.ndarray) -> None:
        super().__init__()
        self.matrix = torch.from_numpy(matrix).float()

    def scores(self, history: sp.csr_array, users: np.ndarray) -> torch.Tensor:
        return self.matrix[: len(users)].clone()


def search_of(linear_is_good: bool) -> BlendSearch:
    """A linear part and a network of noise for forty new users."""
    rng, n = np.random.default_rng(0), 40
    order = rng.permuted(np.tile(np.arange(30), (n, 1)), axis=1)
    history, target = np.zeros((2, n, 30), np.float32)
    np.put_along_axis(history, order[:, :5], 1, axis=1)
    np.put_along_axis(target, order[:, 5:8], 1, axis=1)
    held = HeldOut(
        sp.csr_array(history), sp.csr_array(target), np.full(n, -1, np.int64), np.arange(n)
    )
    linear, network = rng.standard_normal((2, n, 30))
    linear += 4 * target * linear_is_good
    network -= 4 * target * linear_is_good
    popularity = {"never": torch.from_numpy(rng.standard_normal(30)).float()}
    found = BlendSearch(held, popularity, "ndcg@5", torch.device("cpu"))
    found.add("linear", ByRow(linear))
    found.add("network", ByRow(network))
    return found


def test_the_typical_sum_stays_unless_another_is_clearly_better() -> None:
    typical = Blend("never", TYPICAL_PRIOR, (TYPICAL_WEIGHT, 1.0))
    lucky, good = search_of(linear_is_good=False), search_of(linear_is_good=True)
    assert lucky.is_small
    assert lucky.run()[0] == lucky.typical() == typical
    blend, values = good.run()
    assert blend.weights[1] < 1.0 / TYPICAL_WEIGHT * blend.weights[0]
    assert values.mean() > good.values([typical])[0].mean()


def test_the_network_gets_a_typical_number_of_epochs_unless_one_is_given() -> None:
    split = ir.split_users(ir.load(DATA))
    small = ir.models.Hybrid(gnn={"dim": 4}, linear={"l2": 20.0})
    run = train(split, small, device="cpu")
    assert run.metrics["chosen"]["train"]["epochs"] == candidates.TYPICAL_EPOCHS
    given_epochs = train(split, small, device="cpu", epochs=3, eval_every=1, patience=2)
    assert "epochs" not in given_epochs.metrics["chosen"]["train"]
