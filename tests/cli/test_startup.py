"""Help and mistakes are answered without importing torch; public names are imported when used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import itemfold as ir

HEAVY = ("torch", "scipy", "scipy.stats", "polars", "pandas", "matplotlib", "optuna", "fastapi")
COMMANDS = (
    "train",
    "tune",
    "recommend",
    "evaluate",
    "compare",
    "reproduce",
    "serve",
    "describe",
    "export",
    "prepare",
    "forget",
)
REPORT = """
import sys
try:
    {code}
except SystemExit:
    pass
print("loaded:", *(name for name in {heavy} if name in sys.modules))
"""


def loaded_by(code: str) -> tuple[list[str], str]:
    """The heavy packages that a line of code imports in a fresh process, and its output."""
    text = REPORT.format(code=code, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    output, _, loaded = done.stdout.rpartition("loaded:")
    return loaded.split(), output + done.stderr


def command(*arguments: str) -> str:
    return f"from itemfold.cli.app import app; app({list(arguments)!r})"


MISTAKES = [
    (["trian"], "did you mean 'train'?"),
    (["train", "--epoch", "3"], "did you mean --epochs"),
    (["train", "synthetic", "--epochs", "many"], "'--epochs' must be a whole number"),
    (["recommend", "."], "give one of --user, --history and --all"),
    (["recommend", ".", "--all"], "'--all' needs a file to write to"),
    (["train", "synthetic", "--model", "eas"], "got 'eas'; did you mean 'ease'?"),
    (["train", "synthetic", "--loss", "item-ndgc"], "did you mean 'item-ndcg'?"),
    (["tune", "synthetic", "--negatives", "unifrom"], "did you mean 'uniform'?"),
    (["train", "nofile.csv"], "nofile.csv: no such file or folder"),
    (["describe", "no/such/folder"], "no/such/folder: no such file or folder"),
    (["train", "synthetic", "--config", "no.toml"], "'--config' must be an existing file"),
    (["recommend", "norun", "--history", "1"], "norun: no such folder"),
    (["items", "norun", "toy"], "norun: no such folder"),
    (["evaluate", "norun"], "norun: no such folder"),
    (["compare", ".", "norun"], "norun: no such folder"),
    (["export", "norun", "--to", "parquet", "--out", "x"], "norun: no such folder"),
    (["update", ".", "nofile.csv"], "nofile.csv: no such file or folder"),
    (["--version"], ir.__version__),
]
HELP = [([*name.split(), "--help"], "Usage") for name in ("", *COMMANDS)]
ALL_IN_ONE = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from itemfold.cli.app import app
found = []
for arguments in {lines}:
    text = io.StringIO()
    with redirect_stdout(text), redirect_stderr(text):
        try:
            app(arguments)
        except SystemExit:
            pass
    found.append([text.getvalue(), [name for name in {heavy} if name in sys.modules]])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, tuple[str, list[str]]]:
    """What one process prints for each line, and the heavy packages that it has loaded by then."""
    lines = [arguments for arguments, _ in HELP + MISTAKES]
    code = ALL_IN_ONE.format(lines=lines, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return dict(zip(map(str, lines), map(tuple, json.loads(done.stdout)), strict=True))


@pytest.mark.parametrize(("arguments", "sentence"), HELP + MISTAKES)
def test_help_and_mistakes_import_nothing_heavy(
    arguments: list[str], sentence: str, answers: dict[str, tuple[str, list[str]]]
) -> None:
    output, loaded = answers[str(arguments)]
    assert sentence in output
    assert loaded == []


def test_an_unknown_data_set_is_told_without_torch() -> None:
    loaded, output = loaded_by(command("train", "ml-lm"))
    assert "did you mean 'ml-1m'?" in output
    assert "torch" not in loaded


def test_a_file_of_a_similar_name_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "plays.csv").write_text("user,item\n1,2\n")
    loaded, output = loaded_by(command("train", str(tmp_path / "play.csv")))
    assert f"did you mean 'plays.csv' in {tmp_path}?" in " ".join(output.split())
    assert loaded == []


def test_recommending_to_one_user_imports_neither_frames_nor_statistics(tmp_path: Path) -> None:
    split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
    ir.train(split, ir.models.EASE(), out=tmp_path / "r")
    code = command("recommend", str(tmp_path / "r"), "--history", "3,5", "-k", "3")
    used = "import itemfold as ir; ir.Recommender"  # in Python
    loaded, output = loaded_by(f"{used}; {code}")
    assert "score" in output
    assert set(loaded) == {"torch", "scipy"}


def test_help_lists_the_models_without_importing_them() -> None:
    loaded, output = loaded_by(command("train", "--help"))
    words = output.replace("│", " ").replace(",", " ").split()
    assert {"lightgcn", "ease", "popularity", "item-ndcg", "in-batch"} <= set(words)
    assert loaded == []


def test_importing_the_package_imports_nothing_heavy_until_a_name_is_used() -> None:
    assert loaded_by("import itemfold")[0] == []
    assert loaded_by("import itemfold; dir(itemfold); dir(itemfold.models)")[0] == []
    assert "torch" in loaded_by("import itemfold; itemfold.train")[0]


@pytest.mark.parametrize("package", [ir, ir.models, ir.losses, ir.negatives])
def test_every_public_name_can_be_used_and_is_listed(package: object) -> None:
    assert set(package.__all__) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018 - the attribute is looked up


def test_components_keep_their_place_when_they_are_imported_or_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = list(ir.models.MODELS)
    assert ir.models.MODELS["ease"] is ir.models.EASE
    monkeypatch.setitem(ir.models.MODELS, "own", ir.models.EASE)
    assert list(ir.models.MODELS) == [*names, "own"]
    monkeypatch.undo()
    assert list(ir.models.MODELS) == names
    assert "own" not in ir.models.MODELS


def test_a_command_leaves_nothing_to_collect_at_exit() -> None:
    code = (
        "import atexit, gc, sys; from itemfold.__main__ import main; "
        "sys.argv = ['itemfold', 'datasets']; "
        "left = lambda: gc.get_freeze_count() > 10 * len(gc.get_objects()); "
        "atexit.register(lambda: print('frozen', left())); "
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("frozen True\n")
