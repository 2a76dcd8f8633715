"""The doctor finds a wrong kernel and existing data."""

import re
import tomllib
from pathlib import Path

import itemfold.cli.doctor as doctor


def test_a_wrong_kernel_is_found(monkeypatch):
    assert doctor.kernel("cpu").state == "ok"
    right = doctor.propagate
    monkeypatch.setattr(doctor, "propagate", lambda graph, x: right(graph, x) * 1.001)
    assert doctor.kernel("cpu").state == "wrong"


def test_data_under_the_root_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("ITEMFOLD_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "yelp2018").mkdir()
    (tmp_path / "yelp2018" / "train.txt").write_text("0 1\n")
    states = {check.name: check.state for check in doctor.checks()}
    assert states["data yelp2018"] == "ok"
    assert states["data ml-1m"] == "missing"
    assert states["torch"] == "ok"


def test_a_gpu_that_is_not_used_is_named(monkeypatch):
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.torch.xpu, "is_available", lambda: True)
    (gpu,) = (check for check in doctor.checks() if check.name == "gpu")
    assert gpu.detail.startswith("not used: Intel's xpu has no kernels")


def test_required_packages_are_the_dependencies():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    installed = {re.split(r"[>=<\[]", line)[0] for line in project["dependencies"]}
    assert set(doctor.REQUIRED) <= installed <= {*doctor.REQUIRED, *doctor.OPTIONAL}
