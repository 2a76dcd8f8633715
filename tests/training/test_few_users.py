"""A few dozen new users validate: what is typical stays."""

import numpy as np
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
from itemfold.training.strategies.noise import has_few_users, is_clear

DATA = "synthetic:users=80,items=60,interactions=900"


@given(st.integers(0, 20), st.integers(5, 400), st.floats(0.2, 3))
def test_a_gain_is_clear_beyond_one_standard_error_and_beyond_two_with_few_users(
    seed: int, n: int, size: float
) -> None:
    gain = np.random.default_rng(seed).standard_normal(n)
    gain += size * gain.std() / np.sqrt(n) - gain.mean()  # so many standard errors
    expected = size > (2 if n < noise.FEW_USERS else 1)
    assert is_clear(gain) == expected or abs(size - round(size)) < 1e-6


def test_known_users_are_never_few() -> None:
    data = ir.load(DATA)
    assert has_few_users(ir.split_users(data).valid)
    assert not has_few_users(ir.split_interactions(data).valid)
    assert not has_few_users(None)


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
    assert lucky.prefers_typical
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
