"""`evaluate --lists`: evaluate the lists of another system with the split of a run or of data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from itemfold.cli import options
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.cli.tables.formats import ResultTable
    from itemfold.data.splitting.split import Split
    from itemfold.evaluation.evaluation import Evaluation


@dataclass(frozen=True)
class OtherSystem:
    """Lists of another system, and the run or the data whose test users they are for."""

    rows: options.RowOptions
    splitting: options.SplitOptions
    seed: int | None
    data_root: Path | None
    data: str | None

    def check_unused(self) -> None:
        """Raise if an option was given that only lists on data need."""
        given = {**vars(self.rows), **vars(self.splitting), "seed": self.seed}
        for name, value in given.items():
            if value is not None and value is not False:
                raise ItemfoldError(
                    f"'--{name.replace('_', '-')}' has no effect on a run, which is evaluated on "
                    "its own split; use it for --lists with DATA"
                )

    def evaluated(
        self,
        lists: Path,
        target: str,
        cutoffs: list[int],
        names: list[str] | None,
        metrics_as: str | None,
    ) -> tuple[list[ResultTable], Evaluation]:
        """Tables of the lists' metrics, compared with those of a run, and the evaluation."""
        from itemfold.cli.tables import results
        from itemfold.evaluation.compare import compare
        from itemfold.evaluation.evaluate import evaluate
        from itemfold.evaluation.lists import read_lists
        from itemfold.experiments.stored import split_of
        from itemfold.training.run import Run

        frame = read_lists(lists)
        loaded = Run.load(target) if (Path(target) / "metrics.json").is_file() else None
        if loaded is not None:
            self.check_unused()
            split = split_of(loaded, self.data_root, self.data)
        else:
            split = self._split(target)
        of_lists = evaluate(frame, split, cutoffs, metrics=names, metrics_as=metrics_as)
        tables = results.evaluation(of_lists)
        if loaded is not None:
            own = evaluate(loaded, split, cutoffs, metrics=names, metrics_as=metrics_as)
            requested = (
                None if names is None else [name for name in own.metrics if name in own.per_user]
            )
            systems = {Path(target).name: own, lists.stem: of_lists}
            found = compare(metrics=requested or None, **systems)
            compared = results.comparison(found)
            tables.append(replace(compared, title=f"against {Path(target).name}"))
        return tables, of_lists

    def _split(self, data: str) -> Split:
        """The split that `itemfold train` makes of data with the same options."""
        from itemfold.experiments.build import data_and_split, make_data, make_split
        from itemfold.settings.overrides import override
        from itemfold.settings.resolve import Request, resolve
        from itemfold.settings.schema import Config

        root = None if self.data_root is None else str(self.data_root)
        settings: Config = {}
        override(
            settings,
            data={"data": data, "data_root": root, **self.rows.settings()},
            parts={},
            protocol=self.splitting.protocol,
            strategy=self.splitting.split,
            short={"seed": self.seed},
        )
        complete = resolve(Request.from_options({}, settings, "option"))
        config = data_and_split(complete)
        return make_split(config, make_data(config), complete.make_model())
