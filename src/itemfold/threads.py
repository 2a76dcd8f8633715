"""CPUs that this process may use, and `tune_threads`, which tunes a process for training on them.

Importing the package changes nothing in a process. The command line and the workers of a suite call
`tune_threads`; a Python program may. This module does not import torch.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# OpenMP's threads spin for milliseconds before they sleep. Next to another process they spin on the
# core that the work needs: a step then takes 2.4 times as long, with fewer spins 1.5 times. The
# price is paid on small data and idle cores, where each wait ends with a wake-up:
# docs/research/speed.md.
SPINS = 10000

# variables by which users set these themselves
SPIN_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_")
THREAD_COUNTS = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "MKL_NUM_THREADS", "KMP_")

_set: set[str] = set()  # variables that `tune_threads` has set
_tuned = False


def tune_threads() -> None:
    """Tune this process for training on CPUs, as every ``itemfold`` command does.

    Importing itemfold changes nothing in your process; this call does. Your own settings take
    precedence (``OMP_*``, ``GOMP_*``, ``KMP_*``, ``MKL_*``, ``MALLOC_*``). Call it before torch is
    imported: torch reads the first two settings once, when it is loaded or first allocates memory,
    and a later call only affects the processes that you start.

    - Waiting threads sleep after a short spin (``GOMP_SPINCOUNT``), so that they do not take the
      CPU from other processes.
    - Tensors are allocated in large pages (``THP_MEM_ALLOC_ENABLE``): at ten million interactions
      gathering rows is twice as fast.
    - There are no more threads than the CPU quota of a container allows (``OMP_NUM_THREADS``). If
      torch is loaded, ``torch.set_num_threads`` lowers their number.
    - Training keeps the memory that a step frees for the next step, and returns it at the end.
      This changes the C library's allocator for the whole process while a training runs (glibc
      only).

    >>> import itemfold as ir
    >>> ir.tune_threads()  # doctest: +SKIP
    """
    global _tuned
    _tuned = True
    _set_unless(("THP_MEM_ALLOC_ENABLE",), "THP_MEM_ALLOC_ENABLE", 1)
    _set_unless(SPIN_SETTINGS, "GOMP_SPINCOUNT", SPINS)
    cpus = usable_cpus()
    limited = cpus < _scheduled_cpus() and _set_unless(THREAD_COUNTS, "OMP_NUM_THREADS", cpus)
    if limited and (torch := sys.modules.get("torch")):
        torch.set_num_threads(min(cpus, torch.get_num_threads()))


def is_tuned() -> bool:
    """Whether `tune_threads` was called in this process."""
    return _tuned


def set_by_user(*prefixes: str) -> bool:
    """Whether an environment variable with one of these prefixes is set, and not by us."""
    return any(name.startswith(prefixes) and name not in _set for name in os.environ)


def _set_unless(chosen: tuple[str, ...], name: str, value: int) -> bool:
    """Set a variable unless the user has chosen; returns whether it was set."""
    if set_by_user(*chosen):
        return False
    os.environ[name] = str(value)
    _set.add(name)
    return True


def usable_cpus(root: Path = Path("/")) -> int:
    """CPUs that this process may use: those it is scheduled on, or fewer by a container's quota.

    A fraction of a CPU is rounded up.
    """
    return max(1, min([_scheduled_cpus(), *(math.ceil(quota) for quota in _quotas(root))]))


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
