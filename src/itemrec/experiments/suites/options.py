"""The options of `reproduce`."""

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
    """Which runs to make, on which data and device, and where their results are stored.

    ``per_user`` is the folder for per-user values and unfinished runs. No run is started after
    ``time_limit`` seconds.
    """

    datasets: Sequence[str] | None = None  # default: all of the suite
    rows: Sequence[str] | None = None  # default: all of the suite
    seeds: int | None = None  # default: the number in the suite
    device: str = "auto"
    jobs: int = 1
    data_root: str | Path | None = None
    results: str | Path = "results"
    per_user: str | Path | None = None  # default: the cache
    time_limit: float | None = None

    @property
    def home(self) -> Path:
        """The folder of results."""
        return Path(self.results)

    @property
    def values(self) -> Path:
        """The folder for per-user values."""
        return Path(self.per_user or cache_folder() / "suites")

    def check(self) -> None:
        """Reject options with which every run would fail or be skipped."""
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
