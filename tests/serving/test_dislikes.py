"""Dislikes and weights of a history: scores near dislikes fall, explanations add up."""

import numpy as np
import pytest
from served import open_client

import itemfold as ir
from itemfold.errors import ItemfoldError
from itemfold.serving.history import DISLIKE

DATA = ir.load("synthetic:users=150,items=90,interactions=3000")
MODELS = {
    "ease": ir.models.EASE(l2=50.0),
    "rlae": ir.models.RLAE(l2=50.0, item_power=0.2),
    "gf-cf": ir.models.GFCF(dim=16),
    "ials": ir.models.IALS(dim=16),
    "lightgcn": ir.models.LightGCN(dim=16),
    "hybrid": ir.models.Hybrid(dim=16, linear_l2=50.0),
}


@pytest.fixture(scope="module", params=["transductive", "inductive"])
def split(request) -> ir.Split:
    strategy = ir.split_users if request.param == "inductive" else ir.split_interactions
    return strategy(DATA)


@pytest.fixture(scope="module", params=MODELS)
def recommender(request, split) -> ir.Recommender:
    closed = request.param in ("ease", "rlae", "gf-cf", "ials")
    settings = {} if closed else {"epochs": 15, "lr": 0.05, "eval_every": 5}
    return ir.Recommender(ir.train(split, MODELS[request.param], **settings, device="cpu"))


def scores_of(recommender: ir.Recommender, **audience) -> dict:
    found = recommender.recommend(**audience, k=90)
    return {pick.item: pick.score for pick in found}


def audience_of(recommender: ir.Recommender, known: bool) -> dict:
    """A known user or a new one, each with a history."""
    ids = recommender.run.item_ids.ids.tolist()
    return {"user": recommender.run.user_ids.ids[4]} if known else {"history": ids[2:60:9]}


@pytest.mark.parametrize("known", [False, True])
def test_a_dislike_lowers_its_nearest_neighbours_and_explanations_add_up(recommender, known):
    asked = audience_of(recommender, known)
    before = scores_of(recommender, **asked)
    falls = 0
    unseen = list(before)[:3]  # what would be recommended first
    for item in unseen:
        after = scores_of(recommender, **asked, dislikes=[item])
        near = [pick.item for pick in recommender.similar_items(item, k=60) if pick.item in after]
        change = {other: after[other] - before[other] for other in after}
        # scores as a whole may be scaled: neighbours fall against the others
        falls += np.mean([change[other] for other in near[:5]]) < np.mean(list(change.values()))
        assert item not in after
        picks = recommender.recommend(**asked, dislikes=[item], k=5, explain=True)
        for pick in picks:
            assert sum(reason.item == item for reason in pick.reasons) == 1
            total = sum(reason.share for reason in pick.reasons) + pick.own
            assert total == pytest.approx(pick.score, abs=1e-6)
    assert falls == len(unseen)


@pytest.mark.parametrize("name", ["ease", "lightgcn"])
def test_shares_of_a_new_users_history_and_dislikes_are_the_whole_score(name):
    split = ir.split_users(DATA)
    run = ir.train(split, MODELS[name], epochs=6, eval_every=3)
    found = ir.Recommender(run).recommend(history=[3, 5], dislikes=[8], k=40, explain=True)
    for pick in found:
        assert abs(pick.own) < 1e-5 * max(1, abs(pick.score))
    negative = [r.share for p in found for r in p.reasons if r.item == 8]
    alone = ir.Recommender(run).recommend(history=[8], k=89, explain=True)
    like = {pick.item: pick.reasons[0].share for pick in alone}
    signs = [
        np.sign(r.share) == -np.sign(like[p.item]) for p in found for r in p.reasons if r.item == 8
    ]
    assert len(negative) == 40
    assert np.mean(signs) > 0.99


@pytest.fixture(scope="module")
def ease() -> ir.Recommender:
    return ir.Recommender(ir.train(ir.split_users(DATA), ir.models.EASE(l2=50.0)))


def test_a_dislike_counts_half_of_an_average_like(ease):
    row = {i: n for n, i in enumerate(ease.run.item_ids.ids.tolist())}
    pick = ease.recommend(history=[3, 5], dislikes=[8], k=1, explain=True)[0]
    share = next(reason.share for reason in pick.reasons if reason.item == 8)
    weight = float(ease.model.weights[row[8], row[pick.item]])
    assert share == pytest.approx(-DISLIKE * weight, rel=1e-5)


def test_a_disliked_item_is_never_recommended_even_if_seen_items_are(ease):
    found = ease.recommend(history=[3, 5], dislikes=[5], k=90, exclude_seen=False)
    items = [pick.item for pick in found]
    assert 3 in items
    assert 5 not in items


def test_a_dislike_takes_precedence_over_the_history(ease):
    one = ease.recommend(history=[3, 5], dislikes=[5], k=10)
    two = ease.recommend(history=[3], dislikes=[5], k=10)
    assert one == two


def test_dislikes_alone_give_popular_items_without_them(ease):
    first = ease.recommend(history=[], k=3)
    found = ease.recommend(history=[], dislikes=[first[0].item, "nothing"], k=2)
    assert found.fallback
    assert found.unknown == ("nothing",)
    assert [pick.item for pick in found] == [first[1].item, first[2].item]


def test_only_ratios_of_weights_matter_and_a_heavy_item_counts_more(ease):
    plain = ease.recommend(history=[3, 5], k=10, explain=True)
    assert ease.recommend(history=[3, 5], weights=[7, 7.0], k=10, explain=True) == plain
    one, two = (ease.recommend(history=[3, 5], weights=w, k=10) for w in ([1, 3], [10, 30]))
    assert [p.item for p in one] == [p.item for p in two]
    heavy = ease.recommend(history=[3, 5], weights=[1, 9], k=1, explain=True)[0]
    shares = {reason.item: reason.share for reason in heavy.reasons}
    row = {i: n for n, i in enumerate(ease.run.item_ids.ids.tolist())}
    weights = ease.model.weights
    expected = {i: float(w * weights[row[i], row[heavy.item]]) for i, w in ((3, 0.2), (5, 1.8))}
    assert shares == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": [3], "weights": [1, 2]}, "one number per item of 'history', got 2 for 1"),
        ({"history": [3], "weights": [0]}, "'weights' must be positive numbers, got 0"),
        ({"history": [3], "weights": [float("nan")]}, "'weights' must be positive numbers"),
        ({"history": [3], "weights": ["a"]}, "'weights' must be positive numbers, got 'a'"),
        ({"user": 4, "weights": [1]}, "'weights' needs a 'history'"),
        ({"history": [3], "dislikes": "8"}, "'dislikes' must be a list, got '8'"),
        ({"dislikes": [8]}, "give either 'user' or 'history'"),
    ],
)
def test_invalid_arguments_raise_errors_that_name_them(ease, arguments, message):
    if "user" in arguments:
        arguments = {**arguments, "user": ease.run.user_ids.ids[0]}
    with pytest.raises(ItemfoldError, match=message):
        ease.recommend(**arguments)


def test_dislikes_need_a_model_that_explains():
    run = ir.train(ir.split_users(DATA), ir.models.MultVAE(), epochs=1)
    with pytest.raises(ItemfoldError, match="MultVAE cannot use 'dislikes'"):
        ir.Recommender(run).recommend(history=[3], dislikes=[5])


def test_a_known_users_trained_weights_are_used():
    data = ir.load("synthetic:users=150,items=90,interactions=3000", half_life="5y")
    run = ir.train(ir.split_interactions(data), ir.models.EASE(l2=50.0))
    user = run.user_ids.ids[7]
    pick = ir.Recommender(run).recommend(user, k=1, explain=True)[0]
    row = run.train[[7]]
    column = run.item_ids.index([pick.item])[0]
    expected = row.data * run.model.weights[row.indices, column].numpy()
    assert sorted(r.share for r in pick.reasons) == pytest.approx(sorted(expected), abs=1e-6)


def test_the_service_takes_weights_and_dislikes(ease):
    with open_client(ease) as client:
        body = {"history": [3, 5], "weights": [1, 2], "dislikes": [8], "k": 4, "explain": True}
        found = client.post("/v1/recommend", json=body).json()
        same = ease.recommend(history=[3, 5], weights=[1, 2], dislikes=[8], k=4, explain=True)
        assert [pick["item"] for pick in found["items"]] == [pick.item for pick in same]
        assert {r["item"] for r in found["items"][0]["reasons"]} == {3, 5, 8}
        wrong = client.post("/v1/recommend", json={"history": [3], "weights": [-1]})
        assert wrong.status_code == 422
        assert "'weights' must be positive" in wrong.json()["error"]
