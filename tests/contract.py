"""What every model must satisfy, as clauses that run for each entry of MODELS.

A new model is covered as soon as it is in the table. Constructor or training settings that make it
quick on a small board may be added to SETTINGS and TRAIN below.
"""

import functools
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small import board_split
from torch import Tensor

from itemfold.data.splitting.split import HeldOut, Split
from itemfold.errors import ItemfoldError
from itemfold.evaluation.ranking import mask_history, top_items
from itemfold.losses import softmax
from itemfold.models import MODELS, Model
from itemfold.settings.toml_file import dump_config
from itemfold.training.fit import train
from itemfold.training.run import Run
from itemfold.validation import check_settings, schema

SETTINGS: dict[str, dict[str, Any]] = {
    "ease": {"l2": 20.0},
    "rlae": {"l2": 20.0, "item_power": 0.2, "user_power": 0.3, "dropout": 0.5, "relax": 0.1},
    "hybrid": {
        "gnn": {"dim": 16, "start": "svd"},
        "linear": {"l2": 20.0, "items": 40},
        "blend": ((0.0, 0.3, 0.0, 1.0, 0.5), (12.0, 0.2, 0.0, 1.0, 1.0)),
        "half_life": "never",  # the data has no times
        "popularity_half_life": "never",
    },
    # two colours make only two kinds of node: the term that separates all nodes must be small
    "dgcf": {"penalty": 0.001},
    "sgl": {"weight": 0.002},
    "simgcl": {"weight": 0.01},
    "xsimgcl": {"weight": 0.01},
    "egcf": {"weight": 0.01},
    "sansa": {"l2": 20.0, "density": 0.5},
    # unobserved items include some of the user's colour: the hardest of many is one of them
    "cml": {"negatives": 1},
    "enmf": {"negative_weight": 0.3},
    "ials": {"l2": 0.1},
    "ultragcn": {"negatives": 10, "negative_weight": 10.0},
    "mult-vae": {"hidden": 32, "latent": 8},
    "recvae": {"hidden": 32, "latent": 8},
}
TRAIN: dict[str, dict[str, Any]] = {
    "cml": {"epochs": 40},
    "line": {"batch_by": "interactions"},
    "ultragcn": {"batch_by": "interactions"},
}
IMPERSONAL = {"popularity"}  # one list for all users cannot distinguish two colours
QUICK: dict[str, Any] = {
    "loss": softmax,  # never saturates, so that few steps are enough for every encoder
    "epochs": 12,
    "eval_every": 6,
    "lr": 0.03,
    "batch": 16,
    "n_negatives": 10,
    "ema_decay": 0.9,
    "refit": False,
    "device": "cpu",
}


def make(name: str) -> Model:
    """A small model of this name."""
    small = {"dim": 16} if "dim" in schema(MODELS[name]) else {}
    return MODELS[name](**{**small, **SETTINGS.get(name, {})})


def fitted(name: str, split: Split, **settings: Any) -> Run:
    return train(split, make(name), **{**QUICK, **TRAIN.get(name, {}), **settings})


@functools.cache
def trained(name: str, protocol: str) -> tuple[Run, Split]:
    """A run on the checkerboard; clauses must not change it."""
    split = board_split(protocol)
    return fitted(name, split), split


def protocols(name: str) -> list[str]:
    return ["transductive", *(["inductive"] if MODELS[name].inductive else [])]


def colours(model: Model, held: HeldOut) -> float:
    """Share of the five best new items that have the user's colour."""
    scores = mask_history(model.scores(held.history, held.users), held.history)
    user = np.array([int(str(name)[1:]) for name in held.ids])
    best = top_items(scores, 5).numpy()
    return float(np.mean((best + user[:, None]) % 2 == 0))


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Assert that tensors are equal bit for bit."""
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        assert torch.equal(tensor, right[name]), name


# --- clauses -------------------------------------------------------------------------------------


def learns_a_checkerboard(name: str, folder: Path) -> None:
    """Even users like even items: held-out items of the pattern rank above the others."""
    for protocol in protocols(name):
        run, split = trained(name, protocol)
        found = colours(run.model, split.test)
        if name in IMPERSONAL:
            assert found < 0.8
        else:  # by chance: about 0.3
            assert found > 0.9, (protocol, found)


def saving_and_loading_changes_nothing(name: str, folder: Path) -> None:
    for protocol in protocols(name):
        run, split = trained(name, protocol)
        run.save(folder / protocol)
        back = Run.load(folder / protocol)
        test = split.test
        expected = run.model.scores(test.history, test.users)
        assert torch.equal(back.model.scores(test.history, test.users), expected)
        same(back.model.state_dict(), run.model.state_dict())
        assert back.model.record() == run.model.record()
        assert not back.model.training
        assert back.metrics == run.metrics
        assert back.history == run.history
        assert back.item_ids.ids.tolist() == run.item_ids.ids.tolist()
        assert back.user_ids.ids.tolist() == run.user_ids.ids.tolist()
        np.testing.assert_array_equal(back.train.toarray(), run.train.toarray())


def refitting_equals_fitting(name: str, folder: Path) -> None:
    """A refit on training + validation equals a run trained on both from the start."""
    split = board_split()
    few = {"epochs": 4, "eval_every": 1, "ema_decay": 0.5}
    run = fitted(name, split, **few, refit=True)
    direct = fitted(name, split.refit(), **{**few, "epochs": max(run.metrics["best_epoch"], 1)})
    same(direct.model.state_dict(), run.model.state_dict())
    assert direct.metrics["test"] == run.metrics["test"]


def the_same_seed_gives_the_same_weights(name: str, folder: Path) -> None:
    split = board_split()
    few = {"epochs": 2, "eval_every": 1}
    first, second = (fitted(name, split, **few, seed=3) for _ in range(2))
    same(first.model.state_dict(), second.model.state_dict())


def a_batch_equals_single_users(name: str, folder: Path) -> None:
    for protocol in protocols(name):
        run, split = trained(name, protocol)
        history, users = split.test.history[:9], split.test.users[:9].copy()
        if MODELS[name].inductive:
            users[::2] = -1  # known and unknown users in one batch
        together = run.model.scores(history, users)
        assert together.shape == (len(users), split.n_items)
        assert together.dtype == torch.float32
        assert together.isfinite().all()
        for row in range(len(users)):
            alone = run.model.scores(history[[row]], users[[row]])
            torch.testing.assert_close(alone[0], together[row], rtol=1e-4, atol=1e-5)


def scores_are_a_new_tensor(name: str, folder: Path) -> None:
    """The caller may overwrite scores: neither later scores nor weights change."""
    for protocol in protocols(name):
        run, split = trained(name, protocol)
        test, before = split.test, copies(run.model)
        groups = [test.users, test.users[:1]]  # a single row may be a view where many are a copy
        if MODELS[name].inductive:
            groups += [np.full_like(users, -1) for users in groups]
        for users in groups:
            history = test.history[: len(users)].copy()
            first = run.model.scores(history, users)
            kept = first.clone()
            first.fill_(-torch.inf)
            assert torch.equal(run.model.scores(history, users), kept)
            same(copies(run.model), before)
            np.testing.assert_array_equal(history.toarray(), test.history[: len(users)].toarray())


def copies(model: Model) -> dict[str, Tensor]:
    """Copies of all parameters and buffers, also of those that are not stored with a run."""
    tensors = (*model.named_parameters(), *model.named_buffers())
    return {key: value.detach().clone() for key, value in tensors}


def settings_survive_the_configuration(name: str, folder: Path) -> None:
    run, _ = trained(name, "transductive")
    section = tomllib.loads(dump_config(run.config))["model"]
    assert section.pop("name") == name
    again = MODELS[name](**check_settings(MODELS[name], name, section))
    assert again.record() == run.model.record() == make(name).record()
    assert set(again.settings) == set(schema(MODELS[name]))  # no setting is declared elsewhere
    with pytest.raises(ItemfoldError, match="no setting 'colour'"):
        check_settings(MODELS[name], name, {"colour": 1})


def unseen_users_are_scored_or_refused_with_the_models_name(name: str, folder: Path) -> None:
    kind = MODELS[name]
    run, split = trained(name, "transductive")
    unseen = np.full(len(split.test), -1)
    if kind.inductive:
        scores = run.model.scores(split.test.history, unseen)
        assert scores.isfinite().all()
        nothing = sp.csr_array((2, split.n_items), dtype=np.float32)
        assert run.model.scores(nothing, unseen[:2]).isfinite().all()
        return
    assert kind.why_not_inductive
    with pytest.raises(ItemfoldError, match=f"{kind.__name__} cannot be used in the inductive"):
        fitted(name, board_split("inductive"), out=folder / "run")
    assert not (folder / "run").exists()
    with pytest.raises(ItemfoldError, match=f"{kind.__name__} cannot score an unseen user"):
        run.model.scores(split.test.history, unseen)


def explanations_add_up_to_the_score(name: str, folder: Path) -> None:
    run, split = trained(name, "transductive")
    row = split.test.history[[0]]
    items = torch.tensor([0, 7, 30])
    if not MODELS[name].explains:
        with pytest.raises(ItemfoldError, match=f"{MODELS[name].__name__} gives no exact"):
            run.model.explain(row, -1, items)
        return
    for protocol in protocols(name):
        run, split = trained(name, protocol)
        for row in (split.test.history[[0]], split.test.history[[3]]):
            shares = run.model.explain(row, -1, items)
            assert shares.shape == (3, row.nnz)
            score = run.model.scores(row, np.array([-1]))[0, items]
            found = shares.sum(1) + run.model.popularity_part(row, -1, items)
            torch.testing.assert_close(found, score, rtol=1e-4, atol=1e-5)


def scores_and_explainer_equal_scores_and_explain(name: str, folder: Path) -> None:
    run, split = trained(name, "transductive")
    items, known = torch.tensor([0, 7, 30]), (2, run.train[[2]])
    unseen = [(-1, split.test.history[[row]]) for row in (0, 3)] if MODELS[name].inductive else []
    for user, history in [known, *unseen]:
        scores, explain = run.model.scores_and_explainer(history, user)
        assert torch.equal(scores, run.model.scores(history, np.array([user])))
        scores.fill_(-torch.inf)  # the caller may change them
        if MODELS[name].explains:
            assert torch.equal(explain(items), run.model.explain(history, user, items))
            assert torch.equal(explain(items[:1]), run.model.explain(history, user, items[:1]))
        else:
            with pytest.raises(ItemfoldError, match=f"{MODELS[name].__name__} gives no exact"):
                explain(items)


def it_names_its_paper(name: str, folder: Path) -> None:
    kind = MODELS[name]
    assert kind.paper
    assert kind.__doc__
    assert kind.__doc__ != Model.__doc__
    assert kind.year > 1990 or name in IMPERSONAL


CONTRACT: list[Callable[[str, Path], None]] = [
    learns_a_checkerboard,
    saving_and_loading_changes_nothing,
    refitting_equals_fitting,
    the_same_seed_gives_the_same_weights,
    a_batch_equals_single_users,
    scores_are_a_new_tensor,
    settings_survive_the_configuration,
    unseen_users_are_scored_or_refused_with_the_models_name,
    explanations_add_up_to_the_score,
    scores_and_explainer_equal_scores_and_explain,
    it_names_its_paper,
]
