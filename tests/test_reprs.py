"""What a notebook shows of an object is short and says what it is."""

import pytest

import itemfold as ir


@pytest.fixture(scope="module")
def split() -> ir.Split:
    return ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"), seed=0)


@pytest.fixture(scope="module")
def run(split: ir.Split) -> ir.Run:
    return ir.train(split, ir.models.EASE(l2=50.0))


def test_an_evaluation_is_a_table_of_its_metrics(run: ir.Run, split: ir.Split) -> None:
    result = ir.evaluate(run, split, k=10)
    first, *lines = repr(result).splitlines()
    assert first == f"{len(result.ids)} users"
    shown = {name: value for name, value, *_ in map(str.split, lines)}
    assert shown == {name: f"{value:.4f}" for name, value in result.metrics.items()}
    assert len({line.index(line.split()[1]) for line in lines}) == 1  # in one column


def test_lists_are_readable(run: ir.Run) -> None:
    recommender = ir.Recommender(run)
    assert repr(recommender) == f"Recommender({run!r}, {len(run.item_ids)} items)"
    picks = recommender.recommend(history=[3, 5], k=3, explain=True)
    assert len(repr(picks).splitlines()) == 3
    for line, pick in zip(repr(picks).splitlines(), picks, strict=True):
        assert pick.title in line
        assert f"{pick.score:.4f}" in line
        assert repr(pick).endswith("2 reasons)")
    for item in recommender.similar_items(3, k=2):
        assert repr(item) == f"Recommendation({item.item}, {item.title!r}, score {item.score:.4f})"


def test_ids_and_models_are_one_line(run: ir.Run) -> None:
    assert repr(run.user_ids).startswith(f"IdMap({len(run.user_ids)} ids: ")
    assert len(repr(run.user_ids)) < 60
    assert repr(ir.models.LightGCN(dim=16)).startswith("LightGCN(dim=16, ")
