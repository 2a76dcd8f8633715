"""What torch is told before it is loaded, and that a user's own settings win."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from itemrec.threads import SPINS, usable_cpus

linux = pytest.mark.skipif(sys.platform != "linux", reason="libgomp and affinity: Linux")


def python(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run it where nothing is set but this; libgomp prints what it has read."""
    ours = ("OMP_", "GOMP_", "KMP_", "MKL_", "THP_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    settings = {**kept, "OMP_DISPLAY_ENV": "verbose", **settings}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=settings)


@linux
@pytest.mark.parametrize(
    ("settings", "spins"),
    [
        ({}, str(SPINS)),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
        ({"OMP_WAIT_POLICY": "active"}, "30000000000"),
        ({"KMP_BLOCKTIME": "0"}, "300000"),  # of another library: nothing is set beside it
    ],
)
def test_threads_wait_as_the_user_says_else_not_long(settings: dict[str, str], spins: str) -> None:
    done = python("import itemrec", **settings)
    if "GOMP_SPINCOUNT" not in done.stderr:
        pytest.skip("this torch has another OpenMP than libgomp")
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr


LIMITED = """
import importlib.util
spec = importlib.util.spec_from_file_location("environment", {path!r})
environment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(environment)
environment._scheduled_cpus = lambda: 4
environment._quotas = lambda root: [0.5]
"""
PREPARE, COUNT = "environment.prepare_torch();", "import torch; print(torch.get_num_threads())"


def test_threads_keep_to_a_quota_unless_the_user_says_otherwise() -> None:
    limited = LIMITED.format(path=sys.modules["itemrec.threads"].__file__)
    assert python(limited + PREPARE + COUNT).stdout == "1\n"
    asked = "import torch; torch.set_num_threads(3);"
    assert python(limited + asked + PREPARE + COUNT).stdout == "3\n"
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        found = python(limited + PREPARE + COUNT, **{name: "2"}).stdout
        assert found == python(COUNT, **{name: "2"}).stdout


@linux
def test_threads_keep_to_the_cpus_of_the_process() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); import itemrec, "
    code += "torch; from itemrec.threads import usable_cpus; "
    code += "print(usable_cpus(), torch.get_num_threads())"
    assert python(code).stdout.split() == ["1", "1"]


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
        (  # the limit of a group around counts as well
            "0::/pod/box\n",
            {
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
            },
            3,
        ),
        (  # version 1; the path is the host's, what is mounted is the container's
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


def test_without_control_groups_the_cpus_of_the_process_count(tmp_path: Path) -> None:
    assert 1 <= usable_cpus() <= usable_cpus(tmp_path) <= (os.cpu_count() or 1)
