"""The search of a blend: known optima, groups by length, and the comparison of scorings."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.split import HeldOut
from itemfold.evaluation import evaluator
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.evaluation.metrics import FULL_METRICS, METRICS, parse_metric
from itemfold.models.base import Model
from itemfold.models.hybrid import deviation
from itemfold.training.strategies.blend import NEARBY, PRIORS, WEIGHTS, BlendSearch

CPU = torch.device("cpu")
ITEMS = 30


def held_out(lengths: list[int], targets: int = 3, seed: int = 0) -> HeldOut:
    """Users with histories of these lengths and some targets outside them."""
    rng, n = np.random.default_rng(seed), len(lengths)
    history, target = np.zeros((2, n, ITEMS), np.float32)
    for row, length in enumerate(lengths):
        order = rng.permutation(ITEMS)
        history[row, order[:length]] = 1
        target[row, order[length : length + targets]] = 1
    users = np.arange(n, dtype=np.int64)
    return HeldOut(sp.csr_array(history), sp.csr_array(target), users, users + 100)


class Parts:
    """A hybrid of which only the scores of its parts are known."""

    def __init__(self, network: np.ndarray, linear: np.ndarray, popularity: np.ndarray) -> None:
        self.device = CPU
        self.tensors = [torch.from_numpy(a.astype(np.float32)) for a in (network, linear)]
        self.popularity = torch.from_numpy(popularity.astype(np.float32))
        self.arrays = network, linear, popularity

    def part_scores(self, history: sp.csr_array, users: np.ndarray) -> Iterator[Any]:
        for scores in self.tensors:
            yield scores[users], deviation(scores[users])

    def typical_blend(self) -> Any:
        return ((0.0, 0.4, 1.5),)

    def naive(self, held: HeldOut, prior: float, weight: float) -> np.ndarray:
        """NDCG@20 of every user, item by item."""
        network, linear, popularity = self.arrays
        out = np.zeros(len(held))
        history, target = held.history.toarray(), held.target.toarray()
        for row, user in enumerate(held.users):
            score = network[user] / network[user].std() + prior * popularity
            score = score + weight * linear[user] / linear[user].std()
            score[history[row] > 0] = -np.inf
            best = np.argsort(-score, kind="stable")[:20]
            gain = sum(target[row, i] / np.log2(place + 2) for place, i in enumerate(best))
            out[row] = gain / sum(1 / np.log2(j + 2) for j in range(int(target[row].sum())))
        return out


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, ITEMS))


def flat_noise(seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal(ITEMS)
    return (values - values.mean()) / values.std()


def search(parts: Parts, held: HeldOut, seed: int = 0, metric: str = "ndcg@20") -> BlendSearch:
    return BlendSearch(parts, held, metric, seed, has_prior=True)  # type: ignore[arg-type]


LENGTHS = [2 + row % 9 for row in range(90)]


def test_values_are_those_of_a_naive_ranking() -> None:
    held = held_out(LENGTHS)
    parts = Parts(noise(90, 1), noise(90, 2), flat_noise(3))
    blends = [(0.0, 0.0), (0.5, 0.1), (1.0, 8.0), (3.0, 0.0)]
    found = search(parts, held).values(blends)
    expected = np.stack([parts.naive(held, *blend) for blend in blends])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_noise_is_left_out_of_a_perfect_network() -> None:
    held = held_out(LENGTHS)
    parts = Parts(held.target.toarray() + 0.01 * noise(90, 1), noise(90, 2), flat_noise(3))
    rows, values = search(parts, held).run(progress=False)
    assert max(row[2] for row in rows) <= 0.3  # of at most 16
    assert values.mean() > 0.97


def test_a_network_that_is_noise_is_drowned_by_a_good_linear_part() -> None:
    held = held_out(LENGTHS)
    parts = Parts(noise(90, 1), held.target.toarray() + 0.3 * noise(90, 2), flat_noise(3))
    rows, values = search(parts, held).run(progress=False)
    assert min(row[2] for row in rows) >= 4  # of at most 16
    alone = parts.naive(held, 0.0, 1e6).mean()
    assert values.mean() >= alone - 0.02
    assert values.mean() > 0.9


def test_popularity_counts_if_everybody_has_the_same_taste() -> None:
    """Targets are the popular items that are not in the history; both other parts are noise."""
    held = held_out(LENGTHS)
    popular = np.linspace(-1.7, 1.7, ITEMS)
    target = np.zeros((90, ITEMS), np.float32)
    for row, known in enumerate(held.history.toarray()):
        target[row, np.argsort(known * 100 - popular, kind="stable")[:3]] = 1
    held = HeldOut(held.history, sp.csr_array(target), held.users, held.ids)
    rows, _ = search(Parts(noise(90, 1), noise(90, 2), popular), held).run(progress=False)
    assert min(row[1] for row in rows) >= 2  # of at most 3
    assert max(row[2] for row in rows) <= 0.3


def test_one_number_is_the_best_of_its_list_when_users_agree() -> None:
    """If all users are the same, no difference has an error: the choice is the plain maximum."""
    one = held_out([4])
    rows = np.zeros(40, dtype=np.int64)
    held = HeldOut(one.history[rows], one.target[rows], np.arange(40), np.arange(40))
    network, linear = (np.repeat(noise(1, seed), 40, 0) for seed in (5, 6))
    parts = Parts(network, linear, flat_noise(7))
    found = search(parts, held)
    for blends in ([(p, 0.3) for p in PRIORS], [(0.2, w) for w in WEIGHTS]):
        values = [parts.naive(held, *blend).mean() for blend in blends]
        best = np.flatnonzero(np.round(values, 9) == np.round(max(values), 9))
        assert found.best(blends, 3) == best[np.abs(best - 3).argmin()]


def test_of_values_that_are_as_good_the_most_typical_is_taken() -> None:
    """Two users who disagree: nothing is better than anything by more than the error."""
    held = held_out([4, 4])
    parts = Parts(noise(2, 5), noise(2, 6), flat_noise(7))
    found = search(parts, held)
    values = np.array([[0.9, 0.0], [0.0, 0.8], [0.4, 0.5]])
    found.values = lambda blends: values  # type: ignore[method-assign]
    assert [found.best([(0.0, 0.0)] * 3, typical) for typical in range(3)] == [0, 1, 2]
    values = np.array([[0.9, 0.9], [0.1, 0.1], [0.8, 0.7]])
    assert [found.best([(0.0, 0.0)] * 3, typical) for typical in range(3)] == [0, 0, 0]


def test_the_same_seed_gives_the_same_blend() -> None:
    held = held_out(LENGTHS)
    target = held.target.toarray()
    parts = Parts(target + noise(90, 1), target + noise(90, 2), flat_noise(3))
    results = [search(parts, held, seed).run(progress=False) for seed in (4, 4)]
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])
    draws = [search(parts, held, seed).generator.random() for seed in (4, 4, 5)]
    assert draws[0] == draws[1] != draws[2]


# --- groups by the length of the history ---------------------------------------------------------


def two_kinds(n: int = 240) -> tuple[Parts, HeldOut]:
    """The linear part knows the targets of long histories only, the network of short ones only."""
    lengths = [2 if row % 2 else 10 for row in range(n)]
    held = held_out(lengths)
    target, short = held.target.toarray(), np.array(lengths)[:, None] == 2
    network = np.where(short, target, 0) * 3 + noise(n, 1)
    linear = np.where(short, 0, target) * 3 + noise(n, 2)
    return Parts(network, linear, flat_noise(3)), held


def test_groups_are_used_where_they_help() -> None:
    parts, held = two_kinds()
    found = search(parts, held)
    rows, values = found.run(progress=False)
    assert len(rows) == 2
    assert [row[0] for row in rows] == [0.0, 10.0]
    assert rows[0][2] < rows[1][2]  # the weight of the linear part
    length = np.diff(held.history.indptr)
    blended = np.where(length < 10, *(parts.naive(held, *row[1:]) for row in rows))
    assert blended.mean() > values.mean()


def test_each_group_has_the_best_blend_nearby() -> None:
    parts, held = two_kinds()
    rows = search(parts, held).by_length((0.1, 1.0))
    short = np.diff(held.history.indptr) == 2
    options = [(0.1 * f, 1.0 * g) for f in NEARBY for g in NEARBY]
    values = np.stack([parts.naive(held, *option) for option in options])
    for row, users in zip(rows, (short, ~short), strict=True):
        best = values[:, users].mean(1).max()
        chosen = parts.naive(held, *row[1:])[users].mean()
        assert chosen == pytest.approx(best)


def test_one_row_is_enough_where_groups_do_not_help() -> None:
    """Every part is as good for any length: what one half chooses is luck for the other."""
    for seed in range(3):
        held = held_out(LENGTHS, seed=seed)
        target = held.target.toarray()
        parts = Parts(
            2 * target + noise(90, seed), 2 * target + noise(90, 10 + seed), flat_noise(3)
        )
        found = search(parts, held, seed)
        rows, values = found.run(progress=False)
        assert len(rows) == 1
        np.testing.assert_allclose(values, parts.naive(held, *rows[0][1:]), rtol=1e-6)


@pytest.mark.parametrize("lengths", [[5] * 120, [5] * 80 + [9] * 40, [5] * 40 + [9] * 80])
def test_histories_shorter_than_any_validated_one_are_like_the_shortest(
    lengths: list[int],
) -> None:
    held = held_out(lengths)
    target = held.target.toarray()
    parts = Parts(noise(120, 1), 2 * target + noise(120, 2), flat_noise(3))
    rows = search(parts, held).by_length((0.2, 0.3))  # too little of the linear part
    starts = [0.0, 9.0][: len(set(lengths))]
    assert [row[0] for row in rows] == starts
    assert [row[2] for row in rows] == [0.6] * len(starts)


def test_a_blend_that_nothing_nearby_beats_stays_as_it_is() -> None:
    held = held_out(LENGTHS)
    parts = Parts(held.target.toarray() + 0.01 * noise(90, 1), noise(90, 2), flat_noise(3))
    assert search(parts, held).by_length((0.1, 0.03)) == ((0.0, 0.1, 0.03),)


# --- comparing scorings --------------------------------------------------------------------------


class Fixed(Model):
    """Scores from a matrix, by the row of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.store("matrix", torch.zeros(1))

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        return self.matrix[torch.from_numpy(users)]  # type: ignore[index,no-any-return]


@pytest.mark.parametrize("budget", [256, 1e-6])  # one block of users, and several
@pytest.mark.parametrize("ties", [False, True])
def test_compare_gives_the_metrics_of_models_with_these_scores(budget: float, ties: bool) -> None:
    held = held_out([row % 9 for row in range(150)], targets=5)
    evaluator = Evaluator(held, "cpu", budget=budget)
    matrices = [torch.from_numpy(noise(150, seed)).float() for seed in (1, 2, 3)]
    if ties:
        matrices = [matrix.round() for matrix in matrices]
    models = [Fixed() for _ in matrices]
    for model, matrix in zip(models, matrices, strict=True):
        model.store("matrix", matrix)

    def scorings(history: sp.csr_array, users: npt.NDArray[np.int64]) -> Iterator[Tensor]:
        for model in models:
            yield model.scores(history, users)

    keys = [f"{name}@{k}" for name in METRICS for k in (1, 5, 20, 100)]
    for key in [*keys, *FULL_METRICS]:
        found = evaluator.compare(scorings, key)
        assert found.shape == (3, 150)
        for row, model in zip(found, models, strict=True):
            values, _ = evaluator.values(model, [parse_metric(key)])
            np.testing.assert_allclose(row, values[key], rtol=1e-12, err_msg=key)
            assert row.mean() == pytest.approx(evaluator.metrics(model, key)[key])


def test_compare_leaves_users_without_targets_out() -> None:
    held = held_out([3] * 10)
    target = held.target.toarray()
    target[[2, 5]] = 0
    held = HeldOut(held.history, sp.csr_array(target), held.users, held.ids)
    scores = torch.from_numpy(noise(10, 1)).float()
    found = Evaluator(held, "cpu").compare(
        lambda history, users: iter([scores[torch.from_numpy(users)]]), "recall@30"
    )
    np.testing.assert_array_equal(found, np.ones((1, 8)))  # the whole catalogue finds everything


# --- users to choose on --------------------------------------------------------------------------


def same_users(first: HeldOut, second: HeldOut) -> bool:
    parts: list[Any] = [
        (h.ids, h.users, h.history.toarray(), h.target.toarray()) for h in (first, second)
    ]
    return all(np.array_equal(a, b) for a, b in zip(*parts, strict=True))


def test_few_users_are_all_taken() -> None:
    held = held_out(LENGTHS)
    assert same_users(sample_users(held, CPU), held)


def test_users_without_targets_are_never_taken() -> None:
    held = held_out([3] * 10)
    target = held.target.toarray()
    target[[2, 5]] = 0
    found = sample_users(HeldOut(held.history, sp.csr_array(target), held.users, held.ids), CPU)
    assert found.ids.tolist() == [100, 101, 103, 104, 106, 107, 108, 109]


def test_of_many_users_a_fixed_sample_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    held = held_out([2] * 1300)
    monkeypatch.setattr(evaluator, "COMPARED", {"cpu": ITEMS * 1100})
    found = sample_users(held, CPU)
    assert len(found) == 1100
    assert same_users(found, sample_users(held, CPU))
    assert not same_users(found, sample_users(held, CPU, seed=1))
    assert (np.diff(found.ids) > 0).all()
    rows = found.ids - 100
    expected = HeldOut(held.history[rows], held.target[rows], held.users[rows], held.ids[rows])
    assert same_users(found, expected)
    monkeypatch.setattr(evaluator, "COMPARED", {"cpu": 1})
    assert len(sample_users(held, CPU)) == 1000  # at least


def test_users_are_sampled_by_their_targets() -> None:
    held = held_out([2] * 1300)
    per_user = held.target.nnz / len(held)
    assert len(sample_users(held, CPU, targets=int(1200 * per_user))) == 1200
    assert len(sample_users(held, CPU, targets=1)) == 1000  # at least
    assert same_users(sample_users(held, CPU, targets=10**6), held)
