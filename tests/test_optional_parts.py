"""Skipped parts are reported by name, also with several workers, and can be required."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.triton
def test_kernels(): import triton

@pytest.mark.browser
@pytest.mark.parametrize("page", [1, 2])
def test_page(page): pass

@pytest.mark.data
def test_data(data_root): assert data_root.is_dir()

def test_plain(): pass
"""


# all that `conftest.py` needs of torch, which takes seconds to import
TORCH = """
class cuda:
    is_available = staticmethod(lambda: False)

def set_num_threads(count): pass
"""


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A small suite under our `conftest.py`, as on a machine without any of the parts."""
    ours = (HERE / "conftest.py").read_text()
    (tmp_path / "conftest.py").write_text(f"import sys\nsys.modules['triton'] = None\n{ours}")
    markers = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
    lines = markers["tool"]["pytest"]["ini_options"]["markers"]
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  " + "\n  ".join(lines) + "\n")
    (tmp_path / "test_parts.py").write_text(TESTS)
    (tmp_path / "torch.py").write_text(TORCH)
    return tmp_path


def run(folder: Path, *options: str, **settings: str) -> tuple[int, list[str]]:
    """Exit code and output lines of a run without chromium on the path."""
    command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", *options]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PATH": str(folder), "ITEMFOLD_DATA": "", **settings}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    return done.returncode, (done.stdout + done.stderr).splitlines()


def test_skipped_parts_are_reported_at_the_end(bare: Path) -> None:
    code, lines = run(bare, "-n", "2")
    assert code == 0
    *_, triton, browser, data, last = lines
    assert triton.startswith("left out: 1 test of the GPU kernels")
    assert triton.endswith("(pip install --no-deps triton==3.9.0)")
    assert browser == "left out: 2 tests of the page in a browser (apt-get install chromium)"
    assert data == "left out: 1 test of real data sets (set ITEMFOLD_DATA to their folder)"
    assert last.startswith("1 passed, 4 skipped in ")


def test_parts_that_are_present_are_not_skipped(bare: Path) -> None:
    (bare / "chromium").write_text("#!/bin/sh\n")
    (bare / "chromium").chmod(0o755)
    code, lines = run(bare, "--require", "browser,data", ITEMFOLD_DATA=str(bare))
    assert code == 0
    assert sum(line.startswith("left out") for line in lines) == 1
    assert lines[-1].startswith("4 passed, 1 skipped in ")


def test_a_required_part_that_is_absent_is_a_failure(bare: Path) -> None:
    code, lines = run(bare, "--require", "triton,browser")
    assert code == 1
    assert "browser is required but absent: apt-get install chromium" in "\n".join(lines)
    assert lines[-1].startswith("1 passed, 1 skipped, 3 errors in ")
    code, lines = run(bare, "--require", "tritn")
    assert code != 0
    assert "--require takes gpu, triton, browser, postgres, docs, data, got 'tritn'" in "\n".join(
        lines
    )
