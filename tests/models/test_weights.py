"""What weights do to each model: rejected, or used, saved, loaded and explained exactly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from contract import QUICK, TRAIN, make
from small import checkerboard

import itemfold as ir
from itemfold.data.splitting.split import Split
from itemfold.errors import ItemfoldError
from itemfold.models import MODELS

WEIGHTED = [name for name in MODELS if MODELS[name].weighs or name == "hybrid"]
REFUSING = [name for name in MODELS if name not in WEIGHTED]


def weighted_split(protocol: str = "transductive", seed: int = 0) -> Split:
    """The checkerboard with random weights."""
    board = checkerboard(seed=seed)
    weights = np.random.default_rng(seed).uniform(0.2, 5, len(board))
    strategy = ir.split_users if protocol == "inductive" else ir.split_interactions
    return strategy(replace(board, weights=weights, weighting="random"), seed=seed)


def fitted(name: str, split: Split, **settings) -> ir.Run:
    if name == "hybrid":  # which trains two networks
        settings = {"batch": 512, **settings}
    return ir.train(split, make(name), **{**QUICK, **TRAIN.get(name, {}), **settings})


@pytest.mark.parametrize("name", REFUSING)
def test_a_model_that_cannot_use_weights_says_so_by_name(name):
    with pytest.raises(ItemfoldError, match=f"{MODELS[name].__name__} cannot use weights"):
        fitted(name, weighted_split())


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_change_the_scores_and_survive_a_run_folder(name, tmp_path: Path):
    split = weighted_split()
    run = fitted(name, split, epochs=4, eval_every=2)
    plain = fitted(name, replace(split, train=ones(split.train)), epochs=4, eval_every=2)
    history, users = run.train[:3], np.arange(3)
    scores = run.model.scores(history, users)
    assert not np.allclose(scores, plain.model.scores(history, users), atol=1e-4)
    run.save(tmp_path / "run")
    loaded = ir.Run.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.train.toarray(), run.train.toarray())
    np.testing.assert_allclose(loaded.model.scores(history, users), scores, rtol=1e-5, atol=1e-6)
    assert any(note.startswith("What the weights change") for note in loaded.notes)


def ones(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.ones_like(matrix.data), matrix.indices, matrix.indptr), matrix.shape)


@pytest.mark.parametrize("name", ["ease", "rlae", "itemknn", "slim", "ials", "lightgcn", "hybrid"])
def test_equal_weights_are_bit_for_bit_no_weights(name):
    board = checkerboard()
    runs = [
        fitted(name, ir.split_interactions(data), epochs=4, eval_every=2)
        for data in (board, replace(board, weights=np.full(len(board), 3.7), weighting="equal"))
    ]
    history, users = runs[0].train[:5], np.arange(5)
    one, two = (run.model.scores(history, users).numpy() for run in runs)
    assert np.array_equal(one, two)
    assert runs[0].metrics["test"] == runs[1].metrics["test"]


# --- oracles -------------------------------------------------------------------------------------


def test_ease_is_the_closed_form_of_the_weighted_matrix():
    split = weighted_split("inductive")
    x = split.train.toarray().astype(np.float64)
    inverse = np.linalg.inv(x.T @ x + 20 * np.eye(x.shape[1]))
    expected = -inverse / np.diag(inverse)
    np.fill_diagonal(expected, 0)
    model = fitted("ease", split).model
    np.testing.assert_allclose(model.weights, expected, atol=1e-4)
    held = split.test.history
    found = model.scores(held, np.full(held.shape[0], -1))
    np.testing.assert_allclose(found, held.toarray() @ expected, atol=1e-4)
    rlae = ir.train(split, ir.models.RLAE(l2=20.0)).model.scores(held, np.full(held.shape[0], -1))
    np.testing.assert_allclose(rlae, held.toarray() @ expected, atol=1e-4)


def test_an_ials_user_minimises_the_weighted_squares_and_dislikes_have_target_minus_one():
    run = fitted("ials", weighted_split("inductive"))
    model = run.model
    history = np.zeros((1, 40), np.float32)
    history[0, [0, 2, 4]], history[0, 7] = (2.0, 0.5, 1.0), -0.5
    h = model.item_vectors.numpy().astype(np.float64)
    weight, wanted = np.abs(history[0]), np.sign(history[0])
    ridge = model.l2 * (weight.sum() + model.alpha * len(h)) ** model.nu
    matrix = model.alpha * h.T @ h + (h.T * weight) @ h + ridge * np.eye(model.dim)
    expected = np.linalg.solve(matrix, h.T @ (weight * wanted))
    found = model.fold_in(sp.csr_array(history))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_popularity_sums_weights():
    split = weighted_split()
    counts = fitted("popularity", split, refit=False).model.counts
    np.testing.assert_allclose(counts, split.train.toarray().sum(0), rtol=1e-5)


# --- weights that must help ----------------------------------------------------------------------


def noisy_board(weighted: bool) -> ir.Interactions:
    """Users of two colours with as many random interactions, which have a tenth of the weight."""
    board, rng = checkerboard(60, 60), np.random.default_rng(0)
    taken = board.csr().toarray() > 0
    free = np.argwhere(~taken & ((np.arange(60)[:, None] + np.arange(60)) % 2 == 1))
    noise = free[rng.permutation(len(free))[: round(0.9 * len(board))]]
    weights = np.concatenate([np.ones(len(board)), np.full(len(noise), 0.1)])
    return replace(
        board,
        users=np.concatenate([board.users, noise[:, 0]]).astype(np.int32),
        items=np.concatenate([board.items, noise[:, 1]]).astype(np.int32),
        weights=weights if weighted else None,
        weighting="trust" if weighted else "",
    )


@pytest.mark.parametrize("name", ["ease", "rlae", "itemknn", "ials", "gf-cf", "lightgcn"])
def test_low_weights_make_noise_harmless(name):
    found = {}
    for weighted in (False, True):
        split = ir.split_users(noisy_board(weighted), seed=0, test=0.3)
        run = fitted(name, split, epochs=20, eval_every=10)
        items = np.arange(60)
        scores = run.model.scores(split.test.history, np.full(len(split.test), -1)).numpy()
        user = np.array([int(str(name)[1:]) for name in split.test.ids])
        own = (user[:, None] + items) % 2 == 0
        rank = (-scores).argsort(1)[:, :20]  # of all items, seen or not
        found[weighted] = np.take_along_axis(own, rank, 1).mean()
    assert found[True] > found[False] + 0.1
    assert found[True] > 0.75
