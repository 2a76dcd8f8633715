"""The jobs of a suite: one run for each row, data set and seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.store import RowKey, Store, identity
from itemfold.experiments.suites.suite import Cell, Suite
from itemfold.settings.changes import changes
from itemfold.settings.schema import Config


@dataclass(frozen=True)
class SuiteJob:
    """A run to make, with all information that a worker needs."""

    suite: Suite
    cell: Cell
    seed: int
    options: Options

    @property
    def entry(self) -> str:
        """The data set and protocol."""
        return self.cell.entry.key

    @property
    def key(self) -> RowKey:
        """The key of its row in the store."""
        return self.entry, self.cell.row, self.seed

    @property
    def name(self) -> str:
        """A readable name."""
        return f"{self.entry} {self.cell.row} seed {self.seed}"

    @cached_property
    def config(self) -> Config:
        """The settings of the run, as stored."""
        return self.cell.seeded(self.seed)

    @cached_property
    def id(self) -> str:
        """The id of the run."""
        return identity(self.config)

    @property
    def local_config(self) -> Config:
        """The settings, with the location of the data on this machine."""
        return self._with_root(self.config)

    @property
    def local_request(self) -> Config:
        """The request of the suite, with the location of the data on this machine."""
        return self._with_root(self.cell.seeded_request(self.seed))

    def _with_root(self, config: Config) -> Config:
        out = {name: dict(section) for name, section in config.items()}
        if self.options.absolute_root is not None:
            out["data"]["data_root"] = self.options.absolute_root
        return out

    @property
    def unfinished(self) -> Path:
        """The folder of the training state."""
        state = identity([self.config, self.options.device, self.options.absolute_root])
        return self.options.values / "unfinished" / state

    def is_done(self, store: Store) -> bool:
        """Whether its result is stored with every column and with the settings of the suite."""
        stored = store.result(self.suite.name, self.key)
        if stored is None or not set(self.suite.columns) <= set(stored["test"]):
            return False
        return not changes(stored["config"], self.config)

    def is_reusable(self, store: Store) -> bool:
        """Whether some suite has stored a run with exactly its settings and every column.

        Paired tests also need the per-user values of a run; without them, a row has figures only.
        """
        run = store.run(self.suite.name, self.id)
        return run is not None and set(self.suite.columns) <= set(run["test"])
