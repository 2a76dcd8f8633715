import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small import board_split, random_matrix
from torch import Tensor

import itemfold as ir
from itemfold.data.interactions import IdMap
from itemfold.data.splitting.split import HeldOut, Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.evaluate import evaluate, joint_scorer
from itemfold.evaluation.evaluator import Evaluator
from itemfold.evaluation.metrics import Metric, parse_metric
from itemfold.evaluation.ranking import ROW_BLOCK, top_items, top_items_for_all
from itemfold.graph.graph import Graph
from itemfold.models import EASE, GAT, GCN, GNN, MF, LightGCN, Model, Popularity
from itemfold.models.base import Kind
from itemfold.reranking.item_facts import ItemFacts
from itemfold.training.fit import train

CUT = ("recall", "capped_recall", "ndcg", "ap", "precision", "hit", "mrr")


class Given(Model):
    """Predefined scores, one row per user."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    @classmethod
    def of(cls, table: Any) -> Model:
        model = cls()
        model.store("table", torch.as_tensor(table, dtype=torch.float32))
        return model

    def scores(self, history: sp.csr_array, users: Any) -> Tensor:
        self.calls.append(len(users))
        return self.table[torch.as_tensor(users)].clone()


def held_of(known: np.ndarray, target: np.ndarray) -> HeldOut:
    rows = len(known)
    return HeldOut(
        sp.csr_array(known.astype(np.float32)),
        sp.csr_array(target.astype(np.float32)),
        np.arange(rows),
        np.arange(rows) + 500,
    )


@st.composite
def cases(draw: Any) -> tuple[np.ndarray, HeldOut]:
    """A few users with scores (many of them equal), histories and at least one target each."""
    rows, items = draw(st.integers(1, 5)), draw(st.integers(2, 9))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    levels = draw(st.sampled_from([1, 2, 3, 1000]))
    scores = rng.integers(0, levels, (rows, items)).astype(np.float32)
    kind = rng.choice(3, (rows, items), p=[0.4, 0.3, 0.3])
    for row in range(rows):
        kind[row, rng.integers(items)] = 2
    return scores, held_of(kind == 1, kind == 2)


def ranking(scores: np.ndarray, known: np.ndarray) -> list[int]:
    """Items that are not known, best first, ties to the lower item."""
    return sorted(np.flatnonzero(~known), key=lambda item: (-scores[item], item))


def naive(name: str, k: int | None, order: list[int], targets: set[int]) -> float:
    """A metric by its definition, with loops over one user's list."""
    top = order if k is None else order[:k]
    hits = [item in targets for item in top]
    found = sum(hits)
    most = len(targets) if k is None else min(k, len(targets))
    if name == "recall":
        return found / len(targets)
    if name == "capped_recall":
        return found / most
    if name == "precision":
        return found / k
    if name == "hit":
        return float(found > 0)
    if name == "mrr":
        return max((1 / (place + 1) for place, hit in enumerate(hits) if hit), default=0.0)
    if name == "ap":
        total = 0.0
        for place, hit in enumerate(hits):
            if hit:
                total += sum(hits[: place + 1]) / (place + 1)
        return total / most
    ideal = sum(1 / math.log2(place + 2) for place in range(most))
    return sum(1 / math.log2(place + 2) for place, hit in enumerate(hits) if hit) / ideal


@given(cases(), st.integers(1, 9))
def test_metrics_equal_naive_loops_over_sorted_lists(
    case: tuple[np.ndarray, HeldOut], k: int
) -> None:
    scores, held = case
    k = min(k, scores.shape[1])
    wanted = [*(Metric(name, k) for name in CUT), *map(parse_metric, ("ndcg", "ap", "mrr"))]
    n_items, model = scores.shape[1], Given.of(scores)
    train = sp.csr_array(np.triu(np.ones((n_items, n_items), dtype=np.float32)))
    facts = ItemFacts(model, train, IdMap(np.arange(n_items)), None, None, None)
    popularity = np.arange(n_items) + 1
    both = [*wanted, Metric("coverage", k), Metric("novelty", k)]
    values, catalogue = Evaluator(held, "cpu").values(model, both, facts)
    known, target = held.history.toarray() > 0, held.target.toarray() > 0
    orders = [ranking(*row) for row in zip(scores, known, strict=True)]
    for metric in wanted:
        expected = [
            naive(metric.name, metric.k, order, set(np.flatnonzero(row)))
            for order, row in zip(orders, target, strict=True)
        ]
        np.testing.assert_allclose(values[metric.key], expected, atol=1e-12, err_msg=metric.key)
    listed = {item for order in orders for item in order[:k]}
    assert catalogue[f"coverage@{k}"] == len(listed) / scores.shape[1]
    bits = [-np.log2(popularity[order[:k]] / popularity.sum()).mean() for order in orders]
    assert catalogue[f"novelty@{k}"] == pytest.approx(np.mean(bits))


@given(cases(), st.integers(1, 12))
def test_top_items_are_the_sorted_list(case: tuple[np.ndarray, HeldOut], k: int) -> None:
    scores, held = case
    known = held.history.toarray() > 0
    masked = torch.from_numpy(np.where(known, -np.inf, scores))
    for best, row, out in zip(top_items(masked, k), scores, known, strict=True):
        order = ranking(row, out)[:k]
        listed = [item for item in best.tolist() if item >= 0]
        assert listed == order  # no known items, ties to the lower item
        assert best.tolist() == order + [-1] * (min(k, len(row)) - len(order))


@given(cases(), st.integers(1, 12))
def test_lists_of_the_same_scores_are_those_of_each_user(
    case: tuple[np.ndarray, HeldOut], k: int
) -> None:
    scores, held = case
    same = torch.from_numpy(scores[0].astype(np.float32))
    known = torch.from_numpy(held.history.toarray() > 0)
    k = min(k, len(same))
    expected = top_items(same.expand(len(known), -1).masked_fill(known, -torch.inf), k)
    assert top_items_for_all(same, held.history, k).tolist() == expected.tolist()


def test_ties_in_a_large_catalogue_go_to_the_lower_item() -> None:
    """topk alone does not define their order, which shows only beyond a few hundred items."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 3, (20, 5000), generator=generator).float()
    expected = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :20]
    assert torch.equal(top_items(scores, 20), expected)
    assert top_items(torch.zeros(2, 5000), 3).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize("k", [5, 6, 100])
def test_a_cut_beyond_the_catalogue_is_the_whole_catalogue(k: int) -> None:
    scores = np.array([[5.0, 4.0, 3.0, 2.0, 1.0]])
    held = held_of(np.array([[1, 0, 0, 0, 0]]), np.array([[0, 0, 1, 0, 1]]))
    wanted = [Metric(name, k) for name in CUT]
    values, _ = Evaluator(held, "cpu").values(Given.of(scores), wanted)
    for metric in wanted:
        expected = naive(metric.name, 5, [1, 2, 3, 4], {2, 4})
        assert values[metric.key] == pytest.approx(expected), metric.key


# --- budgets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EASE, LightGCN, GCN, GAT, Popularity])
def test_results_are_the_same_to_the_last_bit_for_any_budget(kind: type[Model]) -> None:
    matrix = random_matrix(700, 90, 0.15, seed=1)
    model = kind() if kind in (EASE, Popularity) else kind(dim=24)
    model.setup(matrix, inductive=True, generator=torch.Generator().manual_seed(0))
    if model.kind is Kind.CLOSED_FORM:
        model.solve(matrix)
    model.cache_embeddings(Graph.from_csr(matrix))
    target = random_matrix(700, 90, 0.1, seed=2).toarray() * (1 - matrix.toarray())
    target[:, 0] = 1 - matrix.toarray()[:, 0]
    rows = np.flatnonzero(target.any(1))
    held = held_of(matrix.toarray()[rows], target[rows])
    held = replace(held, users=np.full(len(rows), -1))
    names = ("ndcg@20", "ap@5", "recall@50", "ndcg", "ap", "coverage@3", "diversity@20", "gini@5")
    wanted = [parse_metric(name) for name in names]
    facts = ItemFacts(model, matrix, IdMap(np.arange(90)), None, None, None)
    outcomes = [
        Evaluator(held, "cpu", budget=budget).values(model, wanted, facts)
        for budget in (1e-9, 64 * 90 * 4 / 2**20, 0.1, 256)
    ]
    for values, catalogue in outcomes[1:]:
        assert catalogue == outcomes[0][1]
        for name, value in values.items():
            assert np.array_equal(value, outcomes[0][0][name]), name


def test_blocks_in_several_threads_equal_one_after_another() -> None:
    matrix = random_matrix(700, 90, 0.15, seed=1)
    target = random_matrix(700, 90, 0.1, seed=2).toarray() * (1 - matrix.toarray())
    held, model = held_of(matrix.toarray(), target), EASE()
    model.setup(matrix, inductive=True, generator=torch.Generator())
    model.solve(matrix)
    evaluator = Evaluator(held, "cpu", budget=1e-9)
    wanted = [parse_metric(name) for name in ("ndcg@20", "ap@5", "ndcg")]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        several, _ = evaluator.values(model, wanted)
    finally:
        torch.set_num_threads(before)
    blocks = list(evaluator.blocks(model))
    assert len(blocks) > 3
    single, _ = evaluator.values_of(blocks, wanted)
    assert all(np.array_equal(single[name], several[name]) for name in single)


def test_blocks_keep_to_the_budget() -> None:
    n = 5 * ROW_BLOCK + 3
    known = np.zeros((n, 10), bool)
    target = np.zeros((n, 10), bool)
    target[:, 0] = True
    model = Given.of(np.zeros((n, 10)))
    Evaluator(held_of(known, target), "cpu", budget=2 * ROW_BLOCK * 10 * 4 / 2**20).metrics(
        model, "ndcg@3"
    )
    assert model.calls == [2 * ROW_BLOCK, 2 * ROW_BLOCK, 2 * ROW_BLOCK]  # the last one is padded
    with pytest.raises(ItemfoldError, match="'budget' must be a positive number of MB, got 0"):
        Evaluator(held_of(known, target), "cpu", budget=0)


# --- evaluate ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def split() -> Split:
    return board_split("inductive")


@pytest.fixture(scope="module")
def encoder(split: Split) -> GNN:
    model = GCN(dim=8)
    model.setup(split.train, inductive=True, generator=torch.Generator().manual_seed(0))
    model.cache_embeddings(Graph.from_csr(split.train))
    model.eval()
    return model


@pytest.mark.parametrize("part", ["valid", "test"])
def test_evaluate_uses_the_given_part(split: Split, encoder: GNN, part: str) -> None:
    held = getattr(split, part)
    result = evaluate(encoder, split, k=[3, 10], part=part)
    scores = encoder.scores(held.history, held.users).numpy()
    known, target = held.history.toarray() > 0, held.target.toarray() > 0
    assert result.ids.tolist() == held.ids.tolist()
    assert result.history.tolist() == known.sum(1).tolist()
    for k in (3, 10):
        for name in CUT:
            each = [
                naive(name, k, ranking(s, h), set(np.flatnonzero(t)))
                for s, h, t in zip(scores, known, target, strict=True)
            ]
            np.testing.assert_allclose(result.per_user[f"{name}@{k}"], each)
            assert result.metrics[f"{name}@{k}"] == pytest.approx(np.mean(each))
        assert {f"coverage@{k}", f"novelty@{k}"} <= result.metrics.keys()


def test_evaluate_takes_metrics_by_name_and_gives_intervals(split: Split, encoder: GNN) -> None:
    result = evaluate(encoder, split, metrics=["NDCG@5", "MAP", "coverage@5"])
    assert list(result.metrics) == ["ndcg@5", "ap", "coverage@5"]
    low, high = result.interval("ndcg@5")
    assert low <= result.metrics["ndcg@5"] <= high
    assert f"{result.metrics['ap']:.4f}" in str(result)
    with pytest.raises(ItemfoldError, match="'metric' must be one of ndcg@5, ap, got 'coverage@5'"):
        result.interval("coverage@5")


def test_a_missing_part_is_reported(split: Split, encoder: GNN) -> None:
    with pytest.raises(ItemfoldError, match="this split has no valid part"):
        evaluate(encoder, replace(split, valid=None), part="valid")


def test_users_without_targets_do_not_count(split: Split, encoder: GNN) -> None:
    test = split.test
    extra = held_of(test.history.toarray()[:1], np.zeros((1, split.n_items)))
    more = HeldOut(
        sp.csr_array(sp.vstack([test.history, extra.history])),
        sp.csr_array(sp.vstack([test.target, extra.target])),
        np.append(test.users, -1),
        np.append(test.ids, "nobody"),
    )
    both = [
        evaluate(encoder, replace(split, test=held), metrics=["ndcg@5", "ap", "precision@2"])
        for held in (test, more)
    ]
    assert both[0].metrics == both[1].metrics
    assert both[0].ids.tolist() == both[1].ids.tolist()
    empty = replace(test, target=sp.csr_array(test.target.shape, dtype=np.float32))
    with pytest.raises(ItemfoldError, match="must have a user with a target"):
        evaluate(encoder, replace(split, test=empty))


def test_popularity_ties_are_broken_by_the_lower_item() -> None:
    """All items are equally popular: every user gets the first items outside the history."""
    matrix = sp.csr_array(np.ones((4, 6), np.float32))
    model = Popularity()
    model.setup(matrix, inductive=False, generator=torch.Generator())
    model.solve(matrix)
    known = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 1, 0, 0, 0]])
    held = held_of(known, np.array([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1]]))
    values, _ = Evaluator(held, "cpu").values(model, [Metric("mrr", 6)])
    assert values["mrr@6"].tolist() == [1.0, 0.25]  # lists 1 2 4 5 and 0 3 4 5


# --- joint folding in ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LightGCN, GCN, GAT])
def test_joint_folding_in_is_the_larger_graph(split: Split, kind: type[GNN]) -> None:
    model = kind(dim=8)
    model.setup(split.train, inductive=True, generator=torch.Generator().manual_seed(0))
    model.cache_embeddings(Graph.from_csr(split.train))
    whole = sp.csr_array(sp.vstack([split.train, split.test.history]))
    with torch.no_grad():
        users, items = model.encode(Graph.from_csr(whole))
    expected = Given.of(users[split.n_users :] @ items.T)
    by_hand = replace(split.test, users=np.arange(len(split.test)))
    values, _ = Evaluator(by_hand, "cpu").values(expected, [Metric("ndcg", None), Metric("ap", 10)])
    result = evaluate(model, split, metrics=["ndcg", "ap@10"], fold_in="joint")
    for name, value in values.items():
        np.testing.assert_allclose(result.per_user[name], value)
    frozen = evaluate(model, split, metrics=["ndcg", "ap@10"])
    assert result.metrics != frozen.metrics  # the new edges have an effect
    scorer = joint_scorer(model, split, split.test)
    assert scorer.user_vectors.shape == (len(split.test), 8)


def test_joint_folding_in_needs_messages_and_unseen_users(split: Split) -> None:
    with pytest.raises(ItemfoldError, match="'fold_in' must be frozen for EASE"):
        evaluate(_fitted(EASE(), split), split, fold_in="joint")
    with pytest.raises(ItemfoldError, match="'fold_in' must be frozen or joint, got 'both'"):
        evaluate(_fitted(EASE(), split), split, fold_in="both")
    known = board_split()
    model = LightGCN(dim=8)
    model.setup(known.train, inductive=False, generator=torch.Generator().manual_seed(0))
    model.cache_embeddings(Graph.from_csr(known.train))
    with pytest.raises(ItemfoldError, match="'fold_in' must be frozen in the transductive"):
        evaluate(model, known, fold_in="joint")


def _fitted(model: Model, split: Split) -> Model:
    model.setup(split.train, inductive=True, generator=torch.Generator())
    model.solve(split.train)
    return model


@settings(max_examples=10)
@given(st.integers(0, 1000))
def test_items_of_the_history_are_never_recommended(seed: int) -> None:
    matrix = random_matrix(12, 15, 0.5, seed)
    model = MF(dim=4)
    model.setup(matrix, inductive=False, generator=torch.Generator().manual_seed(seed))
    model.cache_embeddings(Graph.from_csr(matrix))
    held = held_of(matrix.toarray(), 1 - matrix.toarray())
    values, _ = Evaluator(held, "cpu").values(model, [Metric("precision", 1)])
    assert (values["precision@1"] == 1).all()  # all other items are targets, so the first is one


def test_a_run_and_its_model_have_the_same_metrics() -> None:
    split = board_split()
    run = train(split, Popularity(), refit=False, device="cpu")
    assert evaluate(run, split).metrics == evaluate(run.model, split).metrics
    assert run.metrics["test"] == evaluate(run, split).metrics
    expected = evaluate(run, split, metrics=["ndcg@20"], part="valid").metrics
    assert run.metrics["valid"]["ndcg@20"] == expected["ndcg@20"]


def test_a_refitted_run_is_not_evaluated_on_validation_data():
    split = ir.split_interactions(ir.load("synthetic:users=60,items=60,interactions=900"))
    run = ir.train(split, ir.models.MF(dim=4), epochs=2, eval_every=1)
    assert run.metrics["refit"]
    with pytest.raises(ItemfoldError, match="'part' must be test for a refitted run"):
        ir.evaluate(run, split, part="valid")


# --- what a run may be evaluated on --------------------------------------------------------------


def test_a_run_is_not_evaluated_on_its_training_data() -> None:
    data = ir.load("synthetic:users=60,items=40,interactions=700")
    own, other = ir.split_interactions(data, seed=0), ir.split_interactions(data, seed=1)
    for refit in (True, False):
        run = train(own, EASE(), refit=refit)
        assert evaluate(run, own).metrics == run.metrics["test"]  # for either split
        with pytest.raises(ir.LeakError, match="is also in training"):
            evaluate(run, other)
        with pytest.raises(ir.LeakError, match="is also a training user"):
            evaluate(run, ir.split_users(data))
    with pytest.raises(ItemfoldError, match="users and items of the run"):
        evaluate(run, board_split())


@pytest.mark.parametrize("k", [np.int64(5), 5, [5], (5,)])
def test_a_cut_off_is_any_integer_type(k: Any) -> None:
    split = board_split()
    assert "ndcg@5" in evaluate(train(split, Popularity()), split, k=k).metrics


@pytest.mark.parametrize("k", [5.5, "20", None])
def test_invalid_cut_offs_are_rejected(k: Any) -> None:
    split = board_split()
    with pytest.raises(ItemfoldError, match="'k' must be a positive integer"):
        evaluate(train(split, Popularity()), split, k=k)


def test_an_unknown_part_is_rejected() -> None:
    split = board_split("inductive")
    run = train(split, Popularity())
    for part in ("validation", "train", ""):
        with pytest.raises(ItemfoldError, match=f"'part' must be valid or test, got '{part}'"):
            evaluate(run, split, part=part)  # type: ignore[arg-type]


def test_a_single_metric_needs_no_list() -> None:
    split = board_split()
    assert list(evaluate(train(split, Popularity()), split, metrics="NDCG@7").metrics) == ["ndcg@7"]


def test_unseen_users_join_the_graph_that_a_run_was_trained_on() -> None:
    split = board_split("inductive")
    thin = ir.cold_start(split, keep=0.3)
    run = train(thin, LightGCN(dim=4), epochs=2, eval_every=1)
    own = evaluate(run, thin, fold_in="joint", metrics=["ap"])
    given = evaluate(run, replace(thin, train=split.train), fold_in="joint", metrics=["ap"])
    assert own.metrics == given.metrics
