"""Metrics of lists beyond accuracy, against loops over plain lists; re-ranked evaluation."""

import math
from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp
from small import random_matrix

import itemfold as ir
from itemfold.data.items.item_table import ItemTable
from itemfold.errors import ItemfoldError
from itemfold.evaluation import list_metrics
from itemfold.evaluation.metrics import TASTE_GROUPS, best_value, definitions
from itemfold.evaluation.tradeoff import Sweep, Sweeper, SweepPoint
from itemfold.reranking.similarity import unit_sets

DATA = ir.load("synthetic:users=150,items=120,interactions=3000")
SPLIT = ir.split_users(DATA, seed=0, rounding="nearest")
N_ITEMS = 40
LISTS = np.array([np.random.default_rng(n).permutation(N_ITEMS)[:8] for n in range(30)])
LISTS[3, 5:] = -1  # a shorter list
HISTORY = random_matrix(30, N_ITEMS, 0.2, seed=3)
POPULARITY = np.bincount(random_matrix(80, N_ITEMS, 0.1, seed=5).indices, minlength=N_ITEMS) ** 2
GENRES = [[g for g in "abcde" if (item * 5 + 2) % 31 >> "abcde".index(g) & 1] for item in range(40)]


@pytest.fixture(scope="module")
def run() -> ir.Run:
    return ir.train(SPLIT, ir.models.LightGCN(dim=16), epochs=6, eval_every=3)


def items_of(row: int) -> list[int]:
    return HISTORY.indices[HISTORY.indptr[row] : HISTORY.indptr[row + 1]].tolist()


def test_gini_is_the_mean_difference_of_all_pairs():
    counts = Counter(LISTS[LISTS >= 0].tolist())
    listed = [counts[item] for item in range(N_ITEMS)]
    differences = sum(abs(a - b) for a in listed for b in listed)
    expected = differences / (2 * N_ITEMS * sum(listed))
    assert list_metrics.gini(LISTS, N_ITEMS) == pytest.approx(expected)


def test_popularity_bias_of_groups_equals_loops():
    def mean(items):
        return float(np.mean([POPULARITY[item] for item in items]))

    known = [row for row in range(30) if items_of(row)]
    head = np.argsort(-POPULARITY, kind="stable")[: N_ITEMS // 5].tolist()
    shares = {row: np.mean([item in head for item in items_of(row)]) for row in known}
    order = sorted(known, key=lambda row: shares[row])
    edge = math.ceil(0.2 * len(order))
    expected = {
        "niche": order[:edge],
        "mixed": order[edge : len(order) - edge],
        "popular": order[len(order) - edge :],
    }
    groups = list_metrics.user_groups(HISTORY, POPULARITY)
    assert tuple(groups) == TASTE_GROUPS
    for name, rows in expected.items():
        assert groups[name].tolist() == rows
        lists = np.mean([mean(i for i in LISTS[row] if i >= 0) for row in rows])
        histories = np.mean([mean(items_of(row)) for row in rows])
        found = list_metrics.popularity_bias(LISTS, HISTORY, POPULARITY, groups[name])
        assert found == pytest.approx(lists / histories - 1)


def test_recall_of_head_and_tail_equals_a_loop():
    target = random_matrix(30, N_ITEMS, 0.15, seed=9)
    wanted = [set(row.nonzero()[0].tolist()) for row in target.toarray()]
    hits = np.array([[item in wanted[row] for item in LISTS[row]] for row in range(30)])
    head = set(np.argsort(-POPULARITY, kind="stable")[: N_ITEMS // 5].tolist())
    tail = list_metrics.long_tail(POPULARITY)
    for part, items in ((~tail, head), (tail, set(range(N_ITEMS)) - head)):
        found = sum(len(set(LISTS[row]) & wanted[row] & items) for row in range(30))
        expected = found / sum(len(wanted[row] & items) for row in range(30))
        assert list_metrics.part_recall(LISTS, hits, target, part) == pytest.approx(expected)


def test_the_recall_of_all_targets_is_between_head_and_tail(run):
    found = ir.evaluate(run, SPLIT, metrics=["head_recall@20", "tail_recall@20"]).metrics
    assert 0 <= found["tail_recall@20"] < found["head_recall@20"] <= 1


def test_miscalibration_is_the_divergence_of_genres():
    multi_hot = unit_sets(sp.csr_array([[g in genres for g in "abcde"] for genres in GENRES]))
    found = list_metrics.miscalibration(LISTS, HISTORY, multi_hot)

    def shares(items):
        total = Counter()
        for item in items:
            for genre in GENRES[item]:
                total[genre] += 1 / len(GENRES[item])
        return {genre: total[genre] / sum(total.values()) for genre in total}

    for row, value in enumerate(found):
        p, q = shares(items_of(row)), shares(item for item in LISTS[row] if item >= 0)
        mixed = {genre: 0.99 * q.get(genre, 0) + 0.01 * p[genre] for genre in p}
        expected = sum(p[genre] * math.log(p[genre] / mixed[genre]) for genre in p)
        assert value == pytest.approx(expected, abs=1e-6)
    same = np.array([[0, 1, 2]])
    itself = sp.csr_array(([1.0] * 3, [0, 1, 2], [0, 3]), shape=(1, N_ITEMS))
    assert list_metrics.miscalibration(same, itself, multi_hot)[0] == pytest.approx(0, abs=1e-6)


def test_the_best_value_of_each_metric_and_the_definitions():
    assert best_value("miscalibration@20", [0.3, 0.1]) == 0.1
    assert best_value("coverage@20", [0.3, 0.1]) == 0.3
    assert best_value("popularity_bias_niche@20", [0.3, -0.1]) == -0.1
    assert best_value("genre_diversity@20", [0.3, 0.1]) == 0.3
    assert best_value("diversity@20", [0.3, 0.1]) is None
    names = ["ndcg@20", "popularity_bias@20", "popularity_bias_niche@20", "gini@5"]
    assert [text.partition(" ")[0] for text in definitions(names)] == ["popularity_bias", "gini"]


# --- steered evaluation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steering",
    [
        ir.Steering(diversity=0.6),
        ir.Steering(popularity_discount=0.5, max_per={"genre": 2}),
        ir.Steering(long_tail=0.5),
    ],
)
def test_evaluation_measures_the_lists_that_are_recommended(run, steering):
    found = ir.evaluate(run, SPLIT, k=[4, 10], steering=steering)
    recommender, held = ir.Recommender(run), SPLIT.test
    for cut in (4, 10):
        for row in range(len(held)):
            history = held.history[[row]].indices
            ids = DATA.item_ids.external(history).tolist()
            picks = recommender.recommend(history=ids, k=cut, steering=steering)
            rows = DATA.item_ids.index([pick.item for pick in picks])
            hits = np.isin(rows, held.target[[row]].indices)
            expected = hits.sum() / len(held.target[[row]].indices)
            assert found.per_user[f"recall@{cut}"][row] == pytest.approx(expected)


def test_without_settings_nothing_changes_and_with_them_the_purpose_is_reached(run):
    plain = ir.evaluate(run, SPLIT, k=10)
    same = ir.evaluate(run, SPLIT, k=10, steering=ir.Steering())
    assert plain.metrics == same.metrics
    varied = ir.evaluate(run, SPLIT, k=10, steering=ir.Steering(diversity=0.7))
    assert varied.metrics["diversity@10"] > plain.metrics["diversity@10"]
    by_genre = ir.Steering(diversity=0.7, diversity_by="genre")
    genres = ir.evaluate(run, SPLIT, k=10, steering=by_genre)
    assert genres.metrics["genre_diversity@10"] > plain.metrics["genre_diversity@10"]
    rare = ir.evaluate(run, SPLIT, k=10, steering=ir.Steering(popularity_discount=0.7))
    assert rare.metrics["popularity_bias@10"] < plain.metrics["popularity_bias@10"]
    assert rare.metrics["gini@10"] < plain.metrics["gini@10"]


def test_only_available_items_are_ranked(run):
    available = DATA.item_ids.ids[::3].tolist()
    few = ir.evaluate(run, SPLIT, k=10, item_table=ItemTable(available=available))
    assert few.metrics["coverage@10"] <= len(available) / DATA.n_items


def test_what_cannot_be_measured_is_reported(run):
    with pytest.raises(
        ItemfoldError, match="'ndcg' needs the whole ranking; re-ranked lists are cut"
    ):
        ir.evaluate(run, SPLIT, metrics=["ndcg"], steering=ir.Steering(diversity=0.1))
    with pytest.raises(ItemfoldError, match="'steering' must be a Steering"):
        ir.evaluate(run, SPLIT, steering=0.3)
    matrix = ir.split_users(ir.read(random_matrix(60, 30, 0.3)))
    bare = ir.train(matrix, ir.models.EASE())
    assert "miscalibration@20" not in ir.evaluate(bare, matrix).metrics
    with pytest.raises(ItemfoldError, match="'miscalibration@5' needs genres, and the data has"):
        ir.evaluate(bare, matrix, metrics=["miscalibration@5"])


# --- sweeps --------------------------------------------------------------------------------------


def test_a_sweep_has_the_metrics_of_single_evaluations(run):
    sweeper = Sweeper(run, SPLIT, k=10)
    base = ir.Steering(max_per={"genre": 4})
    points = list(sweeper.sweep("diversity", base, values=(0.0, 0.5)))
    for point in points:
        steering = ir.Steering(diversity=point.value, max_per={"genre": 4})
        single = ir.evaluate(run, SPLIT, k=10, steering=steering).metrics
        assert point.metrics == {name: pytest.approx(single[name]) for name in point.metrics}
    with pytest.raises(ItemfoldError, match="'sweep' must be diversity, popularity_discount"):
        next(sweeper.sweep("variety"))
    assert len(Sweeper(run, SPLIT, most_users=4).evaluator.held) == 4


def test_what_a_loss_buys_lies_between_two_values():
    values = [(0.0, 0.5, 0.4), (0.5, 0.495, 0.44), (1.0, 0.475, 0.6)]
    points = [SweepPoint(v, {"ndcg@5": n, "diversity@5": d}) for v, n, d in values]
    sweep = Sweep("diversity", 5, 10, tuple(points))
    slider, change = sweep.at_loss(0.02, "diversity")
    assert slider == pytest.approx(0.625)  # a quarter of the way from 0.495 to 0.475
    assert change == pytest.approx((0.44 + 0.25 * 0.16) / 0.4 - 1)
    assert sweep.at_loss(0.5, "diversity") is None
