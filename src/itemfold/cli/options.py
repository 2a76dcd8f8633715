"""Arguments and options that several commands share.

Each option is a field of a dataclass; `with_options` makes the fields options of a command, shown
in the ``panel`` of the class. `choices` fills in the names in braces.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from itemfold.cli.parsing import parse_duration
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.settings.schema import Config

DATA, TRAINING, CONFIGURATION = "Data", "Training", "Configuration"
FIRST = "Options"  # the first panel, for the most used options

DATA_HELP = (
    "The name of a data set, a table such as .csv, .dat, .json, .parquet or .gz, several tables "
    "such as 'plays/*.csv', a folder with train.txt or tables, or a folder written by `itemfold "
    "prepare`."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the named data sets. Default: ITEMFOLD_DATA.", rich_help_panel=DATA
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, as --format json does.")]
Format = Annotated[
    str, typer.Option("--format", help="table, markdown, latex (booktabs), csv or json.")
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also plot the figures into a .svg, .png or .pdf file."),
]
NewItems = Annotated[
    Path | None,
    typer.Option(
        help="A table of new items and their features; they can then be recommended.",
        rich_help_panel="Items",
    ),
]
ScoringDevice = Annotated[str, typer.Option("--device", help="cpu or cuda.")]


@dataclass(frozen=True)
class RowOptions:
    """Options for columns, ratings, weights and rows."""

    panel: ClassVar = DATA

    min_rating: Annotated[
        float | None,
        typer.Option(help="Keep ratings of at least this value.", rich_help_panel=FIRST),
    ] = None
    user_col: Annotated[str | None, typer.Option(help="Name of the user column.")] = None
    item_col: Annotated[str | None, typer.Option(help="Name of the item column.")] = None
    rating_col: Annotated[str | None, typer.Option(help="Name of the rating column.")] = None
    time_col: Annotated[str | None, typer.Option(help="Name of the time column.")] = None
    weight_col: Annotated[
        str | None,
        typer.Option(
            help="Name of a column of positive weights, such as the number of plays. Default: all "
            "interactions have the same weight."
        ),
    ] = None
    weight_transform: Annotated[
        str | None,
        typer.Option(
            help="log (the default): a weight v becomes log(1 + v); none: weights are unchanged."
        ),
    ] = None
    half_life: Annotated[
        str | None,
        typer.Option(
            help="Half-life of interactions, such as 12h, 30d or 1y; multiplies the weight."
        ),
    ] = None
    duplicates: Annotated[
        str | None,
        typer.Option(
            help="Rows of the same user and item: merge (the default) keeps the highest weight; "
            "sum adds the weights, or counts the rows."
        ),
    ] = None
    header: Annotated[
        bool | None,
        typer.Option(
            "--header/--no-header",
            help="Whether the first line of a text file has column names; without them, columns "
            "are called 1, 2, 3. Default: detected.",
        ),
    ] = None
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Skip rows with a missing or invalid value, and count them by reason.",
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """The given options, under the argument names of `read` and `prepare`."""
        given = {name.removesuffix("_col"): value for name, value in vars(self).items()}
        given["skip_bad_rows"] = self.skip_bad_rows or None
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class DataOptions:
    """Options for reading and filtering data."""

    panel: ClassVar = DATA

    rows: RowOptions
    data_root: DataRoot = None
    k_core: Annotated[
        int | None,
        typer.Option(help="Keep users and items with at least this many interactions."),
    ] = None
    titles: Annotated[
        str | None,
        typer.Option(help="A table with an item column and a title column.", rich_help_panel=FIRST),
    ] = None
    title_col: Annotated[str | None, typer.Option(help="Name of the title column in --titles.")] = (
        None
    )
    title_id_col: Annotated[
        str | None, typer.Option(help="Name of the column of item ids in --titles.")
    ] = None
    item_features: Annotated[
        str | None,
        typer.Option(
            help="A table of item features: categories, numbers, vectors, titles. It may include "
            "new items."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The given options, under the argument names of `load` and `read`."""
        given = {
            name.removesuffix("_col"): value
            for name, value in vars(self).items()
            if value is not None
        }
        rows = given.pop("rows").settings()
        root = {} if self.data_root is None else {"data_root": str(self.data_root)}
        return {**given, **root, **rows}


@dataclass(frozen=True)
class ComponentOptions:
    """Options for the model, the loss and the sampler of negatives."""

    panel: ClassVar = "Model and loss"

    model: Annotated[
        str | None,
        typer.Option(
            help="{models}; `itemfold models` describes them. Default: {default model}, which "
            "selects its own settings; lightgcn if only --loss or --negatives is given.",
        ),
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(help="{losses}. Default: set by the model, usually {default loss}."),
    ] = None
    negatives: Annotated[
        str | None,
        typer.Option(
            help="Sampler of negatives: {negatives}. Default: set by the model, usually "
            "{default negatives}."
        ),
    ] = None


@dataclass(frozen=True)
class SplitOptions:
    """Options for validation and test data."""

    panel: ClassVar = "Split"

    protocol: Annotated[
        str | None,
        typer.Option(
            help="transductive (known users) or inductive (unseen users). "
            "Default: {default protocol}."
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            help="interactions, users, time, last, rolling, items (new items) or all. "
            "Default: time for a file with timestamps, otherwise by protocol, {default split}."
        ),
    ] = None
    repeats: Annotated[
        bool,
        typer.Option(
            "--repeats",
            help="For data with repeated consumption, such as check-ins, baskets and plays: lists "
            "and the test part keep items that a user has seen. Splits by time.",
        ),
    ] = False


@dataclass(frozen=True)
class SettingOptions:
    """Short options for frequently changed settings."""

    panel: ClassVar = TRAINING

    epochs: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of epochs; training stops early when validation no longer "
            "improves. Default: set by the model, or {default train.epochs}."
        ),
    ] = None
    dim: Annotated[
        int | None, typer.Option(help="Dimension of the embeddings. Default: set by the model.")
    ] = None
    layers: Annotated[
        int | None,
        typer.Option(help="Number of message-passing layers. Default: set by the model."),
    ] = None
    lr: Annotated[
        float | None,
        typer.Option(help="Learning rate. Default: set by the model, or {default train.lr}."),
    ] = None
    tau: Annotated[
        float | None, typer.Option(help="Temperature of the loss. Default: set by the loss.")
    ] = None
    l2: Annotated[
        float | None,
        typer.Option(
            help="Weight of the L2 penalty. Default: set by the model, or {default train.l2}."
        ),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            help="Users (or interactions) per step. "
            "Default: set by the model, or {default train.batch}."
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time limit of the command, such as 30s, 10m or 2h; in `tune`, of each trial. "
            "Default: none.",
            rich_help_panel=FIRST,
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of split and training. Default: {default train.seed}.")
    ] = None
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or auto. Default: {default train.device}.")
    ] = None
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Known users: retrain on training and validation data. "
            "Default: {default train.refit}.",
        ),
    ] = None


@dataclass(frozen=True)
class ConfigOptions:
    """Options for settings from files and tables, and for single settings."""

    panel: ClassVar = CONFIGURATION

    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None
    like: Annotated[
        str | None,
        typer.Option(
            help="Use the settings of a row of results: inductive/item-log, systems/ease@ml-1m."
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting, such as model.pooling=sum; may be repeated."),
    ] = None


@dataclass(frozen=True)
class ExperimentOptions:
    """The options that `train` and `tune` share."""

    components: ComponentOptions
    split: SplitOptions
    training: SettingOptions
    configuration: ConfigOptions
    reading: DataOptions
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)
    ] = None

    @property
    def is_only_flags(self) -> bool:
        """Whether neither data nor a configuration is given."""
        configuration = self.configuration
        return self.data is None and configuration.config is None and configuration.like is None

    def base(self) -> Config:
        """The settings that options override: those of a file, of a row of results, or none."""
        from itemfold.experiments.suites.suite import row_settings
        from itemfold.settings.schema import PROTOCOL_OF
        from itemfold.settings.toml_file import load_config

        config, like = self.configuration.config, self.configuration.like
        if config is not None and like is not None:
            raise ItemfoldError("'--config' and '--like' each give all settings: use only one")
        if like is not None:
            protocol, split = self.split.protocol, self.split.split
            if protocol is None and split is not None:
                protocol = PROTOCOL_OF.get(split, "transductive")
            return row_settings(like, self.data or "", protocol)
        return {} if config is None else load_config(config)

    def apply(self, settings: Config) -> list[str]:
        """Override settings with the options; returns notes on options without effect."""
        from itemfold.settings.overrides import override

        strategy = self.split.split
        if self.split.repeats:
            settings.setdefault("split", {})["repeats"] = True
            strategy = strategy or settings["split"].get("strategy") or "time"
        return override(
            settings,
            data={"data": self.data, **self.reading.settings()},
            parts=vars(self.components),
            protocol=self.split.protocol,
            strategy=strategy,
            short={**vars(self.training), "budget": parse_duration("budget", self.training.budget)},
            sets=self.configuration.set_ or (),
        )
