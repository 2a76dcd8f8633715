"""An update: rows stay, new users and items join, quality does not fall, writes are atomic."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import cosine_similarity

import itemfold as ir
from itemfold.data.interactions import Interactions
from itemfold.errors import ItemfoldError
from itemfold.models.growth import grown_weights
from itemfold.training.fingerprint import fingerprint
from itemfold.training.run_folder import RunFolder

DATA = ir.load("synthetic:users=100,items=80,interactions=2400,seed=3")
MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "hybrid": (lambda: ir.models.Hybrid(dim=16), {"epochs": 20, "similarity": "cosine"}),
    "item-log": (
        lambda: ir.models.LightGCN(dim=16),
        {"loss": ir.losses.item_log(tau=0.5), "epochs": 40, "eval_every": 10, "patience": 40},
    ),
    "item-ndcg": (
        lambda: ir.models.LightGCN(dim=16),
        {"loss": ir.losses.item_ndcg, "epochs": 40, "eval_every": 10, "patience": 40},
    ),
    "bpr": (
        lambda: ir.models.LightGCN(dim=16),
        {"loss": ir.losses.bpr, "epochs": 40, "eval_every": 10, "lr": 0.02, "patience": 40},
    ),
    "gcn": (lambda: ir.models.GCN(dim=16), {"epochs": 5}),
    "mf": (lambda: ir.models.MF(dim=16), {"epochs": 5, "lr": 0.01}),
    "ease": (lambda: ir.models.EASE(50.0), {}),
    "rlae": (lambda: ir.models.RLAE(), {}),
    "ials": (lambda: ir.models.IALS(dim=8), {}),
    "popularity": (lambda: ir.models.Popularity(), {}),
}


def parts(seed: int = 0) -> tuple[Interactions, Interactions, Interactions]:
    """Early, late and test interactions; some users and items come late."""
    rng = np.random.default_rng(seed)
    late = rng.random(len(DATA)) < 0.1
    late |= (DATA.users >= 93) | (DATA.items >= 76)
    test = rng.random(len(DATA)) < 0.1
    return DATA.where(~late & ~test), DATA.where(late & ~test), DATA.where(test)


EARLY, LATE, TEST = parts()


@pytest.fixture(scope="module")
def trained() -> dict[str, ir.Run]:
    split = ir.split_interactions(EARLY, test=0.02)
    return {
        name: ir.train(split, make(), device="cpu", **settings)
        for name, (make, settings) in MODELS.items()
    }


@pytest.fixture(scope="module")
def updated(trained) -> dict[str, ir.Run]:
    return {name: ir.update(run, LATE) for name, run in trained.items()}


def lists(run: ir.Run, users: Any = None, k: int = 10) -> list[list[Any]]:
    recommender = ir.Recommender(run)
    chosen = run.user_ids.ids[:20] if users is None else users
    return [[pick.item for pick in recommender.recommend(user, k=k)] for user in chosen]


@pytest.mark.parametrize("name", MODELS)
def test_nothing_new_gives_the_same_recommendations(trained, name) -> None:
    run = trained[name]
    known = EARLY.where(np.arange(len(EARLY)) < 5)
    pairs = {(int(u), int(i)) for u, i in zip(*run.train.nonzero(), strict=True)}
    rows = run.user_ids.index(known.user_ids.ids)[known.users]
    columns = run.item_ids.index(known.item_ids.ids)[known.items]
    keep = np.array([pair in pairs for pair in zip(rows, columns, strict=True)])
    frame = pl.DataFrame({"user": [], "item": []})
    for new in (frame, known.where(keep)):
        same = ir.update(run, new)
        assert lists(same) == lists(run)
        assert same.metrics["update"]["new_interactions"] == 0
        assert same.notes[0] == "The update has no new interactions: the model is unchanged."


@pytest.mark.parametrize("name", MODELS)
def test_known_ids_keep_their_rows_and_new_ones_are_appended(trained, updated, name) -> None:
    old, new = trained[name], updated[name]
    for before, after in ((old.user_ids, new.user_ids), (old.item_ids, new.item_ids)):
        assert after.ids[: len(before)].tolist() == before.ids.tolist()
        assert len(after) > len(before)
    assert new.train.shape == (len(new.user_ids), len(new.item_ids))
    inside = new.train[: old.train.shape[0], : old.train.shape[1]]
    assert (old.train - inside.multiply(old.train)).nnz == 0
    done = new.metrics["update"]
    assert new.train.nnz == old.train.nnz + done["new_interactions"]
    assert done["new_users"] == len(new.user_ids) - len(old.user_ids)
    assert done["run_data"] == old.dataset["fingerprint"]
    assert done["new_data"] == LATE.fingerprint
    assert new.config["update"] == done


@pytest.mark.parametrize("name", MODELS)
def test_a_new_user_gets_a_list_and_a_new_item_can_be_on_one(updated, name) -> None:
    run = updated[name]
    user = run.user_ids.ids[-1]
    (found,) = lists(run, [user], k=run.train.shape[1])
    row = run.train[[len(run.user_ids) - 1]]
    assert not {run.item_ids.ids[i] for i in row.indices} & set(found)
    assert len(found) > 30
    new = set(run.item_ids.ids[-run.metrics["update"]["new_items"] :].tolist())
    everywhere = {
        item for one in lists(run, run.user_ids.ids, k=run.train.shape[1]) for item in one
    }
    assert new & everywhere


def ndcg(run: ir.Run) -> float:
    """NDCG@20 on later interactions, for users that the first runs know."""
    from itemfold.data.joining import later_part

    held, _ = later_part(run.train, run.user_ids, run.item_ids, TEST)
    split = replace(
        ir.split_interactions(EARLY),
        train=run.train,
        valid=None,
        test=held,
        user_ids=run.user_ids,
        item_ids=run.item_ids,
    )
    return ir.evaluate(run, split, metrics=["ndcg@20"]).metrics["ndcg@20"]


@pytest.mark.parametrize("name", ["hybrid", "item-log", "item-ndcg", "bpr", "ease", "rlae"])
def test_quality_does_not_fall(trained, updated, name) -> None:
    assert ndcg(updated[name]) >= 0.98 * ndcg(trained[name])


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_update_gives_the_same_lists_and_can_be_updated_again(
    updated, name, tmp_path
) -> None:
    run = updated[name]
    run.save(tmp_path / "one")
    loaded = ir.Run.load(tmp_path / "one")
    assert lists(loaded) == lists(run)
    more = pl.DataFrame({"user": ["zoe"] * 3, "item": run.item_ids.ids[[0, 3, 5]].tolist()})
    again = ir.update(tmp_path / "one", more, out=tmp_path / "two")
    assert again.config["update"]["updates"] == 2
    assert again.config["update"]["run"] == fingerprint(loaded)
    assert lists(ir.Run.load(tmp_path / "two"), ["zoe"]) == lists(again, ["zoe"])


@pytest.mark.parametrize("name", ["ease", "rlae", "popularity"])
def test_two_updates_equal_one_for_closed_forms(trained, name) -> None:
    half = np.arange(len(LATE)) % 2 == 0
    twice = ir.update(ir.update(trained[name], LATE.where(half)), LATE.where(~half))
    once = ir.update(trained[name], LATE)
    assert twice.dataset["fingerprint"] == once.dataset["fingerprint"]
    rows = once.user_ids.ids[:30]
    history = [once.train.indices[slice(*once.train.indptr[n : n + 2])] for n in range(30)]
    for row, items in zip(rows, history, strict=True):
        ids = once.item_ids.external(items).tolist()
        one, two = (
            {pick.item: pick.score for pick in ir.Recommender(run).recommend(history=ids, k=15)}
            for run in (once, twice)
        )
        both = one.keys() & two.keys()
        assert len(both) >= 14, row  # scores that are equal up to rounding may swap
        np.testing.assert_allclose([one[i] for i in both], [two[i] for i in both], rtol=1e-3)


def test_the_run_is_untouched(trained) -> None:
    for name in ("hybrid", "item-ndcg", "ease"):
        before = fingerprint(trained[name]), trained[name].config
        ir.update(trained[name], LATE, epochs=1)
        assert (fingerprint(trained[name]), trained[name].config) == before


def test_grown_vectors_are_the_old_ones_and_those_of_neighbours(trained) -> None:
    model, run = trained["item-ndcg"].model, trained["item-ndcg"]
    assert isinstance(model, ir.models.LightGCN)
    n, empty = run.train.shape[0], run.train[:1] * 0
    train = sp.csr_array(sp.vstack([run.train, run.train, empty]))  # twins of all, and nobody
    train.eliminate_zeros()
    found = grown_weights(model, train, torch.Generator())
    known = model.user_embedding
    assert known is not None
    assert found["user_embedding"][:n].equal(known)
    assert found["item_embedding"].equal(model.item_embedding)
    twins = found["user_embedding"][n : 2 * n]
    own, other = (cosine_similarity(twins, known.roll(shift, 0)).mean() for shift in (0, 1))
    assert own > other + 0.02
    length = known.pow(2).mean().sqrt()
    assert 0.3 * length < found["user_embedding"][-1].pow(2).mean().sqrt() < 3 * length


def test_no_epochs_means_no_training(trained) -> None:
    run = ir.update(trained["item-ndcg"], LATE, epochs=0)
    old, new = trained["item-ndcg"].model, run.model
    assert isinstance(old, ir.models.LightGCN)
    assert isinstance(new, ir.models.LightGCN)
    assert new.item_embedding[: len(old.item_embedding)].equal(old.item_embedding)
    assert run.metrics["update"]["epochs"] == 0
    assert len(lists(run, [run.user_ids.ids[-1]])[0]) == 10


def test_a_hybrid_without_a_network_has_no_epochs(trained) -> None:
    alone = ir.train(ir.split_interactions(EARLY), ir.models.Hybrid(gnn=None), device="cpu")
    assert ir.update(alone, LATE).metrics["update"]["epochs"] == 0
    assert ir.update(trained["hybrid"], LATE).metrics["update"]["epochs"] > 0


def test_new_data_that_the_run_knows_nothing_of_is_reported(trained, updated) -> None:
    other = pl.DataFrame({"user": ["u1", "u2"], "item": ["m1", "m1"]})
    run = ir.update(trained["ease"], other)
    assert "The run knows no user and no item of the new data" in run.notes[0] + run.notes[1]
    assert not any("knows no user" in note for note in updated["ease"].notes)


def test_the_inductive_protocol_has_no_user_vectors_after_an_update_either() -> None:
    split = ir.split_users(EARLY, test=0.2)
    run = ir.train(split, ir.models.LightGCN(dim=8), epochs=5, device="cpu")
    new = ir.update(run, LATE)
    assert isinstance(new.model, ir.models.LightGCN)
    assert new.model.user_embedding is None
    assert new.protocol == "inductive"
    assert new.train.shape[0] > run.train.shape[0]


def test_the_linear_part_of_a_hybrid_covers_new_items(trained, updated) -> None:
    old, new = trained["hybrid"].model, updated["hybrid"].model
    assert old.linear.items == old.n_items < new.n_items == new.linear.items


def test_the_least_rating_of_the_run_applies_to_new_data(tmp_path) -> None:
    rows = "".join(f"u{n % 9},i{n % 7},{1 + n % 5}\n" for n in range(60))
    (tmp_path / "a.csv").write_text("who,what,stars\n" + rows)
    data = ir.read(tmp_path / "a.csv", user="who", item="what", rating="stars", min_rating=3)
    run = ir.train(ir.split_interactions(data), ir.models.EASE())
    (tmp_path / "b.csv").write_text("who,what,stars\neve,i1,5\neve,i2,1\n")
    new = ir.update(run, tmp_path / "b.csv")
    assert new.metrics["update"]["new_interactions"] == 1
    (tmp_path / "c.csv").write_text("who,what,stars\ndan,i1,4\n")
    assert ir.update(new, tmp_path / "c.csv").metrics["update"]["new_interactions"] == 1
    low = ir.update(run, tmp_path / "b.csv", min_rating=1)
    assert low.metrics["update"]["new_interactions"] == 2


@pytest.mark.parametrize("model", [ir.models.UltraGCN(dim=8), ir.models.DeepWalk(dim=8)])
def test_a_model_that_cannot_be_updated_is_refused_by_name(model) -> None:
    run = ir.train(ir.split_interactions(EARLY), model, epochs=1, device="cpu")
    with pytest.raises(ItemfoldError, match=r"cannot be updated: train it again on all data"):
        ir.update(run, LATE)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"epochs": -1}, "'epochs' must be a positive integer"),
        ({"epochs": 1.5}, "'epochs' must be a positive integer"),
        ({"device": "tpu"}, "'device' must be"),
        ({"run": 5}, "'run' must be a Run or its folder"),
        ({"new": 5}, "'source' must be"),
    ],
)
def test_bad_arguments_are_refused(trained, arguments, problem) -> None:
    given = {"run": trained["popularity"], "new": LATE, **arguments}
    with pytest.raises(ItemfoldError, match=problem):
        ir.update(given.pop("run"), given.pop("new"), **given)


def test_weights_are_refused_rather_than_forgotten(trained) -> None:
    run = trained["ease"]
    with pytest.raises(ItemfoldError, match="weighted interactions cannot be updated"):
        ir.update(replace(run, interactions=run.interactions * np.float32(2)), LATE)
    new = replace(LATE, weights=np.ones(len(LATE)))
    with pytest.raises(ItemfoldError, match="does not support weights: remove 'weight'"):
        ir.update(run, new)


# --- the folder ----------------------------------------------------------------------------------


def test_a_folder_with_a_run_is_not_overwritten(trained, tmp_path) -> None:
    trained["ease"].save(tmp_path / "r")
    before = {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()}
    with pytest.raises(ItemfoldError, match="already holds a run"):
        ir.update(tmp_path / "r", LATE, out=tmp_path / "r")
    assert {p.name: p.read_bytes() for p in (tmp_path / "r").iterdir()} == before


def test_a_failure_leaves_no_folder(trained, tmp_path, monkeypatch) -> None:
    with pytest.raises(ItemfoldError, match="no such file"):
        ir.update(trained["ease"], tmp_path / "none.csv", out=tmp_path / "r2")
    assert not (tmp_path / "r2").exists()

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("itemfold.training.run_folder.write_checksums", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ir.update(trained["ease"], LATE, out=tmp_path / "r2")
    assert not (tmp_path / "r2").exists()


def test_what_a_killed_update_left_is_replaced_and_never_loaded(trained, tmp_path) -> None:
    whole = ir.update(trained["ease"], LATE, out=tmp_path / "r2")
    folder = tmp_path / "r2"
    (folder / "metrics.json").unlink()  # it is written last
    with pytest.raises(ItemfoldError, match="not finished: continue with itemfold update RUN NEW"):
        ir.Run.load(folder)
    again = ir.update(trained["ease"], LATE, out=folder)
    assert lists(ir.Run.load(folder)) == lists(again) == lists(whole)


def test_an_unfinished_training_is_not_replaced(trained, tmp_path) -> None:
    (tmp_path / "r2").mkdir()
    (tmp_path / "r2" / "config.toml").write_text("[train]\nlr = 0.1\n")
    with pytest.raises(ItemfoldError, match="already holds a run"):
        ir.update(trained["ease"], LATE, out=tmp_path / "r2")
    assert (tmp_path / "r2" / "config.toml").exists()


def test_two_updates_cannot_share_a_folder(trained, tmp_path) -> None:
    out = tmp_path / "r2"
    with RunFolder(out).locked(), pytest.raises(ItemfoldError, match="another process is using"):
        ir.update(trained["ease"], LATE, out=Path(out))
