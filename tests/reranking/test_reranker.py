"""Re-ranking against a loop over plain lists, and laws that hold for any settings."""

import functools
import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from itemfold.data.interactions import IdMap
from itemfold.data.items.item_table import ItemTable
from itemfold.errors import ItemfoldError
from itemfold.evaluation.ranking import steered_items, top_items
from itemfold.models import EASE, Hybrid, LightGCN
from itemfold.reranking import reranker as reranker_module
from itemfold.reranking.item_facts import ItemFacts, long_tail
from itemfold.reranking.list_similarity import mean_similarity
from itemfold.reranking.reranker import Reranker
from itemfold.reranking.similarity import item_vectors, unit_sets
from itemfold.reranking.steering import SLIDERS, Steering

ITEMS, USERS, K = 60, 9, 6
GENRES = [
    "|".join(name for n, name in enumerate("abcd") if (row * 7 + 3) >> n & 1) for row in range(60)
]
TITLES = [f"film {row} ({1960 + (row * 37) % 50})" for row in range(ITEMS)]


def facts_of(seed: int = 0, *, dense: bool = True, table: ItemTable | None = None) -> ItemFacts:
    """Facts of random items, in double precision so that a loop takes the same items."""
    rng = np.random.default_rng(seed)
    chance = np.linspace(0.05, 0.6, ITEMS)[rng.permutation(ITEMS)]
    train = sp.csr_array((rng.random((40, ITEMS)) < chance).astype(np.float32))
    texts = (np.array(GENRES), np.array(TITLES))
    facts = ItemFacts(EASE(), train, IdMap(np.arange(ITEMS)), *texts, table)
    if dense:
        vectors = torch.from_numpy(rng.normal(size=(ITEMS, 5)))
        vectors = vectors / vectors.norm(dim=1, keepdim=True)
    else:
        vectors = unit_sets(sp.csr_array(train.T)).astype(np.float64)
    facts.__dict__["_of_model"] = vectors
    for name in ("log_popularity", "age"):
        facts.__dict__[name] = getattr(facts, name).double()
    return facts


def scores_of(seed: int, *, levels: int = 10**6) -> torch.Tensor:
    """Scores with some items of a history at −∞, and ties if there are few levels."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, levels, (USERS, ITEMS)) / levels)
    scores[torch.from_numpy(rng.random((USERS, ITEMS)) < 0.2)] = -torch.inf
    return scores


def naive_list(scores, facts: ItemFacts, steering: Steering, k: int, pool_size: int) -> list[int]:
    """The rule of `Steering` for one user, with loops over lists."""
    order = sorted(range(ITEMS), key=lambda item: (-scores[item], item))
    order = [item for item in order if scores[item] > -math.inf]
    pool = order[:pool_size]
    needed = math.ceil(steering.long_tail * k - 1e-9)
    tail = long_tail(facts.popularity)
    added = [item for item in order if tail[item]][:needed]

    def scaled(value, item):
        low, high = min(map(value, pool)), max(map(value, pool))
        return (value(item) - low) / max(high - low, 1e-12)

    @functools.cache
    def utility(item):
        popularity = scaled(lambda i: math.log1p(facts.popularity[i]), item)
        year = scaled(lambda i: -int(TITLES[i][-5:-1]), item)
        return (
            scaled(lambda i: float(scores[i]), item)
            - steering.popularity_discount * popularity
            + steering.freshness * (1 - year)
        )

    vectors = facts.vectors(steering.diversity_by)
    dense = np.asarray(vectors.toarray() if sp.issparse(vectors) else vectors)
    candidates = pool + [item for item in added if item not in pool]
    taken: list[int] = []
    for place in range(k):

        def is_permitted(item):
            if item in taken:
                return False
            for column, most in steering.max_per.items():
                assert column == "genre"
                for genre in filter(None, GENRES[item].split("|")):
                    if sum(genre in GENRES[other].split("|") for other in taken) >= most:
                        return False
            return True

        free = [item for item in candidates if is_permitted(item)]
        missing = needed - sum(bool(tail[item]) for item in taken)
        if missing >= k - place and any(tail[item] for item in free):
            free = [item for item in free if tail[item]]
        if not free:
            break

        def value(item):
            if not taken:
                return utility(item)
            similarity = sum(float(dense[item] @ dense[other]) for other in taken) / len(taken)
            return (1 - steering.diversity) * utility(item) - steering.diversity * similarity

        taken.append(max(free, key=value))  # the first of equals
    return sorted(taken, key=lambda item: -utility(item))


SETTINGS = st.builds(
    Steering,
    diversity=st.sampled_from([0.0, 0.3, 0.6, 1.0]),
    popularity_discount=st.sampled_from([0.0, 0.4, 1.0]),
    long_tail=st.sampled_from([0.0, 0.5, 1.0]),
    freshness=st.sampled_from([0.0, 0.7]),
    max_per=st.sampled_from([{}, {"genre": 2}, {"genre": 4}]),
    diversity_by=st.sampled_from(["model", "genre"]),
)
FACTS = {dense: facts_of(dense=dense) for dense in (True, False)}


@pytest.fixture(autouse=True)
def small_pools(monkeypatch):
    monkeypatch.setattr(reranker_module, "POOL", 4)


@settings(max_examples=25, deadline=None)
@given(SETTINGS, st.booleans(), st.integers(0, 10**6))
def test_lists_equal_those_of_a_loop(steering, dense, seed):
    facts, scores = FACTS[dense], scores_of(seed)
    if steering.is_plain:
        return
    found = steered_items(scores, K, Reranker(facts, steering))
    size = Reranker(facts, steering).pool_size(K)
    for row, listed in zip(scores, found.tolist(), strict=True):
        expected = naive_list(row, facts, steering, K, size)
        if len(expected) < K:  # caps left it short: chosen again from the whole catalogue
            expected = naive_list(row, facts, steering, K, ITEMS)
        assert [item for item in listed if item >= 0] == expected


@settings(max_examples=60, deadline=None)
@given(SETTINGS, st.booleans(), st.integers(0, 10**6), st.sampled_from([3, 10**6]))
def test_laws_of_a_list(steering, dense, seed, levels):
    facts, scores = FACTS[dense], scores_of(seed, levels=levels)
    found = steered_items(scores, K, Reranker(facts, steering))
    tail = long_tail(facts.popularity)
    for row, listed in zip(scores, found.tolist(), strict=True):
        items = [item for item in listed if item >= 0]
        assert listed == items + [-1] * (K - len(items))
        assert len(set(items)) == len(items)
        assert all(row[item] > -torch.inf for item in items)  # never of the history
        for most in steering.max_per.values():
            for genre in "abcd":
                assert sum(genre in GENRES[item].split("|") for item in items) <= most
        if not steering.max_per:
            assert len(items) == K
            assert sum(tail[item] for item in items) >= steering.long_tail * K - 1e-9


@given(st.integers(0, 10**6), st.sampled_from([2, 5, 10**6]), st.integers(1, 2 * ITEMS))
@settings(max_examples=30, deadline=None)
def test_without_a_slider_the_list_is_the_plain_one(seed, levels, k):
    scores = scores_of(seed, levels=levels)
    plain = top_items(scores, k)
    assert torch.equal(steered_items(scores, k, None), plain)
    loose = Steering(max_per={"genre": ITEMS})  # goes the whole way and changes nothing
    assert torch.equal(steered_items(scores, k, Reranker(FACTS[True], loose)), plain)


@pytest.mark.parametrize("dense", [True, False])
def test_a_batch_is_the_same_as_one_by_one(dense, monkeypatch):
    scores = scores_of(5)
    steering = Steering(diversity=0.5, long_tail=0.3, max_per={"genre": 3})
    reranker = Reranker(FACTS[dense], steering)
    together = steered_items(scores, K, reranker)
    alone = torch.cat([steered_items(row.unsqueeze(0), K, reranker) for row in scores])
    monkeypatch.setattr(reranker_module, "BLOCK", 50)  # two users at a time
    assert torch.equal(together, alone)
    assert torch.equal(together, steered_items(scores, K, reranker))


@pytest.mark.parametrize("dense", [True, False])
def test_the_sliders_do_what_they_say_on_average(dense):
    facts, scores = FACTS[dense], torch.cat([scores_of(seed) for seed in range(20)])

    def lists(**sliders):
        return steered_items(scores, K, Reranker(facts, Steering(**sliders))).numpy()

    def similarity(found):
        return float(np.mean(mean_similarity(found, facts.vectors())))

    def popularity(found):
        return float(facts.popularity[found].mean())

    def age(found):
        return float(facts.age[torch.from_numpy(found)].mean())

    for name, measure in (
        ("diversity", similarity),
        ("popularity_discount", popularity),
        ("freshness", age),
    ):
        values = [measure(lists(**{name: value})) for value in (0.0, 0.25, 0.5, 0.75, 1.0)]
        assert values == sorted(values, reverse=True), name
        assert values[-1] < values[0] - 0.01, name


def test_vectors_of_a_model_are_compared_and_else_users():
    train = FACTS[True].train
    generator = torch.Generator().manual_seed(0)
    models = [LightGCN(dim=4), Hybrid(dim=4)]
    for model in models:
        model.setup(train, inductive=True, generator=generator)
        network = getattr(model, "gnn", model)
        vectors = torch.randn(ITEMS, 4, generator=generator) + 5  # a direction that all share
        network.store("item_vectors", vectors)
        centre = vectors[train.indices].mean(0)  # over interactions
        expected = (vectors - centre) / (vectors - centre).norm(dim=1, keepdim=True)
        torch.testing.assert_close(item_vectors(model, train), expected, atol=1e-5, rtol=1e-4)
    assert item_vectors(EASE(), train) is None
    facts = ItemFacts(EASE(), train, IdMap(np.arange(ITEMS)), None, None, None)
    cosines = (facts.vectors() @ facts.vectors().T).toarray()
    matrix = train.toarray()
    for i, j in ((0, 1), (3, 40)):
        both = (matrix[:, i] * matrix[:, j]).sum()
        expected = both / math.sqrt(matrix[:, i].sum() * matrix[:, j].sum())
        assert cosines[i, j] == pytest.approx(expected, abs=1e-6)


# --- columns -------------------------------------------------------------------------------------


def test_a_cap_on_a_column_of_the_table_and_ages_from_it():
    table = ItemTable(
        [str(item) for item in range(0, ITEMS, 2)],  # every other item has no country
        {
            "Country": ["FR" if item % 4 else "IT" for item in range(0, ITEMS, 2)],
            "year": [str(1900 + item) for item in range(0, ITEMS, 2)],
        },
    )
    facts = facts_of(table=table)
    scores = scores_of(1)
    found = steered_items(scores, K, Reranker(facts, Steering(max_per={"country": 1})))
    for listed in found.tolist():
        countries = [item % 4 for item in listed if item % 2 == 0]
        assert len(countries) == len(set(countries))
    assert facts.age[58] == 0  # the year of the table, not that of the title
    assert facts.age[0] == 1
    assert facts.age[1] == 1  # not in the table


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"diversity": 1.5}, "'diversity' must be a number from 0 to 1, got 1.5"),
        ({"long_tail": "half"}, "'long_tail' must be a number from 0 to 1, got 'half'"),
        ({"freshness": True}, "'freshness' must be a number from 0 to 1, got True"),
        ({"freshness": math.nan}, "'freshness' must be a number from 0 to 1, got nan"),
        ({"max_per": {"genre": 0}}, "'max_per' must be a positive integer, got 0"),
        ({"max_per": 3}, "'max_per' must map columns to numbers, such as {'genre': 3}, got 3"),
        ({"diversity_by": ""}, "'diversity_by' must be model or a column such as genre, got ''"),
    ],
)
def test_wrong_settings_are_named(arguments, sentence):
    with pytest.raises(ItemfoldError) as found:
        Steering(**arguments)
    assert str(found.value) == sentence


def test_settings_that_the_items_cannot_serve_are_rejected():
    bare = ItemFacts(EASE(), FACTS[True].train, IdMap(np.arange(ITEMS)), None, None, None)
    for steering, sentence in (
        (Steering(freshness=0.1), "'freshness' needs the age of items"),
        (Steering(max_per={"genre": 3}), "'max_per' must name a column of the items .none"),
        (Steering(diversity=0.1, diversity_by="genre"), "'diversity_by' must name a column"),
    ):
        with pytest.raises(ItemfoldError, match=sentence):
            Reranker(bare, steering)
    with pytest.raises(ItemfoldError, match=r"a column of the items \(genres\), got 'country'"):
        Reranker(FACTS[True], Steering(max_per={"country": 3}))


def test_spellings_of_a_column_share_one_table():
    facts = facts_of()
    spellings = [" " * n + name for n in range(5) for name in ("genres", "Genres", "GENRES")]
    assert len({id(facts.values(name)[0]) for name in spellings}) == 1
    assert len({id(facts.multi_hot(name)) for name in spellings}) == 1


def test_only_a_setting_makes_a_list_steered():
    assert Steering().is_plain
    assert Steering(diversity_by="genre").is_plain
    assert not any(Steering(**{name: 0.1}).is_plain for name in SLIDERS)
