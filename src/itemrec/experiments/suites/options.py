"""What a call of `reproduce` is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from itemrec.data.datasets import cache_folder
from itemrec.environment import pick_device
from itemrec.errors import ItemrecError
from itemrec.files import check_folder


@dataclass(frozen=True)
class Options:
    """Which runs to make, on what, and where their results go.

    ``per_user`` is the folder for the values of single users and for unfinished runs. After
    ``time_limit`` seconds no further run is started.
    """

    datasets: Sequence[str] | None = None  # all of the suite's
    rows: Sequence[str] | None = None  # all of the suite's
    seeds: int | None = None  # as many as the suite says
    device: str = "auto"
    jobs: int = 1
    data_root: str | Path | None = None
    results: str | Path = "results"
    per_user: str | Path | None = None  # the cache
    time_limit: float | None = None

    @property
    def home(self) -> Path:
        """The folder of results."""
        return Path(self.results)

    @property
    def values(self) -> Path:
        """The folder for the values of single users."""
        return Path(self.per_user or cache_folder() / "suites")

    def check(self) -> None:
        """Refuse what no run could be made with: each would fail or be skipped by itself."""
        for name, number in (("jobs", self.jobs), ("seeds", self.seeds)):
            if number is not None and number < 1:
                raise ItemrecError(f"'{name}' must be a positive integer, got {number}")
        for name, chosen in (("datasets", self.datasets), ("rows", self.rows)):
            if chosen is not None and not chosen:
                raise ItemrecError(f"'{name}' must name at least one, got none")
        if self.time_limit is not None and not self.time_limit >= 0:
            raise ItemrecError(f"'time_limit' must be at least 0, got {self.time_limit}")
        self._check_folders()
        pick_device(self.device)

    def _check_folders(self) -> None:
        if self.data_root is not None and not Path(self.data_root).expanduser().is_dir():
            raise ItemrecError(f"'data_root' must be an existing folder, got '{self.data_root}'")
        check_folder("results", self.results)
        if self.per_user is not None:
            check_folder("per_user", self.per_user)
