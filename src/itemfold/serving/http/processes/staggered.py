"""New versions of runs reach workers one after another: a reload takes twice a run's memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from itemfold.serving.http.monitoring.log import log
from itemfold.serving.http.processes.versions import Order, Versions
from itemfold.serving.http.processes.worker_link import Worker


class StaggeredReload:
    """Orders to load runs, given to one worker at a time.

    A version is accepted when the first worker has loaded it. If it fails, no other worker tries.

    Args:
        versions: Where runs are loaded from.
    """

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self._orders: deque[Order] = deque()
        self._todo: list[Worker] | None = None  # of the first order; None: it has not begun
        self._asked: Worker | None = None
        self._is_accepted = False  # the first order, by a worker that has loaded it

    def add(self, orders: Sequence[Order]) -> None:
        """Queue these runs for loading."""
        self._orders.extend(orders)

    def step(self, workers: Sequence[Worker]) -> None:
        """Read the reply of the current worker, and order the next one to load."""
        if not self._orders:
            self._catch_up(workers)
            return
        if self._todo is None:
            self._todo = [worker for worker in workers if worker.is_ready]
        if self._asked is not None and not self._is_answered(self._asked, workers):
            return
        self._todo = [worker for worker in self._todo if worker in workers]
        if self._todo:
            self._asked = self._todo.pop(0)
            self._asked.order(*self._orders[0])
        else:  # all workers have answered
            self._orders.popleft()
            self._todo, self._is_accepted = None, False

    def _is_answered(self, asked: Worker, workers: Sequence[Worker]) -> bool:
        """Whether the current worker has replied or exited."""
        name, folder = self._orders[0]
        has_ended = asked not in workers
        if asked.loaded is None and not has_ended:
            return False
        self._asked = None
        if asked.loaded == "":
            self._is_accepted, asked.folders[name] = True, folder
            self.versions.accept(name, folder)
        elif not self._is_accepted:
            if has_ended:
                log(logging.ERROR, f"run {name!r} is not replaced: a worker ended loading it")
            self._todo = []
        elif not has_ended:  # others could load it: one that cannot would answer differently
            asked.process.kill()
        return True

    def _catch_up(self, workers: Sequence[Worker]) -> None:
        """Order the versions that were accepted while a worker was starting."""
        for worker in workers:
            for name, folder in self.versions.accepted.items():
                if worker.is_ready and worker.folders[name] != folder:
                    self._orders.append((name, folder))
                    self._todo, self._is_accepted = [worker], True
                    return
