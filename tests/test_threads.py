"""Settings made before torch is loaded; a user's own settings take precedence."""

import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from itemrec.threads import SPINS, prepare_torch, usable_cpus

OURS = ("OMP_", "GOMP_", "KMP_", "MKL_", "THP_")
linux = pytest.mark.skipif(sys.platform != "linux", reason="libgomp and affinity: Linux")


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process where nothing is set; libgomp prints the settings it has read."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
    settings = {**kept, "OMP_DISPLAY_ENV": "verbose"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=settings)


@linux
def test_threads_do_not_spin_for_long_and_respect_the_affinity() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import itemrec, "
    code += "torch; from itemrec.threads import usable_cpus; "
    code += "print(usable_cpus(), torch.get_num_threads())"
    done = python(code)
    assert done.stdout.split() == ["1", "1"]
    if "GOMP_SPINCOUNT" in done.stderr:  # otherwise this torch uses another OpenMP than libgomp
        assert f"GOMP_SPINCOUNT = '{SPINS}'" in done.stderr


LIMITED = """
import importlib.util
spec = importlib.util.spec_from_file_location("environment", {path!r})
environment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(environment)
environment._scheduled_cpus = lambda: 4
environment._quotas = lambda root: [0.5]
{first}
environment.prepare_torch()
import torch
print(torch.get_num_threads())
"""


@pytest.mark.parametrize(
    ("first", "threads"), [("", "1"), ("import torch; torch.set_num_threads(3)", "3")]
)
def test_threads_respect_a_quota_unless_torch_was_configured(first: str, threads: str) -> None:
    path = sys.modules["itemrec.threads"].__file__
    assert python(LIMITED.format(first=first, path=path)).stdout.strip() == threads


@pytest.mark.parametrize(
    "name",
    ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_NUM_THREADS", "MKL_NUM_THREADS"],
)
def test_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    waits = not name.endswith("NUM_THREADS")
    kept = {key: text for key, text in os.environ.items() if not key.startswith(OURS)}
    with mock.patch.dict(os.environ, {**kept, name: "2"}, clear=True):
        monkeypatch.delitem(sys.modules, "torch")
        monkeypatch.setattr("itemrec.threads._scheduled_cpus", lambda: 8)
        monkeypatch.setattr("itemrec.threads._quotas", lambda root: [] if waits else [1.0])
        prepare_torch()
        assert "torch" not in sys.modules  # so the number of threads was not changed
        found = {key: text for key, text in os.environ.items() if key.startswith(OURS)}
    ours = {} if waits else {"GOMP_SPINCOUNT": str(SPINS)}
    assert found == {name: "2", "THP_MEM_ALLOC_ENABLE": "1", **ours}


def control_groups(root: Path, lines: str, files: dict[str, str]) -> Path:
    for name, text in {"proc/self/cgroup": lines, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("lines", "files", "cpus"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "5000 100000\n"}, 1),
        ("0::/\n", {"sys/fs/cgroup/cpu.max": "6400000 100000\n"}, 8),
        (  # the limit of a parent group counts as well
            "0::/pod/box\n",
            {
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (  # version 1; the path is the host's, the mounted group is the container's
            "3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            "2:cpu,cpuacct:/\n",
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
)
def test_the_quota_of_a_container_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr("itemrec.threads._scheduled_cpus", lambda: 8)
    assert usable_cpus(control_groups(tmp_path, lines, files)) == cpus


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    assert 1 <= usable_cpus() <= usable_cpus(tmp_path) <= (os.cpu_count() or 1)
