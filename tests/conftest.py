"""Settings and fixtures of all tests, and the parts of the suite that need more than `make test`.

Tests marked with the name of such a part are skipped where it is absent, and the last lines of a
run list what was skipped and how to install it. `--require triton,browser` makes its absence an
error.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import settings

pytest.register_assert_rewrite("browser", "command", "contract", "served", "small")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # run GPU kernels on a CPU; triton reads it once
torch.set_num_threads(1)  # two test workers share two cores
# the same examples every time, and no deadline: a shared machine is sometimes slow
settings.register_profile("itemfold", deadline=None, derandomize=True)
settings.load_profile("itemfold")


class Part(NamedTuple):
    """A requirement of some tests: what they cover, how to install it, whether it is present."""

    about: str
    get: str
    present: Callable[[], bool]


def has_mkdocs() -> bool:
    return all(find_spec(name) for name in ("mkdocs", "material", "mkdocstrings", "latex2mathml"))


def initdb() -> str | None:
    """The program that creates a Postgres cluster; Debian keeps it off the path."""
    others = map(str, Path("/usr/lib/postgresql").glob("*/bin"))
    return shutil.which("initdb", path=os.pathsep.join([os.environ.get("PATH", ""), *others]))


PARTS = {
    "gpu": Part("training on a GPU", "needs a CUDA device", torch.cuda.is_available),
    "triton": Part(
        "the GPU kernels, which Triton's interpreter runs on a CPU",
        "pip install --no-deps triton==3.9.0",
        lambda: find_spec("triton") is not None,
    ),
    "browser": Part(
        "the page in a browser",
        "apt-get install chromium",
        lambda: shutil.which("chromium") is not None,
    ),
    "postgres": Part(
        "feedback in Postgres",
        "apt-get install postgresql; pip install 'psycopg[binary]'",
        lambda: find_spec("psycopg") is not None and initdb() is not None,
    ),
    "docs": Part("the site of the documentation", "make docs", has_mkdocs),
    "data": Part(
        "real data sets",
        "set ITEMFOLD_DATA to their folder",
        lambda: bool(root := os.environ.get("ITEMFOLD_DATA")) and Path(root).is_dir(),
    ),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--require",
        metavar="PARTS",
        default="",
        help=f"fail where a part is absent instead of skipping its tests: {','.join(PARTS)}",
    )


def required(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("--require").split(",") if name]


def pytest_configure(config: pytest.Config) -> None:
    for name in required(config):
        if name not in PARTS:
            raise pytest.UsageError(f"--require takes {', '.join(PARTS)}, got {name!r}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for name, part in PARTS.items():
        if item.get_closest_marker(name) and not part.present():
            if name in required(item.config):
                pytest.fail(f"{name} is required but absent: {part.get}", pytrace=False)
            pytest.skip(reason(part))


def reason(part: Part) -> str:
    return f"{part.about} ({part.get})"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    for part in PARTS.values():
        if count := skipped[reason(part)]:
            tests = "1 test" if count == 1 else f"{count} tests"
            terminalreporter.line(f"left out: {tests} of {reason(part)}", yellow=True)


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    """The folder of the programs of Postgres, for tests marked `postgres`."""
    found = initdb()
    assert found is not None
    return Path(found).resolve().parent


@pytest.fixture
def data_root() -> Path:
    """The folder of real data sets, for tests marked `data`."""
    return Path(os.environ["ITEMFOLD_DATA"])
