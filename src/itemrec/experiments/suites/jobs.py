"""The jobs of a suite: one run for each row, data set and seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from itemrec.config_file import Config
from itemrec.experiments.config import changes
from itemrec.experiments.suites.options import Options
from itemrec.experiments.suites.store import RowKey, Store, identity
from itemrec.experiments.suites.suite import Cell, Suite
from itemrec.experiments.suites.user_values import values_path


@dataclass(frozen=True)
class SuiteJob:
    """A run to make, with all that a worker must know about it."""

    suite: str
    columns: tuple[str, ...]
    entry: str  # DATA/PROTOCOL
    row: str
    seed: int
    id: str  # of the run
    config: Config
    device: str
    workers: int  # runs in parallel
    data_root: str | None
    per_user: Path  # the file of its per-user values
    unfinished: Path  # the folder of its training state

    @property
    def name(self) -> str:
        """A readable name."""
        return f"{self.entry} {self.row} seed {self.seed}"

    @property
    def key(self) -> RowKey:
        """The key of its row in the store."""
        return self.entry, self.row, self.seed

    @property
    def local_config(self) -> Config:
        """The settings, with the location of the data on this machine."""
        config = {name: dict(section) for name, section in self.config.items()}
        if self.data_root is not None:
            config["data"]["data_root"] = self.data_root
        return config

    def is_done(self, store: Store) -> bool:
        """Whether its result is stored with every column and with the settings of the suite."""
        stored = store.result(self.suite, self.key)
        if stored is None or not set(self.columns) <= set(stored["test"]):
            return False
        return not changes(stored["config"], self.config)

    def is_reusable(self, store: Store) -> bool:
        """Whether some suite has stored a run with exactly its settings and every column.

        Paired tests also need the per-user values of a run; without them a row has figures only.
        """
        run = store.run(self.suite, self.id)
        return run is not None and set(self.columns) <= set(run["test"])


def make_jobs(suite: Suite, cells: Sequence[Cell], options: Options) -> list[SuiteJob]:
    """A job for each seed of each cell."""
    root = options.data_root
    data_root = None if root is None else str(Path(root).expanduser().resolve())
    jobs = []
    for cell in cells:
        for seed in range(options.seeds or cell.seeds):
            config = cell.seeded(seed)
            run, state = identity(config), identity([config, options.device, data_root])
            job = SuiteJob(
                suite=suite.name,
                columns=suite.columns,
                entry=cell.entry.key,
                row=cell.row,
                seed=seed,
                id=run,
                config=config,
                device=options.device,
                workers=options.jobs,
                data_root=data_root,
                per_user=values_path(options.values, run),
                unfinished=options.values / "unfinished" / state,
            )
            jobs.append(job)
    return jobs
