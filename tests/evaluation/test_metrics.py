"""Metrics against loops over plain lists, torch-geometric's, and each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import metrics as pyg

from itemfold.errors import ItemfoldError
from itemfold.evaluation import metrics
from itemfold.evaluation.metrics import FULL_METRICS, METRICS, parse_metric

ITEMS, TOP = 30, 12


def rankings(seed: int = 0, users: int = 25) -> tuple[list[list[int]], list[set[int]]]:
    """A whole ranking of the catalogue and a set of targets of each user, the sizes 1 to 20."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(ITEMS).tolist() for _ in range(users)]
    targets = [set(rng.choice(ITEMS, rng.integers(1, 21), False).tolist()) for _ in range(users)]
    return orders, targets


def hits_of(orders: list[list[int]], targets: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    hits = [[i in t for i in order[:TOP]] for order, t in zip(orders, targets, strict=True)]
    return np.array(hits), np.array([len(t) for t in targets])


def ranks_of(orders: list[list[int]], targets: list[set[int]]) -> tuple[np.ndarray, np.ndarray]:
    pairs = [
        (o.index(i) + 1, u) for u, (o, t) in enumerate(zip(orders, targets, strict=True)) for i in t
    ]
    ranks, rows = np.array(pairs).T
    return ranks, rows


def naive(name: str, order: list[int], target: set[int], k: int) -> float:
    found = [j for j, item in enumerate(order[:k], 1) if item in target]
    best = min(len(target), k)
    if name == "recall":
        return len(found) / len(target)
    if name == "capped_recall":
        return len(found) / best
    if name == "ndcg":
        ideal = sum(1 / math.log2(1 + j) for j in range(1, best + 1))
        return sum(1 / math.log2(1 + j) for j in found) / ideal
    if name == "ap":
        return sum(n / j for n, j in enumerate(found, 1)) / best
    if name == "precision":
        return len(found) / k
    if name == "hit":
        return float(bool(found))
    return 1 / found[0] if found else 0.0


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("k", [1, 5, TOP])
def test_cut_metrics_equal_loops(name: str, k: int) -> None:
    orders, targets = rankings()
    hits, n_target = hits_of(orders, targets)
    expected = [naive(name, o, t, k) for o, t in zip(orders, targets, strict=True)]
    assert METRICS[name](hits, n_target, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", FULL_METRICS)
def test_full_metrics_equal_loops_in_any_order(name: str) -> None:
    orders, targets = rankings()
    ranks, rows = ranks_of(orders, targets)
    expected = [naive(name, o, t, ITEMS) for o, t in zip(orders, targets, strict=True)]
    shuffle = np.random.default_rng(1).permutation(len(ranks))
    for order in (np.arange(len(ranks)), shuffle):
        values = FULL_METRICS[name](ranks[order], rows[order], len(orders))
        assert values == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("recall", pyg.LinkPredRecall),
        ("ndcg", pyg.LinkPredNDCG),
        ("ap", pyg.LinkPredMAP),
        ("precision", pyg.LinkPredPrecision),
        ("hit", pyg.LinkPredHitRatio),
        ("mrr", pyg.LinkPredMRR),
    ],
)
def test_means_agree_with_torch_geometric(name: str, peer: type) -> None:
    orders, targets = rankings(seed=3)
    hits, n_target = hits_of(orders, targets)
    theirs = peer(k=10)
    edges = [(u, i) for u, t in enumerate(targets) for i in t]
    theirs.update(torch.tensor([o[:TOP] for o in orders]), torch.tensor(edges).T)
    assert METRICS[name](hits, n_target, 10).mean() == pytest.approx(
        float(theirs.compute()), abs=1e-6
    )


def test_coverage_agrees_with_torch_geometric() -> None:
    orders, _ = rankings(users=4)
    theirs = pyg.LinkPredCoverage(k=5, num_dst_nodes=ITEMS)
    theirs.update(torch.tensor(orders), torch.empty(2, 0, dtype=torch.long))
    assert metrics.coverage(np.array(orders), ITEMS, 5) == pytest.approx(float(theirs.compute()))


def test_padding_of_short_lists_does_not_count_as_an_item() -> None:
    assert metrics.coverage(np.array([[0, -1], [0, -1]]), 4, 2) == 0.25
    novelty = metrics.novelty(np.array([[1, -1], [-1, -1]]), np.array([3, 1]), 2)
    assert novelty[0] == 2.0  # one interaction in four: two bits
    assert math.isnan(novelty[1])


def test_novelty_is_the_mean_information_of_the_top() -> None:
    popularity = np.array([8, 4, 4, 0])
    values = metrics.novelty(np.array([[0, 1, 2], [2, 3, 0]]), popularity, 2)
    assert values.tolist() == [1.5, 3.0]  # item 3 counts as seen once: 4 bits


@pytest.mark.parametrize("name", METRICS)
def test_a_user_without_targets_has_no_value(name: str) -> None:
    values = METRICS[name](np.array([[False, False], [True, False]]), np.array([0, 1]), 2)
    assert np.isnan(values).tolist() == [True, False]


@pytest.mark.parametrize("name", FULL_METRICS)
def test_no_targets_no_value_on_the_whole_list(name: str) -> None:
    values = FULL_METRICS[name](np.array([1]), np.array([1]), 3)
    assert np.isnan(values).tolist() == [True, False, True]
    assert values[1] == 1.0


@pytest.mark.parametrize("k", [0, TOP + 1])
def test_a_cut_beyond_the_list_is_rejected(k: int) -> None:
    with pytest.raises(ItemfoldError, match=f"'k' must be between 1 and {TOP}, got {k}"):
        metrics.recall(*hits_of(*rankings()), k)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, TOP))
def test_properties_of_all_metrics(seed: int, k: int) -> None:
    orders, targets = rankings(seed, users=5)
    hits, n_target = hits_of(orders, targets)
    values = {name: metric(hits, n_target, k) for name, metric in METRICS.items()}
    assert all(((v >= 0) & (v <= 1)).all() for v in values.values())
    assert (values["recall"] <= values["capped_recall"]).all()
    assert (values["ap"] <= values["capped_recall"] + 1e-12).all()
    assert ((values["hit"] > 0) == (values["precision"] > 0)).all()
    # a list with all targets first is perfect where that is possible
    ideal = np.arange(TOP) < n_target[:, None]
    for name in ("capped_recall", "ndcg", "ap", "hit", "mrr"):
        assert METRICS[name](ideal, n_target, k) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "name", "k", "key"),
    [
        ("NDCG@10", "ndcg", 10, "ndcg@10"),
        (" Recall@20 ", "recall", 20, "recall@20"),
        ("capped-recall@5", "capped_recall", 5, "capped_recall@5"),
        ("MAP", "ap", None, "ap"),
        ("hit_rate@1", "hit", 1, "hit@1"),
        ("coverage@20", "coverage", 20, "coverage@20"),
    ],
)
def test_metric_names_in_common_spellings(text: str, name: str, k: int | None, key: str) -> None:
    metric = parse_metric(text)
    assert (metric.name, metric.k, metric.key) == (name, k, key)


@pytest.mark.parametrize("text", ["ndgc@10", "recall", "novelty", "", "@10"])
def test_an_unknown_metric_lists_the_choices(text: str) -> None:
    with pytest.raises(ItemfoldError, match=r"must be one of recall@k.*capped_recall@k.*novelty@k"):
        parse_metric(text)


@pytest.mark.parametrize("text", ["ndcg@0", "ndcg@", "ndcg@-1", "ndcg@ten", "ndcg@1.5", "ndcg@²"])
def test_a_bad_cut_off_is_reported(text: str) -> None:
    with pytest.raises(ItemfoldError, match="'k' must be a positive integer"):
        parse_metric(text)
