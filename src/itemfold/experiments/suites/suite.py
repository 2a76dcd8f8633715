"""A suite: a TOML file of rows to run, with published figures and expected bands.

::

    title = "Negatives by personalised PageRank"
    description = "What the table is about, in Markdown."
    baseline = "uniform"                     # the row that paired tests compare with
    columns = ["recall@20", "ndcg@20"]       # the metrics of the table; the last one is tested
    plot = ["ndcg@20"]                       # metrics of the plot; default: the last column
    cost = true                              # also show seconds per epoch and to the best epoch
    curve = "window"                         # rows NAME-1, NAME-2, … are the points of a curve
    data = ["ml-1m", "yelp2018/inductive"]   # DATA or DATA/PROTOCOL; a row may have its own list
    protocol = "transductive"                # for entries without a protocol
    seeds = 3                                # 0, 1, 2: for training, and for the split as well
    source = "Where the published figures come from."

    [defaults.train]                         # the sections of a run's config.toml
    lr = 0.01
    [defaults.on.inductive.loss]             # for a data set, a protocol or both
    tau = 1.0
    [defaults.on.ml-latest-small]
    seeds = 5

    [[row]]
    name = "tempered"
    model = "lightgcn"                       # a name, or a table with a name and settings
    negatives = { name = "ppr", share = 0.02 }
    baseline = "other"                       # instead of the suite's; its own name: no test
    train = { l2 = 1e-4 }
    on.yelp2018.train = { l2 = 1e-5 }        # overrides for one data set
    paper.yelp2018 = { "ndcg@20" = 0.0588 }  # published, as fractions
    paper.source = "Table 3"
    band.yelp2018 = { "ndcg@20" = [0.058, 0.060] }
    tuned.yelp2018 = 4                       # settings tried on validation before this one
    note = "Anything a reader of the table must know."

Later overrides win: defaults, the row, ``defaults.on`` (protocol, then data set, then both), the
row's own ``on``. A default applies to the rows whose component has that setting; a setting of a row
that its component does not have is an error. A row's ``data`` lists data sets; how files are read
(the section ``data`` of a config.toml) is set in ``defaults.data`` or ``on.NAME.data``.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itemfold.errors import ItemfoldError
from itemfold.evaluation.metrics import parse_metric
from itemfold.experiments.suites import FOLDER
from itemfold.experiments.suites.checks import SETTINGS, check_data, check_table
from itemfold.experiments.suites.overrides import Entry, merge, row_entries
from itemfold.settings.resolve import resolve
from itemfold.settings.schema import SPLIT_OF, Config
from itemfold.settings.toml_file import read_toml
from itemfold.validation import lookup

COLUMNS = ("capped_recall@20", "recall@20", "ndcg@20")


@dataclass(frozen=True)
class Cell:
    """One row on one data set: its complete settings, published figures and expected bands."""

    row: str
    entry: Entry
    request: Config  # what the suite asks for
    config: Config  # the same, complete; `seeded` sets the seeds of split and training
    seeds: int
    paper: dict[str, float]
    source: str
    band: dict[str, tuple[float, float]]
    tuned: int | None = None  # settings that were tried on validation; None: not recorded

    def seeded(self, seed: int) -> Config:
        """The settings with a seed for training, and for the split unless the suite fixes it."""
        return _seeded(self.config, seed)

    def seeded_request(self, seed: int) -> Config:
        """The request with the same seeds."""
        return _seeded(self.request, seed)


def _seeded(config: Config, seed: int) -> Config:
    out = copy.deepcopy(config)
    out["train"]["seed"] = seed
    out["split"].setdefault("seed", seed)
    return out


@dataclass(frozen=True)
class Suite:
    """A table of rows × data sets, as read from its file."""

    name: str
    path: Path
    title: str
    description: str
    baseline: str
    columns: tuple[str, ...]
    plotted: tuple[str, ...]
    cost: bool
    curve: str  # the name of the numbers at the end of rows; "" if rows are not points of curves
    source: str
    rows: tuple[str, ...]
    notes: dict[str, str]  # of rows
    table: dict[str, Any]  # as in the file

    def baseline_of(self, row: str) -> str:
        """The row that a row is compared with."""
        own: dict[str, str] = {
            r["name"]: r.get("baseline", self.baseline) for r in self.table["row"]
        }
        return own[row]

    @property
    def shipped(self) -> bool:
        """Whether the suite came with the package and can be found by its name alone."""
        return self.path.parent == FOLDER

    def cells(
        self, datasets: Sequence[str] | None = None, rows: Sequence[str] | None = None
    ) -> list[Cell]:
        """All cells, or those of some data sets and rows, ordered by data set.

        A data set that no row lists is used by every row, with the protocols of the listed ones.
        """
        for name in rows or ():
            lookup(dict.fromkeys(self.rows), "rows", name)
        found: dict[Entry, list[Cell]] = {}
        for row in self.table["row"]:
            if rows is None or row["name"] in rows:
                for entry in self._chosen(row, datasets):
                    found.setdefault(entry, []).append(self.cell(row, entry))
        return [cell for cells in found.values() for cell in cells]

    def cell(self, row: Mapping[str, Any], entry: Entry) -> Cell:
        """A row on a data set."""
        merged = merge(self.table.get("defaults", {}), row, entry)
        seeds = merged.pop("seeds", self.table.get("seeds", 1))
        try:
            config = resolve(merged).comparable()
        except ItemfoldError as error:
            raise ItemfoldError(f"row '{row['name']}' on {entry.key}: {error}") from error
        if "seed" not in merged["split"]:
            del config["split"]["seed"]
        # a data set without a protocol means the row's first entry of that data set
        first = next((e for e in row_entries(row, self.table) if e.data == entry.data), None)
        names = [entry.key, entry.data] if entry == first else [entry.key]
        paper, band, tuned = (
            next((row[what][name] for name in names if name in row.get(what, {})), None)
            for what in ("paper", "band", "tuned")
        )
        return Cell(
            row=row["name"],
            entry=entry,
            request=merged,
            config=config,
            seeds=seeds,
            paper={parse_metric(m).key: figure for m, figure in (paper or {}).items()},
            source=row.get("paper", {}).get("source", self.source),
            band={parse_metric(m).key: (float(a), float(b)) for m, (a, b) in (band or {}).items()},
            tuned=tuned,
        )

    def _chosen(self, row: Mapping[str, Any], datasets: Sequence[str] | None) -> list[Entry]:
        """The entries of a row that are among the requested data sets."""
        own = row_entries(row, self.table)
        if datasets is None:
            return own
        everywhere = {e for other in self.table["row"] for e in row_entries(other, self.table)}
        out: list[Entry] = []
        for text in datasets:
            exact = Entry.parse(text, "")
            matching = [e for e in own if exact in (e, Entry(e.data, ""))]
            if not any(exact in (e, Entry(e.data, "")) for e in everywhere):
                check_data(exact.data)
                protocols = [exact.protocol] if exact.protocol else [e.protocol for e in own]
                matching = [Entry(exact.data, p) for p in dict.fromkeys(protocols)]
            out += [entry for entry in matching if entry not in out]
        return out


def shipped_suites() -> dict[str, Path]:
    """The files of the suites that come with the package, by name."""
    return {file.stem: file for file in sorted(FOLDER.glob("*.toml"))}


def load_suite(name: str | Path) -> Suite:
    """Read a suite, a file or a shipped one by name, and check all its rows."""
    path = Path(name)
    if path.suffix != ".toml" and not path.is_file():
        shipped = shipped_suites()
        if str(name) not in shipped:
            raise ItemfoldError(
                f"'suite' must be a .toml file or one of {', '.join(shipped)}, got {str(name)!r}"
            )
        path = shipped[str(name)]
    table = read_toml(path)
    try:
        check_table(table)
        suite = _make_suite(path, table)
        for row in (suite.baseline, *map(suite.baseline_of, suite.rows)):
            lookup(dict.fromkeys(suite.rows), "baseline", row)
        for metric in suite.plotted:
            lookup(dict.fromkeys(suite.columns), "plot", metric)
        suite.cells()
    except ItemfoldError as error:
        raise ItemfoldError(f"{path.name}: {error}") from error
    return suite


def _make_suite(path: Path, table: dict[str, Any]) -> Suite:
    rows = tuple(row["name"] for row in table["row"])
    columns = tuple(parse_metric(m).key for m in table.get("columns", COLUMNS))
    return Suite(
        name=path.stem,
        path=path.resolve(),
        title=table.get("title", path.stem),
        description=table.get("description", "").strip(),
        baseline=table.get("baseline", rows[0]),
        columns=columns,
        plotted=tuple(parse_metric(m).key for m in table.get("plot", columns[-1:])),
        cost=table.get("cost", False),
        curve=table.get("curve", ""),
        source=table.get("source", ""),
        rows=rows,
        notes={row["name"]: row["note"] for row in table["row"] if "note" in row},
        table=table,
    )


def row_settings(text: str, data: str, protocol: str | None) -> Config:
    """The settings of ``SUITE/ROW`` for split, model, loss, negatives and training, for any data.

    ``SUITE/ROW@DATA`` includes the overrides for that data set. The default protocol is that of the
    row's first data set.
    """
    found = re.fullmatch(r"(.+\.toml|[\w-]+)/(\w[\w.-]*)(?:@(.+))?", text)
    if not found:
        raise ItemfoldError(f"'--like' must be SUITE/ROW, such as systems/ease, got {text!r}")
    name, row, like = found.groups()
    suite = load_suite(name)
    table = {each["name"]: each for each in suite.table["row"]}
    own = lookup(table, f"--like {name}/…", row)
    known = row_entries(own, suite.table)
    if like is not None:
        lookup({entry.data: entry for entry in known}, f"--like {name}/{row}@…", like)
        known = [entry for entry in known if entry.data == like]
    if protocol is None:
        protocol = known[0].protocol
    lookup(SPLIT_OF, "protocol", protocol)
    entry = Entry(like or data, protocol)
    merged = merge(suite.table.get("defaults", {}), own, entry)
    return {section: merged[section] for section in SETTINGS if merged[section]}
