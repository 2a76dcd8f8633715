"""The search of a blend: known optima, groups by length, and values by user."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from itemfold.data.splitting.split import HeldOut
from itemfold.evaluation import evaluator
from itemfold.evaluation.evaluator import Evaluator, sample_users
from itemfold.evaluation.metrics import FULL_METRICS, METRICS, parse_metric
from itemfold.evaluation.ranking import top_items
from itemfold.models.base import Model
from itemfold.training.strategies import blend as blend_module
from itemfold.training.strategies.blend import GROUP_FACTORS, Blend, BlendSearch
from itemfold.training.strategies.chosen_sum import choose_sum
from itemfold.training.strategies.noise import standard_error
from itemfold.training.strategies.pool import places_of_targets

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


class Fixed(Model):
    """Scores from a matrix, by the row of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.store("matrix", torch.zeros(1))

    @classmethod
    def of(cls, matrix: npt.NDArray[Any]) -> Model:
        out = cls()
        out.store("matrix", torch.from_numpy(matrix).float())
        return out

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        return self.matrix[torch.from_numpy(users)].clone()  # type: ignore[index,no-any-return]


def noise(n: int, seed: int) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, ITEMS))


def flat_noise(seed: int) -> npt.NDArray[Any]:
    values = np.random.default_rng(seed).standard_normal(ITEMS)
    return (values - values.mean()) / values.std()


def naive(
    held: HeldOut, popularity: npt.NDArray[Any], prior: float, parts: list[Any], weights: Any
) -> npt.NDArray[Any]:
    """NDCG@20 of every user, item by item."""
    out = np.zeros(len(held))
    history, target = held.history.toarray(), held.target.toarray()
    for row, user in enumerate(held.users):
        score = prior * popularity
        for part, weight in zip(parts, weights, strict=True):
            score = score + weight * part[user] / part[user].std()
        if not held.repeats:
            score[history[row] > 0] = -np.inf
        best = np.argsort(-score, kind="stable")[:20]
        gain = sum(target[row, i] / np.log2(place + 2) for place, i in enumerate(best))
        out[row] = gain / sum(1 / np.log2(j + 2) for j in range(int(target[row].sum())))
    return out


def search(
    held: HeldOut,
    parts: dict[str, npt.NDArray[Any]],
    popularity: dict[str, npt.NDArray[Any]] | None = None,
    seed: int = 0,
) -> BlendSearch:
    given = popularity or {"never": flat_noise(3)}
    tensors = {name: torch.from_numpy(values).float() for name, values in given.items()}
    found = BlendSearch(held, tensors, "ndcg@20", CPU, seed)
    for name, matrix in parts.items():
        found.add(name, Fixed.of(matrix))
    return found


LENGTHS = [2 + row % 9 for row in range(90)]


@pytest.mark.parametrize("repeats", [False, True])
def test_values_are_those_of_a_naive_ranking(repeats: bool) -> None:
    held = held_out(LENGTHS)
    if repeats:  # most of the history is to be found again
        again = held.history.toarray() * (noise(90, 4) > -0.5)
        held = replace(held, target=sp.csr_array(held.target + again), repeats=True)
    network, linear, popularity = noise(90, 1), noise(90, 2), flat_noise(3)
    blends = [(0.0, (1.0, 0.0)), (0.5, (1.0, 0.1)), (1.0, (0.2, 8.0)), (3.0, (0.0, 0.0))]
    found = search(held, {"network": network, "linear": linear}, {"never": popularity})
    values = found.values([Blend("never", prior, weights) for prior, weights in blends])
    expected = [naive(held, popularity, p, [network, linear], w) for p, w in blends]
    np.testing.assert_allclose(values, np.stack(expected), rtol=1e-6)


def test_sums_are_ranked_among_the_best_items_of_each_part() -> None:
    """Among few of 30 items the values stay those of the whole catalogue for sums of few parts."""
    held = held_out(LENGTHS)
    linear = held.target.toarray() + 0.3 * noise(90, 2)
    found = search(held, {"linear": linear}, {"never": flat_noise(3)})
    whole = found.values([Blend("never", 0.2, (1.0,))])
    found._pool = {}
    monkey = pytest.MonkeyPatch()
    monkey.setattr(blend_module, "POOL_FACTOR", 1)  # 20 items of each part
    np.testing.assert_allclose(found.values([Blend("never", 0.2, (1.0,))]), whole, rtol=1e-6)
    monkey.undo()


def test_noise_is_left_out_of_a_perfect_part() -> None:
    held = held_out(LENGTHS)
    good = held.target.toarray() + 0.01 * noise(90, 1)
    blend, values = search(held, {"network": good, "linear": noise(90, 2)}).run()
    assert blend == Blend("never", 0.0, (1.0, 0.0))
    assert values.mean() > 0.97


@pytest.mark.parametrize("name", ["network", "linear", "other"])
def test_every_part_alone_can_be_chosen(name: str) -> None:
    held = held_out(LENGTHS)
    parts = {each: noise(90, seed) for seed, each in enumerate(("network", "linear", "other"))}
    parts[name] = held.target.toarray() + 0.01 * parts[name]
    found = search(held, parts)
    assert found.run()[0] == found.single_part(name)


@pytest.mark.parametrize("half_life", ["never", "30d"])
def test_pure_popularity_can_be_chosen(half_life: str) -> None:
    """Targets are the popular items that are not in the history; all parts are noise."""
    held = held_out(LENGTHS)
    popular = np.linspace(-1.7, 1.7, ITEMS)
    target = np.zeros((90, ITEMS), np.float32)
    for row, known in enumerate(held.history.toarray()):
        target[row, np.argsort(known * 100 - popular, kind="stable")[:3]] = 1
    held = HeldOut(held.history, sp.csr_array(target), held.users, held.ids)
    popularity = {"never": flat_noise(4), "30d": flat_noise(5), half_life: popular}
    found = search(held, {"network": noise(90, 1), "linear": noise(90, 2)}, popularity)
    blend, values = found.run()
    assert blend == found.popularity_alone(half_life)
    assert values.mean() == 1


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), signal=st.tuples(*[st.floats(0, 2)] * 3))
def test_the_sum_is_never_below_a_part(seed: int, signal: tuple[float, float, float]) -> None:
    held = held_out(LENGTHS, seed=seed)
    target = held.target.toarray()
    parts = {
        name: strength * target + noise(90, seed + place)
        for place, (name, strength) in enumerate(zip(("linear", "network"), signal, strict=False))
    }
    popularity = {"never": flat_noise(seed), "30d": signal[2] * target.mean(0) + flat_noise(seed)}
    found = search(held, parts, popularity)
    _, values = found.run()
    singles = [found.single_part(name) for name in parts] + [
        found.popularity_alone(h) for h in popularity
    ]
    for alone in found.values(singles):
        behind = alone - values
        assert behind.mean() <= standard_error(behind) + 0.003 * values.mean() + 1e-12


def test_two_parts_that_know_different_targets_are_summed() -> None:
    held = held_out(LENGTHS, targets=4)
    target = held.target.toarray()
    first = target * (np.arange(ITEMS) % 2 == 0) * 3 + 0.3 * noise(90, 1)
    second = target * (np.arange(ITEMS) % 2 == 1) * 3 + 0.3 * noise(90, 2)
    found = search(held, {"network": first, "linear": second})
    blend, values = found.run()
    assert all(blend.weights)
    assert values.mean() > found.values([found.single_part("network")]).mean() + 0.1


def test_of_weights_that_are_as_good_the_linear_part_gets_the_smallest() -> None:
    """Both parts know everything: any weight is as good."""
    held = held_out(LENGTHS)
    target = held.target.toarray()
    found = search(held, {"network": target * 3.0, "linear": target * 3.0})
    start = Blend("never", 0.0, (1.0, 1.0))
    assert found.run(start)[0].weights == (1.0, 0.5)


@pytest.mark.parametrize("has_times", [False, True])
def test_of_weights_that_are_as_good_popularity_gets_the_largest(has_times: bool) -> None:
    """The network knows everything, so a little popularity costs nothing; with times it shows."""
    held = held_out(LENGTHS)
    several = ("never", "30d") if has_times else ("never",)
    popularity = {name: flat_noise(3) for name in several}
    found = search(held, {"network": held.target.toarray() * 30.0}, popularity)
    start = Blend("never", 0.01, (1.0,))
    assert found.run(start)[0].prior == (0.01 if has_times else 0.02)


def test_the_same_seed_gives_the_same_blend() -> None:
    held = held_out(LENGTHS)
    target = held.target.toarray()
    parts = {"network": target + noise(90, 1), "linear": target + noise(90, 2)}
    results = [search(held, parts, seed=seed).run() for seed in (4, 4)]
    assert results[0][0] == results[1][0]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_a_part_of_the_same_name_is_replaced() -> None:
    held = held_out(LENGTHS)
    found = search(held, {"network": noise(90, 1)})
    before = found.values([found.single_part("network")])
    found.add("network", Fixed.of(held.target.toarray() + 0.01 * noise(90, 1)))
    assert found.names == ["network"]
    assert found.values([found.single_part("network")]).mean() > before.mean() + 0.5


# --- groups by the length of the history, and new users ------------------------------------------


def two_kinds(n: int = 240) -> tuple[dict[str, npt.NDArray[Any]], HeldOut]:
    """The linear part knows the targets of long histories only, the network of short ones only."""
    lengths = [2 if row % 2 else 10 for row in range(n)]
    held = held_out(lengths)
    target, short = held.target.toarray(), np.array(lengths)[:, None] == 2
    network = np.where(short, target, 0) * 3 + noise(n, 1)
    linear = np.where(short, 0, target) * 3 + noise(n, 2)
    return {"network": network, "linear": linear}, held


def test_groups_are_used_where_they_help() -> None:
    parts, held = two_kinds()
    found = search(held, parts)
    blend = Blend("never", 0.1, (1.0, 1.0))
    rows = found.by_history_length(blend)
    assert [least for least, _ in rows] == [0.0, 10.0]
    weights = [row.weights[1] / row.weights[0] for _, row in rows]
    assert weights[0] < weights[1]
    short = np.diff(held.history.indptr) == 2
    options = [Blend("never", 0.1 * f, (1.0, g)) for f in GROUP_FACTORS for g in GROUP_FACTORS]
    values = found.values(options)
    for (_, row), users in zip(rows, (short, ~short), strict=True):
        best = values[:, users].mean(1).max()
        assert found.values([row])[0][users].mean() == pytest.approx(best)


def test_one_row_is_enough_where_groups_do_not_help() -> None:
    """Every part is as good for any length: what one half chooses is luck for the other."""
    for seed in range(3):
        held = held_out(LENGTHS, seed=seed)
        target = held.target.toarray()
        parts = {
            "network": 2 * target + noise(90, seed),
            "linear": 2 * target + noise(90, seed + 9),
        }
        found = search(held, parts, seed=seed)
        assert len(found.by_history_length(found.run()[0])) == 1


def test_new_users_have_weights_of_their_own_where_they_differ() -> None:
    """The linear part knows the targets of new users, popularity those of known ones."""
    n = 120
    held = held_out([4] * n)
    is_new = np.arange(n) % 2 == 0
    popular = np.linspace(-1.7, 1.7, ITEMS)
    target = held.target.toarray()
    for row, known in enumerate(held.history.toarray()):
        if not is_new[row]:
            target[row] = 0
            target[row, np.argsort(known * 100 - popular, kind="stable")[:3]] = 1
    linear = np.where(is_new[:, None], target, 0) * 3 + 0.3 * noise(n, 1)
    rows = np.arange(n)

    class ByRow(Fixed):
        def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
            keys = {tuple(r): i for i, r in enumerate(held.history.toarray())}
            return self.matrix[[keys[tuple(r)] for r in history.toarray()]].clone()  # type: ignore

    users = np.where(is_new, -1, rows)
    held = HeldOut(held.history, sp.csr_array(target), users, held.ids)
    popularity = {"never": flat_noise(2), "7d": popular}
    tensors = {name: torch.from_numpy(values).float() for name, values in popularity.items()}
    found = BlendSearch(held, tensors, "ndcg@20", CPU)
    found.add("linear", ByRow.of(linear))
    chosen = choose_sum(found, found.run()[0])
    assert chosen.half_life == "7d"
    table = chosen.settings(["linear"])
    ((_, never, recent, weight),) = table["new_blend"]
    assert (never, recent, weight) == (0.0, 0.0, 1.0)
    ((_, _, recent, weight),) = table["blend"]
    assert recent > 0
    assert weight == 0 or recent > weight


def test_without_new_users_there_is_one_blend() -> None:
    held = held_out(LENGTHS)
    found = search(held, {"linear": held.target.toarray() + 0.1 * noise(90, 1)})
    chosen = choose_sum(found, found.run()[0])
    assert chosen.new is None
    assert chosen.uses("linear")
    assert not chosen.uses("network")
    assert chosen.settings(["linear"]) == {
        "blend": ((0.0, 0.0, 0.0, 1.0),),
        "popularity_half_life": "never",
    }


# --- values by user ------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [256, 1e-6])  # one block of users, and several
@pytest.mark.parametrize("ties", [False, True])
def test_a_part_alone_has_the_metrics_of_an_evaluation(budget: float, ties: bool) -> None:
    held = held_out([row % 9 for row in range(150)], targets=5)
    evaluator = Evaluator(held, "cpu", budget=budget)
    matrices = [torch.from_numpy(noise(150, seed)).float() for seed in (1, 2, 3)]
    if ties:
        matrices = [matrix.round() for matrix in matrices]
    models = [Fixed() for _ in matrices]
    for model, matrix in zip(models, matrices, strict=True):
        model.store("matrix", matrix)

    cuts = (20, 100) if ties else (1, 5, 20, 100)  # a tie may go on beyond five items for each k
    keys = [f"{name}@{k}" for name in METRICS for k in cuts]
    for key in [*keys, *FULL_METRICS]:
        found = BlendSearch(held, {"never": torch.zeros(ITEMS)}, key, CPU)
        for number, model in enumerate(models):
            found.add(f"other {number}", model)
        rows = found.values([found.single_part(name) for name in found.names])
        assert rows.shape == (3, 150)
        for row, model in zip(rows, models, strict=True):
            values, _ = evaluator.values(model, [parse_metric(key)])
            np.testing.assert_allclose(row, values[key], rtol=1e-12, err_msg=key)
            assert row.mean() == pytest.approx(evaluator.metrics(model, key)[key])


def test_users_without_targets_are_left_out() -> None:
    held = held_out([3] * 10)
    target = held.target.toarray()
    target[[2, 5]] = 0
    held = HeldOut(held.history, sp.csr_array(target), held.users, held.ids)
    found = BlendSearch(held, {"never": torch.zeros(ITEMS)}, "recall@30", CPU)
    found.add("linear", Fixed.of(noise(10, 1)))
    values = found.values([found.single_part("linear")])
    np.testing.assert_array_equal(values, np.ones((1, 8)))  # the whole catalogue finds everything


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
    held = held_out([2] * 2600)
    monkeypatch.setattr(evaluator, "COMPARED", {"cpu": ITEMS * 2200})
    found = sample_users(held, CPU)
    assert len(found) == 2200
    assert same_users(found, sample_users(held, CPU))
    assert not same_users(found, sample_users(held, CPU, seed=1))
    assert (np.diff(found.ids) > 0).all()
    rows = found.ids - 100
    expected = HeldOut(held.history[rows], held.target[rows], held.users[rows], held.ids[rows])
    assert same_users(found, expected)
    monkeypatch.setattr(evaluator, "COMPARED", {"cpu": 1})
    assert len(sample_users(held, CPU)) == 2000  # at least


def test_users_are_sampled_by_their_targets() -> None:
    held = held_out([2] * 2600)
    per_user = held.target.nnz / len(held)
    assert len(sample_users(held, CPU, targets=int(2300 * per_user))) == 2300
    assert len(sample_users(held, CPU, targets=1)) == 2000  # at least
    assert same_users(sample_users(held, CPU, targets=10**6), held)


@given(st.data())
def test_places_of_targets_are_those_of_a_sorted_list(draw: st.DataObject) -> None:
    users, pool, depth = (draw.draw(st.integers(1, most)) for most in (5, 12, 8))
    levels = st.sampled_from([-torch.inf, 0.0, 0.5, 1.0])  # with many ties
    size = users * pool
    scores = torch.tensor(draw.draw(st.lists(levels, min_size=size, max_size=size)))
    scores = scores.view(users, pool)
    wanted = draw.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    hits = torch.tensor(wanted).view(users, pool) & (scores > -torch.inf)
    top = top_items(scores, min(depth, pool))
    expected = hits.gather(1, top.clamp(min=0)) & (top >= 0)
    assert torch.equal(places_of_targets(scores, torch.nonzero(hits), min(depth, pool)), expected)
