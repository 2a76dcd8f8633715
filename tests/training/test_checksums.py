"""Damage to a run folder is noticed, whichever bit it hits; older folders load with a note."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from small import board_split

import itemfold as ir
from itemfold.errors import ItemfoldError, ItemfoldWarning
from itemfold.training.checksums import CHECKSUMMED
from itemfold.training.run_folder import RunFolder
from itemfold.training.state import DescentState, load_state

FIXTURES = Path(__file__).parents[1] / "fixtures"
FEW = {"epochs": 2, "eval_every": 1, "refit": False, "device": "cpu", "save_seconds": 0}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "done"
    save_state = RunFolder.save_state

    def and_copy(self: RunFolder, *args: Any, **options: Any) -> None:
        save_state(self, *args, **options)
        shutil.copy(self.path / "state.pt", folder.parent)  # a finished run has none

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "save_state", and_copy)
        ir.train(board_split(), ir.models.LightGCN(dim=4), out=folder, **FEW)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_any_flipped_bit_is_noticed_and_the_file_is_named(folder: Path, name: str) -> None:
    path = folder / name
    content, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(len(content), size=25):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        with pytest.raises(ItemfoldError, match=f"{name} is "):
            ir.Run.load(folder)
    path.write_bytes(content)
    ir.Run.load(folder)  # it was only that


@pytest.mark.parametrize("name", [*CHECKSUMMED, "checksums.json"])
def test_a_file_cut_short_is_noticed(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(path.read_bytes()[:-1] if name != "checksums.json" else b"{}")
    with pytest.raises(ItemfoldError, match=f"{name} is damaged"):
        ir.Run.load(folder)


def test_files_of_another_run_are_noticed(folder: Path, tmp_path: Path) -> None:
    """Same settings and shapes, other weights: nothing but the checksum tells them apart."""
    other = tmp_path / "other"
    ir.train(board_split(), ir.models.LightGCN(dim=4), seed=1, out=other, **FEW)
    shutil.copy(other / "model.safetensors", folder)
    with pytest.raises(ItemfoldError, match=r"model.safetensors is damaged or was changed"):
        ir.Recommender.load(folder)


@pytest.mark.parametrize("name", ["per_user.npz", "history.jsonl", "request.toml"])
def test_a_file_that_the_checksums_list_may_not_be_missing(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(ItemfoldError, match=f"is not complete: {name} is missing, and checksums"):
        ir.Run.load(folder)


def test_a_finished_run_has_no_state_to_resume_from(finished: Path) -> None:
    assert (finished.parent / "state.pt").exists()  # there was one
    assert not (finished / "state.pt").exists()


def test_checksums_may_not_be_missing_from_a_new_folder(folder: Path) -> None:
    (folder / "checksums.json").unlink()
    with pytest.raises(ItemfoldError, match=r"checksums.json is missing"):
        ir.Run.load(folder)


def test_a_run_that_is_saved_again_has_new_checksums(folder: Path) -> None:
    run = ir.Run.load(folder)
    run.metrics["notes"] = ["another one"]
    run.save(folder)
    assert ir.Run.load(folder).metrics["notes"] == ["another one"]


# --- older folders, without checksums ------------------------------------------------------------


def made_old(folder: Path) -> Path:
    """The folder as version 0.1 would have written it."""
    (folder / "checksums.json").unlink()
    ids = json.loads((folder / "ids.json").read_text())
    (folder / "ids.json").write_text(json.dumps({**ids, "format": 1}))
    return folder


def test_an_older_folder_loads_with_a_note() -> None:
    with pytest.warns(ItemfoldWarning, match="written by an older version, without checksums"):
        ir.Run.load(FIXTURES / "run-0.1")


Tensors = dict[str, np.ndarray]


def column_too_high(tensors: Tensors) -> None:
    tensors["train.col"][3] = 2**30


def column_below_zero(tensors: Tensors) -> None:
    tensors["train.col"][3] = -5


def row_beyond_the_end(tensors: Tensors) -> None:
    tensors["train.crow"][4] = 2**40


def rows_overlap(tensors: Tensors) -> None:
    tensors["train.crow"][4] = tensors["train.crow"][6]


def row_missing(tensors: Tensors) -> None:
    tensors["train.crow"] = tensors["train.crow"][:-1].copy()


def column_missing(tensors: Tensors) -> None:
    tensors["train.col"] = tensors["train.col"][:-1].copy()


@pytest.mark.parametrize(
    "harm",
    [
        *(column_too_high, column_below_zero, row_beyond_the_end),
        *(rows_overlap, row_missing, column_missing),
    ],
)
def test_impossible_interactions_are_refused_before_compiled_code_reads_them(
    folder: Path, harm: Callable[[Tensors], None]
) -> None:
    tensors = load_file(made_old(folder) / "model.safetensors")
    harm(tensors)
    save_file(tensors, folder / "model.safetensors")
    with (
        pytest.warns(ItemfoldWarning),
        pytest.raises(
            ItemfoldError,
            match=r"do not belong together: (some of )?the interactions (are|of)",
        ),
    ):
        ir.Run.load(folder)


def test_titles_that_are_too_few_are_refused(folder: Path) -> None:
    ids = json.loads((made_old(folder) / "ids.json").read_text())
    (folder / "ids.json").write_text(json.dumps({**ids, "titles": ids["titles"][:-1]}))
    with (
        pytest.warns(ItemfoldWarning),
        pytest.raises(ItemfoldError, match="there are 39 titles for 40 items"),
    ):
        ir.Run.load(folder)


# --- the state of training -----------------------------------------------------------------------


def tensors_in(state: DescentState) -> list[torch.Tensor]:
    found, queue = [], [state.tensors]
    while queue:
        value = queue.pop()
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, dict | list | tuple):
            queue += value.values() if isinstance(value, dict) else value
    return found


@pytest.mark.parametrize("source", ["new", "unfinished-0.1"])
def test_a_flipped_bit_never_resumes_to_other_weights(
    finished: Path, tmp_path: Path, source: str
) -> None:
    file = (finished.parent if source == "new" else FIXTURES / source) / "state.pt"
    content, rng, path = file.read_bytes(), np.random.default_rng(0), tmp_path / "state.pt"
    expected, noticed = DescentState.loaded(load_state(file)), 0
    for place in rng.integers(len(content), size=150):
        damaged = bytearray(content)
        damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of zipfile, about the damage
                found = DescentState.loaded(load_state(path))
        except ItemfoldError as error:
            assert "or it is damaged" in str(error)  # noqa: PT017 - some flips hit padding
            noticed += 1
            continue
        assert found.history == expected.history
        assert found.epoch == expected.epoch
        pairs = zip(tensors_in(found), tensors_in(expected), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)
    assert noticed > 50
