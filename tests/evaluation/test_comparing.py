"""`ir.compare` and `.to_frame()`: the figures of scipy, in frames."""

import numpy as np
import pytest
import scipy.stats

import itemfold as ir
from itemfold.evaluation.significance import holm

SPLIT = ir.split_users(ir.load("synthetic:users=200,items=80,interactions=3000"), test=0.4)


@pytest.fixture(scope="module")
def runs() -> dict[str, ir.Run]:
    models = {"popularity": ir.models.Popularity(), "ease": ir.models.EASE()}
    return {name: ir.train(SPLIT, model) for name, model in models.items()}


def test_runs_and_evaluations_are_compared_alike(runs):
    knn = ir.evaluate(lambda history, users: history @ (SPLIT.train.T @ SPLIT.train), SPLIT)
    found = ir.compare(runs["popularity"], runs["ease"], knn=knn, metrics=["ndcg@20"])
    frame = found.to_frame()
    assert frame["system"].to_list() == ["popularity", "ease", "knn"]
    base = runs["popularity"].per_user["ndcg@20"]
    others = [runs["ease"].per_user["ndcg@20"], knn.per_user["ndcg@20"]]
    expected = holm([scipy.stats.ttest_rel(other, base).pvalue for other in others])
    np.testing.assert_allclose(frame["p_t"].to_list()[1:], expected, rtol=1e-6)
    np.testing.assert_allclose(frame["mean"], [np.mean(v) for v in (base, *others)])
    np.testing.assert_allclose(
        frame["difference"].to_list()[1:], [np.mean(other - base) for other in others]
    )
    assert frame["p_t"][0] is None
    assert (frame["low"] < frame["mean"]).all()
    assert "knn" in repr(found)


def test_only_evaluations_at_another_cut_off(runs):
    results = [ir.evaluate(run, SPLIT, k=5) for run in runs.values()]
    found = ir.compare(*results)
    assert set(found.to_frame()["metric"]) == {"ndcg@5", "recall@5"}
    assert list(found.values) == ["system 1", "system 2"]


def test_two_runs_of_a_model_have_different_names(runs):
    found = ir.compare(runs["ease"], runs["ease"])
    assert list(found.values) == ["ease", "ease 2"]
    assert set(found.to_frame()["metric"]) == {"recall@20", "capped_recall@20", "ndcg@20"}


def test_misuse_is_one_sentence(runs):
    with pytest.raises(ir.ItemfoldError, match="at least two"):
        ir.compare(runs["ease"])
    with pytest.raises(ir.ItemfoldError, match=r"must be a Run or the result of evaluate"):
        ir.compare(runs["ease"], "runs/other")
    with pytest.raises(ir.ItemfoldError, match="stored in all runs"):
        ir.compare(*runs.values(), metrics=["ndcg@7"])


def test_an_evaluation_as_frames(runs):
    result = ir.evaluate(runs["ease"], SPLIT, metrics=["ndcg@20", "coverage@20"])
    frame = result.to_frame()
    assert frame["metric"].to_list() == ["ndcg@20", "coverage@20"]
    low, high = result.interval("ndcg@20")
    assert frame["low"].to_list() == [pytest.approx(low, rel=0.05), None]
    assert low < frame["mean"][0] < high
    users = result.to_frame(per_user=True)
    assert users["user"].to_list() == result.ids.tolist()
    assert users["ndcg@20"].mean() == pytest.approx(result.metrics["ndcg@20"])
