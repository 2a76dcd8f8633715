"""Hybrid: its formula in numpy, exact explanations, which networks it takes, bad settings, laws."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from small import board_split, random_matrix, seeded

from itemfold.errors import ItemfoldError
from itemfold.models import EASE, MODELS, RLAE, Hybrid, LightGCN, MultVAE, Popularity
from itemfold.models.popularity import log_popularity
from itemfold.training.fit import train as run_training
from itemfold.training.run import Run

X = random_matrix(40, 25, 0.2)
ROWS = ((0.0, 0.7, 0.0, 1.0, 0.2), (3.0, 0.3, 0.0, 0.5, 1.5), (6.0, 0.0, 0.0, 2.0, 4.0))
NEW = ((0.0, 0.2, 0.6, 0.0, 1.0), (4.0, 0.0, 0.9, 1.5, 0.3))  # for users who are not known
RECENT = sp.csr_array(X.toarray() * np.random.default_rng(1).random(X.shape).astype(np.float32))
LINEAR = {"l2": 5.0, "item_power": 0.2, "user_power": 0.3, "dropout": 0.4, "relax": 0.1}
ITEMS = torch.tensor([0, 7, 24, 11])


def made(inductive: bool = False, **given: Any) -> Hybrid:
    """A hybrid with random vectors and fitted weights."""
    given = {"blend": ROWS, "linear": LINEAR, **given}
    model = Hybrid(gnn={"name": given.pop("gnn", "lightgcn"), "dim": 6}, **given)
    model.setup(X, inductive=inductive, generator=seeded())
    assert model.linear is not None
    model.linear.solve(X)
    model.restore(X)
    return model.eval()


def histories(*lengths: int, seed: int = 0) -> sp.csr_array:
    """Random histories of these lengths."""
    rng, out = np.random.default_rng(seed), np.zeros((len(lengths), X.shape[1]), np.float32)
    for row, length in zip(out, lengths, strict=True):
        row[rng.choice(X.shape[1], length, replace=False)] = 1
    return sp.csr_array(out)


def item_weights() -> np.ndarray:
    """The weights of a linear model with the same settings, fitted apart."""
    model = RLAE(**LINEAR)
    model.setup(X, inductive=True, generator=seeded())
    model.solve(X)
    eye = sp.csr_array(np.eye(X.shape[1], dtype=np.float32))
    return model.scores(eye, np.full(X.shape[1], -1)).numpy().astype(np.float64)


def popularity(train: sp.csr_array = X) -> np.ndarray:
    """The logarithm of the counts, with mean 0 and deviation 1."""
    logarithm = np.log1p(train.toarray().sum(0).astype(np.float64))
    return (logarithm - logarithm.mean()) / logarithm.std()


def row_for(length: int, rows: tuple[tuple[float, ...], ...] = ROWS) -> tuple[float, ...]:
    """The last row of the blend that applies."""
    return [row for row in rows if row[0] <= length][-1]


def divided(scores: np.ndarray) -> np.ndarray:
    deviation = scores.std()
    return scores / deviation if deviation > 0 else scores


def formula(
    vector: np.ndarray,
    items: np.ndarray,
    history: list[int],
    norm: float,
    rows: tuple[tuple[float, ...], ...] = ROWS,
) -> np.ndarray:
    """The score of every item, one after the other, as the module describes it."""
    _, prior, recent, network, weight = row_for(len(history), rows)
    weights, popular = item_weights(), popularity()
    of_network, linear = np.zeros(len(items)), np.zeros(len(items))
    length = np.linalg.norm(vector)
    for i, item in enumerate(items):
        own = np.linalg.norm(item)
        if length > 0 and own > 0:
            of_network[i] = (vector / length) @ (item / own) * own**norm
        linear[i] = sum(weights[h, i] for h in history)
    popular = prior * popular + recent * popularity(RECENT)
    return network * divided(of_network) + popular + weight * divided(linear)


@pytest.mark.parametrize("norm", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("inductive", [False, True])
def test_scores_are_those_of_the_formula(inductive: bool, norm: float) -> None:
    model = made(inductive, norm=norm)
    history = histories(0, 1, 2, 3, 5, 6, 12, 3)
    users = np.array([-1, -1, 4, 5, -1, -1, 7, 39])
    found = model.scores(history, users).numpy()
    items = model.gnn.item_vectors.double().numpy()
    for row, user in enumerate(users):
        alone = model.gnn.fold_in(history[[row]])[0] if user < 0 else model.gnn.user_vectors[user]
        liked = history[[row]].indices.tolist()
        expected = formula(alone.double().numpy(), items, liked, norm)
        np.testing.assert_allclose(found[row], expected, rtol=1e-3, atol=1e-4, err_msg=f"{row}")


def test_an_unseen_user_without_history_gets_the_popular_items() -> None:
    model = made()
    found = model.scores(histories(0), np.array([-1])).numpy()[0]
    np.testing.assert_allclose(found, 0.7 * popularity(), rtol=1e-4, atol=1e-6)


def test_a_row_of_the_blend_begins_at_its_length() -> None:
    weights = made().blend_of(histories(0, 2, 3, 5, 6, 20), np.array([-1, 0, 1, -1, 2, 3]))
    expected = np.array([row_for(n)[1:] for n in (0, 2, 3, 5, 6, 20)], np.float32)
    np.testing.assert_array_equal(torch.cat(weights, 1).numpy(), expected)


@pytest.mark.parametrize("inductive", [False, True])
def test_new_users_and_recent_popularity_have_weights_of_their_own(inductive: bool) -> None:
    model = made(inductive, new_blend=NEW, popularity_half_life="30d")
    model.count(X, RECENT)
    history, users = histories(0, 2, 3, 4, 8, 8), np.array([-1, 3, -1, -1, 7, -1])
    found = model.scores(history, users).numpy()
    items = model.gnn.item_vectors.double().numpy()
    for row, user in enumerate(users):
        vector = model.gnn.fold_in(history[[row]])[0] if user < 0 else model.gnn.user_vectors[user]
        liked, rows = history[[row]].indices.tolist(), NEW if user < 0 else ROWS
        expected = formula(vector.double().numpy(), items, liked, 0.5, rows)
        np.testing.assert_allclose(found[row], expected, rtol=1e-3, atol=1e-4, err_msg=f"{row}")
        if user < 0:
            shares = model.explain(history[[row]], -1, ITEMS).sum(1)
            rest = model.popularity_part(history[[row]], -1, ITEMS)
            wanted = torch.from_numpy(found[row])[ITEMS]
            torch.testing.assert_close(shares + rest, wanted, rtol=1e-4, atol=1e-5)


def test_without_parts_a_hybrid_is_popularity_of_all_times_and_recently() -> None:
    rows = ((0.0, 0.5, 0.0), (3.0, 0.25, 2.0))
    model = Hybrid(gnn=None, linear=None, blend=rows, popularity_half_life="7d")
    model.setup(X, inductive=False, generator=seeded())
    model.count(X, RECENT)
    found = model.scores(histories(2, 3), np.array([4, -1])).numpy()
    both = popularity(), popularity(RECENT)
    expected = [0.5 * both[0], 0.25 * both[0] + 2 * both[1]]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    shares = model.explain(histories(3), -1, ITEMS)
    assert not shares.any()
    rest = model.popularity_part(histories(3), -1, ITEMS)
    np.testing.assert_allclose(rest.numpy(), found[1][ITEMS.numpy()], rtol=1e-5, atol=1e-6)
    with pytest.raises(ItemfoldError, match="no part of this hybrid can compare items"):
        model.similar_to(3)


def test_every_part_has_deviation_one() -> None:
    """With one part only, the deviation of the scores is the factor of the part."""
    history, user = histories(5), np.array([3])
    for place in (1, 2, 3, 4):
        model = made(blend=((0.0, *(1e4 * (place == other) for other in (1, 2, 3, 4))),))
        model.count(X, RECENT)
        scores = model.scores(history, user)
        assert float(scores.std(correction=0)) == pytest.approx(1e4, rel=1e-3)


@pytest.mark.parametrize("inductive", [False, True])
@pytest.mark.parametrize("norm", [0.0, 0.5])
def test_explanations_of_unseen_users_add_up(inductive: bool, norm: float) -> None:
    model = made(inductive, norm=norm)
    for length in (0, 1, 4, 9):
        history = histories(length, seed=length)
        shares = model.explain(history, -1, ITEMS)
        assert shares.shape == (4, length)
        score = model.scores(history, np.array([-1]))[0, ITEMS]
        found = shares.sum(1) + model.popularity_part(history, -1, ITEMS)
        torch.testing.assert_close(found, score, rtol=1e-4, atol=1e-5)


def test_explanations_of_known_users_add_up_with_their_own_vector() -> None:
    """What is neither history nor popularity is the part of the vector the history cannot make."""
    model, history, user = made(), histories(4), 5
    own = (model.gnn.user_vectors[user] - model.gnn.fold_in(history)[0]).double().numpy()
    items = model.gnn.item_vectors.double().numpy()
    scaled = items * np.linalg.norm(items, axis=1, keepdims=True) ** (0.5 - 1)
    spread = (scaled @ model.gnn.user_vectors[user].double().numpy()).std()
    rest = row_for(4)[3] * (scaled[ITEMS.numpy()] @ own) / spread
    found = model.explain(history, user, ITEMS).sum(1) + model.popularity_part(history, user, ITEMS)
    score = model.scores(history, np.array([user]))[0, ITEMS]
    np.testing.assert_allclose(found.numpy() + rest, score.numpy(), rtol=1e-3, atol=1e-4)


def test_similar_items_are_by_cosines_and_weights() -> None:
    model, weights = made(), item_weights()
    items = model.gnn.item_vectors.double().numpy()
    for item in (0, 7, 24):
        length = np.linalg.norm(items, axis=1) * np.linalg.norm(items[item])
        cosines = items @ items[item] / np.where(length > 0, length, 1)
        expected = ROWS[0][3] * divided(cosines) + ROWS[0][4] * divided(weights[item])
        np.testing.assert_allclose(model.similar_to(item).numpy(), expected, rtol=1e-3, atol=1e-4)


def test_item_vectors_are_scaled_again_after_they_changed() -> None:
    model, history, user = made(), histories(4), np.array([5])
    before = model.scores(history, user)
    with torch.no_grad():
        model.gnn.item_embedding.copy_(torch.randn(25, 6, generator=seeded(1)))
    model.restore(X)
    after = model.scores(history, user)
    assert not torch.allclose(before, after)
    vector = model.gnn.user_vectors[5].double().numpy()
    items = model.gnn.item_vectors.double().numpy()
    expected = formula(vector, items, history.indices.tolist(), 0.5)
    np.testing.assert_allclose(after.numpy()[0], expected, rtol=1e-3, atol=1e-4)


# --- popularity ----------------------------------------------------------------------------------


def test_log_popularity_is_standardised_and_keeps_its_deviation() -> None:
    found, spread = log_popularity(X, torch.device("cpu"))
    counts = np.log1p(X.toarray().sum(0).astype(np.float64))
    np.testing.assert_allclose(found.numpy() * spread, counts - counts.mean(), rtol=1e-3, atol=1e-5)
    assert float(found.std(correction=0)) == pytest.approx(1, rel=1e-4)


# --- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gnn", ["lightgcn", "gcn"])
@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_a_run_stores_no_derived_vectors_and_loads_bit_for_bit(
    protocol: str, gnn: str, tmp_path: Path
) -> None:
    split = board_split(protocol)
    model = Hybrid(gnn={"name": gnn, "dim": 4}, linear=RLAE(l2=20.0), blend=ROWS)
    run = run_training(split, model, epochs=2, batch=256, device="cpu", out=tmp_path / "r")
    back = Run.load(tmp_path / "r")
    test = split.test
    for users in (test.users, np.full(len(test), -1)):
        expected = run.model.scores(test.history, users)
        assert torch.equal(back.model.scores(test.history, users), expected)
    assert torch.equal(back.model.similar_to(3), run.model.similar_to(3))
    assert isinstance(run.model, Hybrid)
    trained = {f"gnn.{name}" for name, _ in run.model.gnn.named_parameters()}
    weights = {f"linear.weight_{name}" for name in ("starts", "items", "values")}
    stored = set(load_file(tmp_path / "r" / "model.safetensors"))
    assert stored == trained | weights | {"popularity", "train.crow", "train.col"}
    assert not {name for name in stored if "vectors" in name or "fold" in name}


# --- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("gnn", ["gcn", "gat"])
def test_a_network_that_folds_in_but_does_not_explain_works(gnn: str) -> None:
    model = made(gnn=gnn)
    assert not model.explains
    with pytest.raises(ItemfoldError, match="gives no exact explanations"):
        model.explain(histories(3), -1, ITEMS)
    history = histories(3, 0, 7)
    scores = model.scores(history, np.array([2, -1, -1])).numpy()
    items = model.gnn.item_vectors.double().numpy()
    expected = formula(
        model.gnn.user_vectors[2].double().numpy(), items, history[[0]].indices.tolist(), 0.5
    )
    np.testing.assert_allclose(scores[0], expected, rtol=1e-3, atol=1e-4)
    assert np.isfinite(scores).all()
    assert model.similar_to(3).isfinite().all()


def test_the_default_network_explains() -> None:
    assert Hybrid().explains
    assert not Hybrid(gnn="gcn").explains


@pytest.mark.parametrize("gnn", ["mf", "ease", "hybrid", "ials"])
def test_other_models_are_refused_with_a_sentence(gnn: str) -> None:
    with pytest.raises(ItemfoldError, match=r"'gnn' must .*lightgcn.*; got ") as refused:
        Hybrid(gnn=gnn)
    assert repr(gnn) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_networks_that_the_sentence_names_are_accepted() -> None:
    with pytest.raises(ItemfoldError) as refused:
        Hybrid(gnn="mf")
    named = str(refused.value).partition(": ")[2].partition(";")[0].split(", ")
    assert "lightgcn" in named
    for gnn in named:
        Hybrid(gnn=gnn)
    for gnn in set(MODELS) - set(named):
        with pytest.raises(ItemfoldError):
            Hybrid(gnn=gnn)


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(ItemfoldError, match=r"'gnn' must be one of .*got 'gnc'"):
        Hybrid(gnn="gnc")


# --- composition ---------------------------------------------------------------------------------

FEW: dict[str, Any] = {"epochs": 2, "eval_every": 1, "device": "cpu"}


def test_models_are_parts_as_they_are() -> None:
    gnn, linear = LightGCN(dim=4, layers=1), RLAE(l2=20.0)
    model = Hybrid(gnn=gnn, linear=linear)
    assert model.gnn is gnn
    assert model.linear is linear
    run = run_training(board_split(), model, **FEW)
    named = {"name": "lightgcn", "dim": 4, "layers": 1, "start": "random"}
    by_name = Hybrid(gnn=named, linear={"l2": 20.0})
    again = run_training(board_split(), by_name, **FEW)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name
    assert run.config == again.config
    assert not hasattr(gnn, "n_items")  # given models are not trained themselves


@pytest.mark.parametrize(
    ("parts", "alone"),
    [
        ({"linear": None}, {"network and prior"}),
        ({"gnn": None}, {"linear"}),
        ({"gnn": None, "linear": EASE(l2=30.0)}, {"linear"}),
        ({"linear": None, "others": [EASE(l2=30.0)]}, {"network and prior", "EASE"}),
        ({"others": ["ease", Popularity()]}, {"network and prior", "linear", "EASE", "Popularity"}),
        ({"others": MultVAE(hidden=8, latent=4)}, {"network and prior", "linear", "MultVAE"}),
    ],
)
@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_any_part_can_be_left_out_or_added(
    parts: dict[str, Any], alone: set[str], protocol: str, tmp_path: Path
) -> None:
    split = board_split(protocol)
    model = Hybrid(**{"gnn": LightGCN(dim=4), "linear": RLAE(l2=20.0), **parts})
    run = run_training(split, model, **FEW, out=tmp_path / "r")
    assert set(run.metrics["parts"]) == {*alone, "popularity"}
    assert isinstance(run.model, Hybrid)
    assert run.model.blend is not None
    assert {len(row) for row in run.model.blend} == {3 + len(run.model.parts)}
    test = split.test
    found = run.model.scores(test.history, test.users)
    prior, recent, *weights = run.model.blend_of(test.history, test.users)
    assert not recent.any()  # the data has no times
    expected = prior * run.model.popularity
    for part, weight in zip(run.model.parts, weights, strict=True):
        if part is run.model.gnn:
            scores = part.vectors_of(test.history, test.users) @ run.model.table.T
        else:
            scores = part.scores(test.history, test.users)
        expected = expected + weight * scores / scores.std(1, keepdim=True, correction=0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    back = Run.load(tmp_path / "r")
    assert torch.equal(back.model.scores(test.history, test.users), found)
    again = run_training(split, model, **FEW, out=tmp_path / "r", resume=True)
    assert again.metrics == back.metrics


@pytest.mark.parametrize("protocol", ["transductive", "inductive"])
def test_a_hybrid_without_parts_is_trained_saved_and_loaded(protocol: str, tmp_path: Path) -> None:
    split = board_split(protocol)
    run = run_training(split, Hybrid(gnn=None, linear=None), **FEW, out=tmp_path / "r")
    assert isinstance(run.model, Hybrid)
    assert run.model.parts == []
    assert run.model.blend == ((0.0, 1.0, 0.0),)
    popular = run_training(split, Popularity(), device="cpu")
    assert run.metrics["test"] == pytest.approx(popular.metrics["test"])
    back, test = Run.load(tmp_path / "r"), split.test
    found = back.model.scores(test.history, test.users)
    assert torch.equal(found, run.model.scores(test.history, test.users))


def test_a_linear_part_is_a_closed_form_and_no_part_is_a_hybrid() -> None:
    with pytest.raises(ItemfoldError, match=r"'linear' must be a closed form, .* got LightGCN"):
        Hybrid(linear="lightgcn")
    with pytest.raises(ItemfoldError, match="'others' must be a list of models except hybrids"):
        Hybrid(others=["hybrid"])


@pytest.mark.parametrize(("others", "names"), [("itemknn", ["ItemKNN"]), ("none", [])])
def test_other_parts_may_be_a_single_name(others: str, names: list[str]) -> None:
    alone = run_training(board_split(), Hybrid(others=others), **FEW)
    assert isinstance(alone.model, Hybrid)
    assert [type(part).__name__ for part in alone.model.others] == names


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "blend",
    [
        (),
        5,
        "abc",
        (1.0, 2.0, 3.0),  # a row that is not in a list
        ((0, 1),),
        ((0, 1, 1, 1),),
        ((1, 0.5, 0.1),),  # nothing for the shortest histories
        ((0, 0.5, 0.1), (9, 1, 1), (5, 1, 1)),
        ((0, 0.5, 0.1), (0, 1, 1)),
        ((0, "a", 1),),
        ((0, None, 1),),
        ((0, float("nan"), 1),),
        ((0, 0.5, float("inf")),),
        ((0, 0.5, 0.1), (float("nan"), 0.5, 0.1)),
    ],
)
def test_bad_blends_are_refused(blend: Any) -> None:
    with pytest.raises(ItemfoldError, match="'blend' must be"):
        Hybrid(blend=blend)


def test_a_blend_may_be_lists_as_in_a_file() -> None:
    model = Hybrid(blend=[[0, 1, 2], [4, 0.5, 1]])  # type: ignore[arg-type]
    # rows of release 0.2: no recent popularity, and the first part counts 1
    rows = ((0.0, 1.0, 0.0, 1.0, 2.0), (4.0, 0.5, 0.0, 1.0, 1.0))
    assert model.blend == model.settings["blend"] == rows
    assert Hybrid(blend=[list(row) for row in rows]).blend == rows  # type: ignore[arg-type]
    assert Hybrid(new_blend=rows).new_blend == rows


@pytest.mark.parametrize("name", ["half_life", "popularity_half_life"])
@pytest.mark.parametrize("value", ["soon", "", "-3d", "0d", "30 parsecs"])
def test_a_half_life_is_a_duration_or_never(name: str, value: Any) -> None:
    with pytest.raises(ItemfoldError, match=f"'{name}' must be a duration such as 12h, 30d"):
        Hybrid(**{name: value})
    assert Hybrid(**{name: "never"}).settings[name] == "never"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("linear.l2", 0.0, "a positive number"),
        ("linear.l2", -1.0, "a positive number"),
        ("linear.item_power", -0.1, "a number of at least 0"),
        ("linear.user_power", -0.1, "a number of at least 0"),
        ("linear.dropout", 1.0, "at least 0 and below 1"),
        ("linear.relax", -0.5, "at least 0 and below 1"),
        ("linear.items", 0, "a positive integer"),
        ("linear.keep", 0, "a positive integer"),
        ("gnn.dim", 0, "a positive integer"),
        ("gnn.layers", -1, "a positive integer"),
        (".norm", -1.0, "a number of at least 0"),
    ],
)
def test_invalid_settings_are_named(name: str, value: float, rule: str) -> None:
    part, _, own = name.partition(".")
    given: Any = {part: {own: value}} if part else {own: value}
    with pytest.raises(ItemfoldError, match=f"^'{own}' must be {rule}, got {value}"):
        Hybrid(**given)


# --- laws ----------------------------------------------------------------------------------------

LAW = made()
HISTORY, USERS = histories(2, 4, 8), np.array([1, 2, 3])
FACTORS = st.floats(0.01, 100)


def with_vectors(users: torch.Tensor, items: torch.Tensor, norm: float) -> torch.Tensor:
    """Scores with other final vectors of the network."""
    model = made(norm=norm)
    model.gnn.store("user_vectors", users)
    model.gnn.store("item_vectors", items)
    return model.scores(HISTORY, USERS)


@settings(max_examples=15)
@given(of_users=FACTORS, of_items=FACTORS, norm=st.sampled_from([0.0, 0.5, 1.0]))
def test_the_scale_of_vectors_changes_no_score(
    of_users: float, of_items: float, norm: float
) -> None:
    users, items = LAW.gnn.user_vectors, LAW.gnn.item_vectors
    found = with_vectors(users * of_users, items * of_items, norm)
    torch.testing.assert_close(found, with_vectors(users, items, norm), rtol=1e-3, atol=1e-4)


@settings(max_examples=15)
@given(constant=st.floats(-5, 5))
def test_a_constant_added_to_the_networks_scores_moves_all_scores_alike(constant: float) -> None:
    """With inner products: one more dimension adds the constant to every score of a user."""
    users, items = LAW.gnn.user_vectors, LAW.gnn.item_vectors
    plain = with_vectors(users, items, 1.0)
    one = torch.cat([users, torch.ones(len(users), 1)], 1)
    added = torch.cat([items, torch.full((len(items), 1), constant)], 1)
    spread = (users[USERS] @ items.T).std(1, keepdim=True, correction=0)
    found = with_vectors(one, added, 1.0)
    network = torch.tensor([[row_for(length)[3]] for length in (2, 4, 8)])
    expected = plain + network * constant / spread
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)


@settings(max_examples=15)
@given(factor=FACTORS)
def test_the_scale_of_the_linear_weights_changes_no_score(factor: float) -> None:
    model = made()
    expected = model.scores(HISTORY, USERS)
    model.linear.weight_values.mul_(factor)
    torch.testing.assert_close(model.scores(HISTORY, USERS), expected, rtol=1e-3, atol=1e-4)


@settings(max_examples=15)
@given(prior=st.floats(0, 5), weight=st.floats(0, 20), seed=st.integers(0, 9))
def test_scores_are_linear_in_the_blend(prior: float, weight: float, seed: int) -> None:
    """Score(prior, weight) is the network's part + prior · popularity + weight · linear part."""
    history, user = histories(5, seed=seed), np.array([seed])

    def at(prior: float, weight: float) -> torch.Tensor:
        LAW.blend = ((0.0, prior, 0.0, 1.0, weight),)
        try:
            return LAW.scores(history, user)
        finally:
            LAW.blend = ROWS

    own = at(0, 0)
    expected = own + prior * (at(1, 0) - own) + weight * (at(0, 1) - own)
    torch.testing.assert_close(at(prior, weight), expected, rtol=1e-3, atol=1e-3)
