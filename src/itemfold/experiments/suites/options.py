"""The options of `itemfold reproduce`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from itemfold.data.named.find_dataset import cache_folder
from itemfold.environment import pick_device
from itemfold.errors import ItemfoldError
from itemfold.files import check_folder
from itemfold.validation import positive_integer


@dataclass(frozen=True)
class Options:
    """Options that select runs, data, device and the folder of results."""

    datasets: Sequence[str] | None = None  # default: all of the suite
    rows: Sequence[str] | None = None  # default: all of the suite
    seeds: int | None = None  # default: the number in the suite
    device: str = "auto"
    jobs: int = 1  # runs in parallel
    data_root: str | Path | None = None
    results: str | Path = "results"
    per_user: str | Path | None = None  # for per-user values and unfinished runs; default: cache
    time_limit: float | None = None  # seconds after which no run starts

    @property
    def home(self) -> Path:
        """The folder of results."""
        return Path(self.results)

    @property
    def values(self) -> Path:
        """The folder for per-user values and unfinished runs."""
        return Path(self.per_user or cache_folder() / "suites")

    @property
    def absolute_root(self) -> str | None:
        """The absolute path of ``data_root``."""
        root = self.data_root
        return None if root is None else str(Path(root).expanduser().resolve())

    def check(self) -> None:
        """Raise for options with which every run would fail or be skipped."""
        for name, number in (("jobs", self.jobs), ("seeds", self.seeds)):
            if number is not None:
                positive_integer(name, number)
        for name, chosen in (("datasets", self.datasets), ("rows", self.rows)):
            if chosen is not None and not chosen:
                raise ItemfoldError(f"'{name}' must name at least one, got none")
        if self.time_limit is not None and not self.time_limit >= 0:
            raise ItemfoldError(f"'time_limit' must be at least 0, got {self.time_limit}")
        if self.data_root is not None and not Path(self.data_root).expanduser().is_dir():
            raise ItemfoldError(f"'data_root' must be an existing folder, got '{self.data_root}'")
        check_folder("results", self.results)
        if self.per_user is not None:
            check_folder("per_user", self.per_user)
        pick_device(self.device)
