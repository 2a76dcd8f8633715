"""Packages whose classes the service extends have an upper bound in pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HTTP = ROOT / "src" / "itemfold" / "serving" / "http"
EXTENDED = ("fastapi", "starlette", "uvicorn", "h11")


@pytest.mark.parametrize("package", EXTENDED)
def test_an_extended_package_is_bounded_above(package):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    lines = [line for line in extras["serve"] if re.match(rf"{package}\b", line)]
    assert len(lines) == 1
    assert re.search(r"<\d", lines[0]), lines[0]


def test_every_package_that_is_subclassed_is_in_the_list():
    found = set()
    for file in HTTP.rglob("*.py"):
        text = file.read_text()
        imported = dict(re.findall(r"^from (\w+)[\w.]* import (\w+)$", text, re.MULTILINE))
        owners = {name: package for package, name in imported.items()}
        for base in re.findall(r"^class \w+\(([\w.]+)\)", text, re.MULTILINE):
            package = owners.get(base, base.partition(".")[0])
            if package in {"uvicorn", "h11", "starlette", "fastapi"}:
                found.add(package)
    assert {"uvicorn", "h11"} <= found <= set(EXTENDED)
