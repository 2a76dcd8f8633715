"""How torch uses the CPUs: memory pages, waiting threads, and the number of CPUs.

Torch reads these settings once, when it is loaded, so the package calls `prepare_torch` before
anything imports torch; this module does not import it at the top. In a program that imports torch
before itemrec only the memory pages can still be set.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# OpenMP's threads spin for milliseconds before they sleep. Next to another process they spin on the
# core that the work needs: a step then takes 2.4 times as long, with fewer spins 1.5 times. The
# price is paid on small data and idle cores, where each wait ends with a wake-up:
# docs/research/speed.md.
SPINS = 10000

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_")
COUNTS = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS", "KMP_")


def prepare_torch() -> None:
    """Set what the user has not set; must be called before torch is loaded."""
    # Gathering rows of a large table costs one page-table walk per row unless pages are large:
    # request large pages (Linux, read at the first allocation). At ten million interactions this
    # is twice as fast.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if "torch" in sys.modules:  # too late, and the user may have called torch.set_num_threads
        return
    if not _chosen(WAITING):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    cpus = usable_cpus()
    if cpus < _scheduled_cpus() and not _chosen(COUNTS):  # torch itself ignores a quota
        sys.meta_path.insert(0, _ThreadLimit(cpus))


class _ThreadLimit:
    """Limits the threads of torch at the moment it is imported, so that help need not import it."""

    def __init__(self, most: int) -> None:
        self.most = most

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by the import system for each module that is not loaded yet."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_limit(module: ModuleType) -> None:
                load(module)
                module.set_num_threads(min(self.most, module.get_num_threads()))

            spec.loader.exec_module = load_and_limit  # type: ignore[method-assign]
        return spec


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that this process may use: those it is scheduled on, or fewer by a container's quota.

    A fraction of a CPU is rounded up.
    """
    return max(1, min([_scheduled_cpus(), *(math.ceil(quota) for quota in _quotas(root))]))


def _chosen(prefixes: tuple[str, ...]) -> bool:
    """Whether the user has set one of these variables."""
    return any(name.startswith(prefixes) for name in os.environ)


def _scheduled_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas(root: Path) -> Iterator[float]:
    """CPU quotas of this process's control groups (version 1 or 2) and of their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, files = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in controllers.split(","):
            top, files = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        innermost = top / path.lstrip("/")
        for group in (innermost, *innermost.parents):
            try:
                quota, period = " ".join((group / name).read_text() for name in files).split()
            except (OSError, ValueError):  # the outermost group has no limit
                continue
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
            if group == top:
                break
