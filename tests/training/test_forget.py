"""A forgotten user leaves no trace of their own in a run folder, and others keep their lists."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import itemfold as ir
from itemfold.files import locked
from itemfold.models import MODELS
from itemfold.training import forget
from itemfold.training.forget import forget_user

N_USERS, N_ITEMS = 41, 37  # different, so that a row of a user is not taken for one of an item
SECRET = "secret-user-7"
# they score with all users, who are one less
RECOMPUTED = ("hybrid", "gf-cf", "chebycf", "userknn")


@pytest.fixture(scope="module")
def data() -> ir.Interactions:
    """Users with text ids, among them one whose id is easy to search for."""
    made = ir.load(f"synthetic:users={N_USERS},items={N_ITEMS},interactions=440")
    names = [SECRET if n == 7 else f"user-{n}" for n in range(N_USERS)]
    users, items = (np.array(names)[made.users], made.item_ids.ids[made.items])
    times = 1e9 + 3600.0 * np.arange(len(users))
    return ir.read(pl.DataFrame({"user": users, "item": items, "time": times}))


def lists(folder: Path, users: list[str]) -> dict[str, list[tuple[int, float]]]:
    recommender = ir.Recommender.load(folder)
    found = {user: recommender.recommend(user, k=10) for user in users}
    return {user: [(pick.item, pick.score) for pick in picks] for user, picks in found.items()}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_forgets_a_user_and_serves_the_others(name, data, tmp_path):
    model = MODELS[name]()
    epochs = {} if model.kind.value == "closed form" else {"epochs": 1, "eval_every": 1}
    split = ir.split_interactions(data, seed=0)
    folder = tmp_path / "run"
    run = ir.train(split, model, **epochs)
    run.save(folder)
    others = [user for user in run.user_ids.ids.tolist() if user != SECRET]
    own = run.interactions[[run.user_ids.index([SECRET])[0]]].nnz
    before = lists(folder, others)

    assert forget_user(folder, SECRET) == own > 0

    after = ir.Run.load(folder)
    assert after.user_ids.ids.tolist() == others
    assert after.interactions.nnz == run.interactions.nnz - own
    assert (after.times is None) == (run.times is None)
    assert after.times is None or len(after.times) == after.interactions.nnz
    assert SECRET not in after.per_user["user"].tolist()
    assert len(after.per_user["user"]) == len(run.per_user["user"]) - 1
    assert after.metrics["test"] == run.metrics["test"]
    found = lists(folder, others)
    if name in RECOMPUTED:
        assert all(len(picks) == 10 for picks in found.values())
    else:
        for user in others:
            assert [item for item, _ in found[user]] == [item for item, _ in before[user]]
            wanted, got = ([score for _, score in one[user]] for one in (before, found))
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ir.UnknownIdError):
        ir.Recommender.load(folder).recommend(SECRET)
    with pytest.raises(ir.UnknownIdError, match="has no user"):
        forget_user(folder, SECRET)


def test_models_that_store_interactions_forget_those_of_the_user(data, tmp_path):
    split = ir.split_interactions(data, seed=0)
    for part in ("userknn", "gf-cf"):
        for model in (MODELS[part](), ir.models.Hybrid(gnn="none", others=[part])):
            folder = tmp_path / f"{part}-{type(model).__name__}"
            ir.train(split, model).save(folder)
            forget_user(folder, SECRET)
            after = ir.Run.load(folder)
            (stored,) = [
                len(tensor) // (1 if part == "userknn" else 2)  # a graph has both directions
                for name, tensor in after.model.state_dict().items()
                if name.endswith(("train_items", "col"))
            ]
            assert stored == after.interactions.nnz


@pytest.fixture
def folder(data, tmp_path) -> Path:
    """A trained run with a state to resume from, in an inductive protocol."""
    folder = tmp_path / "run"
    split = ir.split_users(data, seed=0)
    ir.train(split, ir.models.LightGCN(dim=4), epochs=2, eval_every=1, out=folder)
    return folder


def test_no_file_has_the_id_or_the_vector_of_the_user(folder):
    run = ir.Run.load(folder)
    user = run.user_ids.ids[3].item()
    vector = run.model.user_vectors[3].numpy().tobytes()
    (folder / "notes.txt").write_text("mine")
    (folder / "state.pt").write_bytes(b"of the optimizer")
    content = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert f'"{user}"'.encode() in content
    assert vector in content
    config = (folder / "config.toml").read_text()
    forget_user(folder, user)
    content = b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())
    assert f'"{user}"'.encode() not in content
    assert vector not in content
    assert not (folder / "state.pt").exists()
    assert (folder / "config.toml").read_text() == config
    assert (folder / "notes.txt").read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["forgotten"] == 1
    assert sum("itemfold forget" in note for note in metrics["notes"]) == 1


def test_a_test_user_of_the_inductive_protocol_is_forgotten_as_well(folder):
    run = ir.Run.load(folder)
    held_out = next(u for u in run.per_user["user"].tolist() if run.user_ids.index([u])[0] < 0)
    assert forget_user(folder, held_out) == 0
    after = ir.Run.load(folder)
    assert held_out not in after.per_user["user"].tolist()
    assert after.user_ids.ids.tolist() == run.user_ids.ids.tolist()
    assert torch.equal(after.model.user_vectors, run.model.user_vectors)


def test_numeric_ids_and_several_users(tmp_path):
    data = ir.load("synthetic:users=30,items=20,interactions=170")
    run = ir.train(ir.keep_all(data), ir.models.EASE())
    run.save(tmp_path / "run")
    for user in ("3", " 4 "):
        forget_user(tmp_path / "run", user)
    after = ir.Run.load(tmp_path / "run")
    assert after.user_ids.ids.tolist() == [u for u in run.user_ids.ids.tolist() if u not in (3, 4)]
    assert after.metrics["forgotten"] == 2
    expected = np.delete(run.interactions.toarray(), run.user_ids.index([3, 4]), axis=0)
    np.testing.assert_array_equal(after.interactions.toarray(), expected)


def test_a_link_to_the_folder_stays_a_link(folder, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(folder)
    user = ir.Run.load(folder).user_ids.ids[0].item()
    forget_user(link, user)
    assert link.is_symlink()
    assert ir.Run.load(link).user_ids.index([user])[0] < 0


@pytest.mark.parametrize("step", ["_write", "rename"])
def test_a_failure_leaves_the_run_as_it_was(folder, monkeypatch, step):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    user = ir.Run.load(folder).user_ids.ids[0].item()
    rename, calls = Path.rename, []

    def failing(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    def failing_rename(path: Path, target: Path) -> Path:
        if path.name.endswith(".forget"):
            calls.append(path)
            failing()
        return rename(path, target)

    if step == "_write":
        monkeypatch.setattr(forget, "_write", failing)
    else:
        monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises(ir.ItemfoldError, match=r"cannot be replaced \(No space .* is unchanged"):
        forget_user(folder, user)
    assert bool(calls) == (step == "rename")
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    forget_user(folder, user)


def test_what_cannot_be_forgotten_is_named(folder, tmp_path):
    with pytest.raises(ir.ItemfoldError, match="no such folder"):
        forget_user(tmp_path / "none", "x")
    with pytest.raises(ir.UnknownIdError, match="has no user 'nobody'"):
        forget_user(folder, "nobody")
    with locked(folder, wait=False), pytest.raises(ir.ItemfoldError, match="another process"):
        forget_user(folder, ir.Run.load(folder).user_ids.ids[0].item())
    alone = ir.read(pl.DataFrame({"user": ["a", "a", "a"], "item": [1, 2, 3]}))
    ir.train(ir.keep_all(alone), ir.models.Popularity()).save(tmp_path / "alone")
    with pytest.raises(ir.ItemfoldError, match="'a' is the only user of"):
        forget_user(tmp_path / "alone", "a")


def test_an_updated_run_and_an_update_of_what_is_left(folder, data, tmp_path):
    user = ir.Run.load(folder).user_ids.ids[0].item()
    forget_user(folder, user)
    newer = ir.update(folder, pl.DataFrame({"user": ["eve"], "item": [data.item_ids.ids[0]]}))
    newer.save(tmp_path / "newer")
    forget_user(tmp_path / "newer", "eve")
    assert ir.Run.load(tmp_path / "newer").user_ids.index(["eve", user]).tolist() == [-1, -1]
    shutil.rmtree(tmp_path / "newer")
