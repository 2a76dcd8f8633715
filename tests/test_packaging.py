"""Wheel and sdist work where nothing else of the project is; the image and the release are sound.

The image is not built here: that takes a Docker daemon and a download of torch.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import itemfold

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BUILD = (
    "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"
)

TRY = """
import itemfold as ir
data = "synthetic:users=60,items=80,interactions=900"
print(ir.__file__, len(ir.fit(data, ir.models.EASE(), progress=False).recommend(7, k=3)))
"""


def call(*command: str | Path, **options) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from the unpacked sdist."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignore)
    call(sys.executable, "-c", BUILD, "build_sdist", out, cwd=source)
    (archive,) = out.glob("*.tar.gz")
    shutil.unpack_archive(archive, out / "unpacked")
    (unpacked,) = (out / "unpacked").iterdir()
    call(sys.executable, "-c", BUILD, "build_wheel", out, cwd=unpacked)
    (wheel,) = out.glob("*.whl")
    return archive, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """An environment with the wheel alone; the dependencies come from the one of the tests."""
    home = tmp_path_factory.mktemp("empty")
    call(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin" / "python"
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check")
    call(sys.executable, "-m", "pip", "--python", python, "install", *options, built[1])
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return home


def run(home: Path, *command: str) -> str:
    """Run a command of the environment in an empty folder, without our paths."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "ITEMFOLD_DATA")}
    folder = home / "work"
    folder.mkdir(exist_ok=True)
    environment = {**kept, "HOME": str(folder), "COLUMNS": "200"}
    return call(home / "bin" / command[0], *command[1:], cwd=folder, env=environment)


def test_the_names_have_the_version(built):
    assert [path.name for path in built] == [
        f"itemfold-{PROJECT['version']}.tar.gz",
        f"itemfold-{PROJECT['version']}-py3-none-any.whl",
    ]
    assert PROJECT["version"] == itemfold.__version__


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    ours = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "itemfold").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours <= names
    assert all(name in ours or ".dist-info/" in name for name in names)


def test_the_installed_wheel_answers_and_trains(installed):
    assert run(installed, "itemfold", "--version").strip() == f"itemfold {PROJECT['version']}"
    listed = run(installed, "itemfold", "datasets")
    assert all(name in listed for name in ("synthetic", "ml-latest-small", "yelp2018"))
    place, count = run(installed, "python", "-c", TRY).split()
    assert Path(place).is_relative_to(installed)
    assert count == "3"


def test_extras_are_declared_for_everything_that_says_pip_install():
    extras = PROJECT["optional-dependencies"]
    listed = {re.split(r"[<>=\[ ]", line)[0] for name in extras for line in extras[name]}
    assert {
        "duckdb",
        "usearch",
        "faiss-cpu",
        "onnx",
        "onnxruntime",
        "mlflow-skinny",
        "tensorboard",
    } <= listed


# --- the image -----------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile with its arguments in one line."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def test_every_stage_has_a_fixed_base_and_nothing_is_fetched_by_add():
    bases = [words for name, words in instructions() if name == "FROM"]
    assert all(re.match(r"python:3\.\d+-slim( AS \w+)?$", base) for base in bases)
    minor = {re.search(r"3\.\d+", base)[0] for base in bases}
    assert len(minor) == 1  # a virtual environment moves between the stages
    classified = {line.rpartition(" ")[2] for line in PROJECT["classifiers"]}
    assert minor <= classified
    assert "ADD" not in {name for name, _ in instructions()}


def test_the_image_runs_as_an_ordinary_user_in_exec_form():
    names = [name for name, _ in instructions()]
    last = names[len(names) - names[::-1].index("FROM") :]
    assert last.index("USER") < last.index("ENTRYPOINT")
    arguments = dict(instructions())
    assert int(arguments["USER"]) >= 1000
    entry, command = (json.loads(arguments[name]) for name in ("ENTRYPOINT", "CMD"))
    assert entry == ["itemfold", "serve"]
    assert command[-1] == arguments["EXPOSE"]


def test_the_command_of_the_image_is_understood_by_serve(monkeypatch):
    import typer

    from itemfold.cli import early_checks
    from itemfold.cli.app import app

    monkeypatch.setattr(early_checks, "check_run", lambda folder: None)  # it is in the image only
    serve = typer.main.get_command(app).commands["serve"]
    arguments = json.loads(dict(instructions())["CMD"])
    context = serve.make_context("serve", arguments, resilient_parsing=False)
    assert context.params["runs"] == ["/run-folder"]
    assert (context.params["host"], context.params["port"]) == ("0.0.0.0", 8000)


def test_the_health_check_asks_the_port_for_an_address_that_needs_no_key():
    check = dict(instructions())["HEALTHCHECK"]
    command = json.loads(check[check.index("[") :])
    compile(command[2], "HEALTHCHECK", "exec")
    port, path = re.search(r"127\.0\.0\.1:(\d+)(/\w+)", command[2]).groups()
    assert port == dict(instructions())["EXPOSE"]
    keys = (ROOT / "src/itemfold/serving/http/access/key_check.py").read_text(encoding="utf-8")
    routes = (ROOT / "src/itemfold/serving/http/api/routes.py").read_text(encoding="utf-8")
    assert f'"{path}"' in keys
    assert f'"{path}"' in routes


def test_what_is_copied_exists_and_is_let_through_by_dockerignore():
    allowed = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] == "!"
    }
    copied = [
        word
        for name, words in instructions()
        if name == "COPY" and "--from" not in words
        for word in shlex.split(words)[:-1]
    ]
    assert set(copied) == allowed
    assert all((ROOT / word).exists() for word in copied)


# --- the release ---------------------------------------------------------------------------------


def test_a_release_is_published_without_a_secret_by_one_job_alone():
    yaml = pytest.importorskip("yaml")
    text = (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
    flow = yaml.safe_load(text)
    assert flow[True] == {"release": {"types": ["published"]}}  # yaml reads "on" as true
    assert "secrets." not in text
    assert "password" not in text.replace("no password", "")
    build, publish = flow["jobs"]["build"], flow["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "permissions" not in build
    assert flow["permissions"] == {"contents": "read"}
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    used = [step["uses"] for job in (build, publish) for step in job["steps"] if "uses" in step]
    assert all(re.search(r"@(v\d|release/v\d)", name) for name in used)
    for step in (step for step in build["steps"] if "run" in step):
        assert "${{" not in step["run"]  # nothing from outside becomes part of a script
        call("bash", "-n", "-c", step["run"])
