"""How torch uses the CPUs: memory pages, waiting threads, and how many CPUs there are.

Torch reads these once, when it is loaded, so the package calls `prepare_torch` before anything
imports torch; nothing here imports it at the top. In a program that imports torch before itemrec
only the memory pages can still be chosen.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# OpenMP's threads spin for about 5 ms before they sleep. Beside another process they spin on the
# core that the work needs: an epoch took 2 to 4 times as long with one of two cores busy, now less
# than twice. No spinning at all costs a fifth on small data, as each wait ends with a wake-up.
SPINS = 2000

WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_")
COUNTS = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS", "KMP_")


def prepare_torch() -> None:
    """Set what the user has not set; to be called before torch is loaded."""
    # Gathering rows of a large table costs a page-table walk a row unless pages are large: ask for
    # them (Linux, read at the first allocation). Twice as fast at ten million interactions.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    if "torch" in sys.modules:  # too late, and the user may have called torch.set_num_threads
        return
    if not _chosen(WAITING):
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    cpus = usable_cpus()
    if cpus < _scheduled_cpus() and not _chosen(COUNTS):  # torch itself does not see a quota
        import torch

        torch.set_num_threads(min(cpus, torch.get_num_threads()))


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that this process may use: those it is scheduled on, or a container's quota of time.

    Part of a CPU counts as a whole one.
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
    """CPUs allowed by the control groups (version 1 or 2) of this process and those around them."""
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
        own = top / path.lstrip("/")
        for group in (own, *own.parents):
            try:
                quota, period = " ".join((group / name).read_text() for name in files).split()
            except (OSError, ValueError):  # the outermost group has no limit
                continue
            if quota not in ("max", "-1"):
                yield int(quota) / int(period)
            if group == top:
                break
