import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from small import board_split, checkerboard

from itemfold.data.splitting.splitters import split_interactions
from itemfold.errors import ItemfoldError
from itemfold.files import atomic, locked, write_text
from itemfold.losses import bpr, item_ndcg
from itemfold.models import GAT, MF, LightGCN
from itemfold.settings.resolve import Request, resolve
from itemfold.training import run_folder
from itemfold.training.fit import train
from itemfold.training.learner import Learner
from itemfold.training.run import Run
from itemfold.training.run_folder import RunFolder
from itemfold.training.state import DescentState, load_state

FEW: dict[str, Any] = {
    "epochs": 2,
    "eval_every": 1,
    "batch": 16,
    "n_negatives": 8,
    "refit": False,
    "device": "cpu",
    "save_seconds": 0,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "done"
    train(board_split(), LightGCN(dim=4), out=folder, **FEW)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A copy of a finished run, to be damaged."""
    copy = tmp_path / "run"
    copy.mkdir()
    for file in finished.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


# --- atomic writes -------------------------------------------------------------------------------


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text(path, "old")

    def half_way() -> None:
        with atomic(path) as draft:
            draft.write_text("half of the ne")
            assert path.read_text() == "old"
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        half_way()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.json"]
    write_text(path, "new ∞")
    assert path.read_text(encoding="utf-8") == "new ∞"


def test_a_run_whose_saving_was_cut_short_is_not_a_finished_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """metrics.json is written last: without it a folder is unfinished, whatever else it has."""
    run = Run.load(folder)
    (folder / "metrics.json").unlink()
    before = (folder / "ids.json").read_bytes()

    def full_disk(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", full_disk)
    with pytest.raises(OSError, match="no space left"):
        run.save(folder)
    assert (folder / "ids.json").read_bytes() == before
    assert not list(folder.glob(".*"))
    with pytest.raises(ItemfoldError, match=r"is not finished: continue with .* --resume --out"):
        Run.load(folder)


# --- damage --------------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 3]


def garbage(content: bytes) -> bytes:
    return b"\x93\x00not what it was" + content[:40]


def nothing(content: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("harm", [cut, garbage, nothing])
@pytest.mark.parametrize(
    "name", ["config.toml", "model.safetensors", "ids.json", "metrics.json", "per_user.npz"]
)
def test_a_damaged_file_gets_one_sentence_that_names_it(
    folder: Path, name: str, harm: Callable[[bytes], bytes]
) -> None:
    path = folder / name
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ItemfoldError) as caught:
        Run.load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    if harm is garbage:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("config.toml", 'name = "lightgcn"', 'name = "lightning"', "'model' must be one of"),
        ("config.toml", "dim = 4", "dim = 5", "do not belong together"),
        ("config.toml", "dim = 4", "dims = 4", "has no setting 'dims'"),
        ("config.toml", "[model]", "[modell]", r"is damaged: it has no \[model\]"),
        ("ids.json", '"u0", ', "", "do not belong together"),
        ("ids.json", '"users"', '"people"', "do not belong together"),
        ("metrics.json", '"dataset"', '"set"', "do not belong together"),
    ],
)
@pytest.mark.filterwarnings("ignore::itemfold.errors.ItemfoldWarning")
def test_files_that_do_not_fit_each_other_get_one_sentence(
    folder: Path, name: str, old: str, new: str, message: str
) -> None:
    (folder / "checksums.json").unlink()  # an older folder; a new one is refused before
    ids = (folder / "ids.json").read_text()
    (folder / "ids.json").write_text(ids.replace('"format": 2', '"format": 1'))
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    with pytest.raises(ItemfoldError, match=message):
        Run.load(folder)


def test_paths_that_are_not_run_folders_are_reported(tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item")
    (tmp_path / "empty").mkdir()
    messages = {
        "nosuch": "nosuch: no such folder",
        "plays.csv": "plays.csv: is a file, not a run folder",
        "empty": "empty is not a finished run: config.toml, ",
    }
    for name, message in messages.items():
        with pytest.raises(ItemfoldError, match=message):
            Run.load(tmp_path / name)


@pytest.mark.parametrize("name", ["config.toml", "model.safetensors", "ids.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ItemfoldError, match=f"is not a finished run: {name} is missing"):
        Run.load(folder)


# --- what a folder holds -------------------------------------------------------------------------


def test_a_folder_has_the_documented_files(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()}
    assert names == {
        "request.toml",
        "config.toml",
        "model.safetensors",
        "ids.json",
        "history.jsonl",
        "metrics.json",
        "per_user.npz",
        "checksums.json",
    }
    metrics = json.loads((finished / "metrics.json").read_text())
    lines = (finished / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]
    with np.load(finished / "per_user.npz", allow_pickle=False) as per_user:
        assert per_user["ndcg@20"].mean() == pytest.approx(metrics["test"]["ndcg@20"])
    ids = json.loads((finished / "ids.json").read_text())
    assert ids["titles"][3] == "title 3"


def test_a_model_comes_back_on_the_cpu_with_all_its_tensors(finished: Path) -> None:
    run = Run.load(finished)
    state = run.model.state_dict()
    assert {value.device.type for value in state.values()} == {"cpu"}
    assert {"item_embedding", "user_embedding", "item_vectors", "fold_table"} <= state.keys()
    if not torch.cuda.is_available():
        with pytest.raises(ItemfoldError, match="torch sees no GPU here"):
            Run.load(finished, device="cuda")


def test_ids_of_any_type_come_back_as_they_were(tmp_path: Path) -> None:
    run = train(board_split(), MF(dim=4), **FEW)
    odd = np.array(["ü 1", 'with "quotes"', "line\u2028end", "\\", "x"] * 8, dtype=object)
    run.user_ids = type(run.user_ids)(np.array([f"{i}{s}" for i, s in enumerate(odd)], object))
    run.per_user["user"] = run.user_ids.ids[: len(run.per_user["user"])]
    run.save(tmp_path / "r")
    back = Run.load(tmp_path / "r")
    assert back.user_ids.ids.tolist() == run.user_ids.ids.tolist()
    assert back.item_ids.ids.tolist() == run.item_ids.ids.tolist()
    assert back.item_ids.ids.dtype.kind == "i"
    assert back.per_user["user"].tolist() == run.per_user["user"].tolist()


def test_saving_over_an_older_run_replaces_it(folder: Path) -> None:
    other = train(board_split(), MF(dim=3), **FEW)
    other.save(folder)
    model = Run.load(folder).config["model"]
    assert model == {"name": "mf", "dim": 3, "init_std": 0.1, "weight_decay": 0.0}


def test_losses_are_recorded_through_any_number_of_bindings() -> None:
    def recorded(loss: Any) -> Any:
        return resolve(Request({"model": MF(dim=2), "loss": loss})).record()["loss"]

    twice = functools.partial(item_ndcg(tau=0.5), tau=0.25)
    assert recorded(twice) == {"name": "item-ndcg", "tau": 0.25}

    def home_made(pos: Any, neg: Any, *masks: Any) -> Any:
        return pos.mean()

    assert recorded(home_made) == {"name": "home_made"}


# --- one process at a time -----------------------------------------------------------------------


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_which_another_process_trains_is_left_alone(
    interrupted: Path, tmp_path: Path, resume: bool
) -> None:
    folder = interrupted if resume else tmp_path / "new"
    folder.mkdir(exist_ok=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = functools.partial(train, board_split(), LightGCN(dim=4), out=folder, resume=resume)
    with (
        locked(folder, wait=False),
        pytest.raises(ItemfoldError, match=r"another process is using .*: wait for it, or choose"),
    ):
        again(**FEW)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    again(**FEW)  # the lock ends with its holder
    with locked(folder, wait=False):  # and that of training with training
        assert (folder / "metrics.json").exists()


def test_the_folder_is_locked_as_long_as_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def try_to_lock(*args: Any) -> None:
        with locked(tmp_path / "run", wait=False):
            raise AssertionError("nobody holds the lock")

    monkeypatch.setattr(run_folder, "save_state", try_to_lock)
    with pytest.raises(ItemfoldError, match="another process is using"):
        train(board_split(), LightGCN(dim=4), out=tmp_path / "run", **FEW)


@pytest.mark.parametrize("cause", [KeyboardInterrupt, MemoryError])
def test_training_that_never_began_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: type[BaseException]
) -> None:
    monkeypatch.setattr(Learner, "__init__", mock.Mock(side_effect=cause))
    with pytest.raises(cause):
        train(board_split(), LightGCN(dim=4), out=tmp_path / "run", **FEW)
    assert os.listdir(tmp_path) == []


def test_settings_of_another_run_that_saved_nothing_yet_are_kept(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[train]\nlr = 3.0\n")
    with pytest.raises(ItemfoldError, match="already holds a run"):
        train(board_split(), LightGCN(dim=4), out=tmp_path, **FEW)
    assert (tmp_path / "config.toml").read_text() == "[train]\nlr = 3.0\n"


# --- resuming ------------------------------------------------------------------------------------


class Stop(Exception):
    """Replaces a kill."""


@pytest.fixture
def interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that died after its first saved state."""
    folder = tmp_path / "run"
    save = run_folder.save_state

    def dying(*args: Any) -> None:
        save(*args)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "save_state", dying)
        with pytest.raises(Stop):
            train(board_split(), LightGCN(dim=4), out=folder, **FEW)
    return folder


def test_a_resumed_run_has_the_weights_of_one_that_was_never_interrupted(
    interrupted: Path, finished: Path
) -> None:
    run = train(board_split(), LightGCN(dim=4), out=interrupted, resume=True, **FEW)
    whole = Run.load(finished)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], value), name
    timeless = [{k: v for k, v in row.items() if k != "seconds"} for row in run.history]
    assert timeless == [{k: v for k, v in r.items() if k != "seconds"} for r in whole.history]


def test_the_state_is_tensors_and_plain_values(interrupted: Path) -> None:
    content = torch.load(interrupted / "state.pt", weights_only=True)
    assert content["epoch"] == 1
    assert content["phase"] == "select"
    assert set(content["model"]) == {"item_embedding", "user_embedding"}


@pytest.mark.parametrize(
    "change", [{"lr": 0.5}, {"epochs": 9}, {"seed": 4}, {"loss": item_ndcg(tau=0.1)}]
)
def test_resuming_with_other_settings_is_rejected(
    interrupted: Path, change: dict[str, Any]
) -> None:
    before = (interrupted / "state.pt").read_bytes()
    with pytest.raises(ItemfoldError, match=r"with other settings: '.*' is .*, got"):
        train(board_split(), LightGCN(dim=4), out=interrupted, resume=True, **{**FEW, **change})
    with pytest.raises(ItemfoldError, match="holds a run with other settings"):
        train(board_split(), GAT(dim=4), out=interrupted, resume=True, **FEW)
    assert (interrupted / "state.pt").read_bytes() == before


def test_a_run_half_written_over_another_is_not_finished(folder: Path) -> None:
    run = Run.load(folder)
    broken = mock.patch("itemfold.training.run_folder.json.dumps", side_effect=KeyboardInterrupt)
    with broken, pytest.raises(KeyboardInterrupt):
        run.save(folder)
    with pytest.raises(ItemfoldError, match="not finished"):
        Run.load(folder)


def test_resuming_on_other_data_is_rejected(interrupted: Path) -> None:
    """Settings alone cannot distinguish data in memory."""
    other = split_interactions(checkerboard(seed=5), seed=0, rounding="nearest")
    with pytest.raises(ItemfoldError, match="holds a run on other data"):
        train(other, LightGCN(dim=4), out=interrupted, resume=True, **FEW)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file that stays, with its bytes."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def test_resuming_a_finished_hybrid_leaves_the_settings_it_chose(tmp_path: Path) -> None:
    again = functools.partial(train, board_split(), out=tmp_path / "r", resume=True, epochs=2)
    blend = again().model.settings["blend"]
    before = contents(tmp_path / "r")
    assert again().model.settings["blend"] == blend
    assert contents(tmp_path / "r") == before


def test_resuming_a_damaged_run_deletes_none_of_its_files(folder: Path) -> None:
    (folder / "state.pt").unlink(missing_ok=True)
    (folder / "model.safetensors").write_bytes(b"damaged")
    before = contents(folder)
    with pytest.raises(ItemfoldError, match="is damaged or was changed"):
        train(board_split(), LightGCN(dim=4), out=folder, resume=True, **FEW)
    assert contents(folder) == before


def test_an_occupied_folder_is_rejected_unless_resumed(interrupted: Path, finished: Path) -> None:
    for folder in (interrupted, finished):
        with pytest.raises(
            ItemfoldError, match="already holds a run: continue it with --resume, or"
        ):
            train(board_split(), LightGCN(dim=4), out=folder, **FEW)
    again = train(board_split(), LightGCN(dim=4), out=finished, resume=True, **FEW)
    assert again.metrics == Run.load(finished).metrics  # finished: nothing is trained again


@pytest.mark.parametrize("harm", [cut, garbage, nothing])
def test_a_damaged_state_gets_one_sentence(
    interrupted: Path, harm: Callable[[bytes], bytes]
) -> None:
    path = interrupted / "state.pt"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(ItemfoldError, match=r"state.pt is not a training state"):
        train(board_split(), LightGCN(dim=4), out=interrupted, resume=True, **FEW)


@pytest.mark.parametrize("content", [{"epoch": 1}, [1, 2], torch.zeros(2)])
def test_a_file_of_something_else_gets_the_same_sentence(tmp_path: Path, content: Any) -> None:
    torch.save(content, tmp_path / "state.pt")
    with pytest.raises(ItemfoldError, match=r"state.pt is not a training state"):
        load_state(tmp_path / "state.pt")


def test_a_state_with_code_in_it_is_never_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"epoch": Trap()}, tmp_path / "state.pt")
    with pytest.raises(ItemfoldError, match="is not a training state"):
        load_state(tmp_path / "state.pt")
    assert not (tmp_path / "sprung").exists()


def test_drafts_of_a_killed_process_are_removed(interrupted: Path) -> None:
    (interrupted / ".state.pt.12345.tmp").write_bytes(b"half")
    train(board_split(), LightGCN(dim=4), out=interrupted, resume=True, **FEW)
    assert not list(interrupted.glob(".*"))


def test_states_are_not_written_more_often_than_configured(tmp_path: Path) -> None:
    split = board_split()
    settings = resolve(Request({"model": MF(dim=2), "loss": bpr, "train": {"device": "cpu"}}))
    learner = Learner(settings.make_model(), settings, split)
    state, folder = DescentState(), RunFolder(tmp_path)
    folder.save_state(state, learner, least_seconds=1000)
    assert not (tmp_path / "state.pt").exists()
    folder.save_state(state, learner, least_seconds=0)
    assert (tmp_path / "state.pt").exists()


def test_equal_runs_have_equal_files_that_others_may_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train(board_split(), LightGCN(dim=4), out=tmp_path / name, **FEW)
    first, second = (tmp_path / name / "model.safetensors" for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode == (tmp_path / "a" / "config.toml").stat().st_mode


def test_a_run_is_not_saved_over_a_file(tmp_path: Path, finished: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item")
    with pytest.raises(ItemfoldError, match="is a file"):
        Run.load(finished).save(tmp_path / "plays.csv")


def test_another_format_is_rejected_by_name(folder: Path) -> None:
    ids = json.loads((folder / "ids.json").read_text())
    for other in (99, "9"):
        (folder / "ids.json").write_text(json.dumps({**ids, "format": other}))
        with pytest.raises(ItemfoldError, match="newer itemfold"):
            Run.load(folder)


def test_a_failed_write_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_text(tmp_path / "no" / "recs.csv", "")
    assert raised.value.filename == str(tmp_path / "no" / "recs.csv")
