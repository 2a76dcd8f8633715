"""Arguments and options that several commands share, in groups.

Each option is declared once, as a field of a dataclass; `with_options` makes the fields options of
a command. Names in braces in a help text are filled in by `choices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from itemrec.cli.parsing import parse_duration
from itemrec.errors import ItemrecError

if TYPE_CHECKING:
    from itemrec.settings.schema import Config

MODEL, DATA, SPLIT = "Model and loss", "Data", "Split"
TRAINING, CONFIGURATION = "Training", "Configuration"

DATA_HELP = (
    "A built-in name, a folder with train.txt, a .csv, .tsv, .inter (.gz), .parquet or .jsonl "
    "file, several parquet files, such as 'plays/*.parquet', or a folder of `itemrec prepare`."
)
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, show_default=False)]
RunFolder = Annotated[str, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data sets known by name; default: ITEMREC_DATA.", rich_help_panel=DATA
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NewItems = Annotated[
    Path | None,
    typer.Option(
        help="A table of new items with their features, which may then be recommended.",
        rich_help_panel="Items",
    ),
]
ScoringDevice = Annotated[str, typer.Option("--device", help="cpu or cuda.")]


@dataclass(frozen=True)
class RowOptions:
    """How the rows of files become interactions."""

    min_rating: Annotated[
        float | None,
        typer.Option(help="Keep ratings of at least this value.", rich_help_panel=DATA),
    ] = None
    user_col: Annotated[
        str | None, typer.Option(help="Name of the user column.", rich_help_panel=DATA)
    ] = None
    item_col: Annotated[
        str | None, typer.Option(help="Name of the item column.", rich_help_panel=DATA)
    ] = None
    rating_col: Annotated[
        str | None, typer.Option(help="Name of the rating column.", rich_help_panel=DATA)
    ] = None
    time_col: Annotated[
        str | None, typer.Option(help="Name of the time column.", rich_help_panel=DATA)
    ] = None
    weight_col: Annotated[
        str | None,
        typer.Option(
            help="Name of a column of positive numbers, such as plays: how much an interaction "
            "counts. Default: all count alike.",
            rich_help_panel=DATA,
        ),
    ] = None
    weight_transform: Annotated[
        str | None,
        typer.Option(
            help="log: a weight v becomes log(1 + v), the default; none: it stays as it is.",
            rich_help_panel=DATA,
        ),
    ] = None
    half_life: Annotated[
        str | None,
        typer.Option(
            help="Time after which an interaction counts half, such as 12h, 30d or 1y; it "
            "multiplies a weight.",
            rich_help_panel=DATA,
        ),
    ] = None
    duplicates: Annotated[
        str | None,
        typer.Option(
            help="Rows of the same user and item: merge keeps the highest weight, the default; "
            "sum adds the weights, or counts the rows.",
            rich_help_panel=DATA,
        ),
    ] = None
    skip_bad_rows: Annotated[
        bool,
        typer.Option(
            "--skip-bad-rows",
            help="Leave out rows with a missing or invalid value; they are counted by reason.",
            rich_help_panel=DATA,
        ),
    ] = False

    def settings(self) -> dict[str, Any]:
        """The options that were given, under the names that `read` and `prepare` use."""
        return _given(
            min_rating=self.min_rating,
            user=self.user_col,
            item=self.item_col,
            rating=self.rating_col,
            time=self.time_col,
            weight=self.weight_col,
            weight_transform=self.weight_transform,
            half_life=self.half_life,
            duplicates=self.duplicates,
            skip_bad_rows=self.skip_bad_rows or None,
        )


@dataclass(frozen=True)
class DataOptions:
    """How data is read and filtered."""

    rows: RowOptions
    data_root: DataRoot = None
    k_core: Annotated[
        int | None,
        typer.Option(
            help="Keep users and items with at least this many interactions.",
            rich_help_panel=DATA,
        ),
    ] = None
    titles: Annotated[
        str | None,
        typer.Option(help="A file with an item and a title column.", rich_help_panel=DATA),
    ] = None
    item_features: Annotated[
        str | None,
        typer.Option(
            help="A table of items and their features, also of new items: categories, numbers, "
            "vectors, titles.",
            rich_help_panel=DATA,
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The options that were given, under the names that `load` and `read` use."""
        return _given(
            data_root=None if self.data_root is None else str(self.data_root),
            k_core=self.k_core,
            titles=self.titles,
            item_features=self.item_features,
            **self.rows.settings(),
        )


@dataclass(frozen=True)
class ComponentOptions:
    """Which model, loss and sampler of negatives."""

    model: Annotated[
        str | None,
        typer.Option(
            help="{models}; `itemrec models` describes them. Default: {default model}, which "
            "chooses its own settings; with --loss or --negatives alone: lightgcn.",
            rich_help_panel=MODEL,
        ),
    ] = None
    loss: Annotated[
        str | None,
        typer.Option(
            help="{losses}. Default: that of the model, mostly {default loss}.",
            rich_help_panel=MODEL,
        ),
    ] = None
    negatives: Annotated[
        str | None,
        typer.Option(
            help="How negatives are sampled: {negatives}. Default: that of the model, "
            "mostly {default negatives}.",
            rich_help_panel=MODEL,
        ),
    ] = None


@dataclass(frozen=True)
class SplitOptions:
    """What is held out for validation and test."""

    protocol: Annotated[
        str | None,
        typer.Option(
            help="transductive (known users) or inductive (unseen users). "
            "Default: {default protocol}.",
            rich_help_panel=SPLIT,
        ),
    ] = None
    split: Annotated[
        str | None,
        typer.Option(
            help="interactions, users, time, last, rolling, items (new items) or all. "
            "Default: by protocol, {default split}.",
            rich_help_panel=SPLIT,
        ),
    ] = None

    def any_protocol(self) -> str | None:
        """The protocol that was given, or the one of the given split."""
        if self.protocol is not None or self.split is None:
            return self.protocol
        from itemrec.settings.schema import PROTOCOL_OF

        return PROTOCOL_OF.get(self.split, "transductive")


@dataclass(frozen=True)
class SettingOptions:
    """Short options for the settings that are changed most often."""

    epochs: Annotated[
        int | None,
        typer.Option(
            help="Largest number of epochs; training stops earlier where validation no longer "
            "improves. Default: that of the model, or {default train.epochs}.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    dim: Annotated[
        int | None,
        typer.Option(
            help="Dimension of the embeddings. Default: that of the model, or chosen by it.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    layers: Annotated[
        int | None,
        typer.Option(
            help="Number of message-passing layers. Default: that of the model.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    lr: Annotated[
        float | None,
        typer.Option(
            help="Learning rate. Default: that of the model, or {default train.lr}.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    tau: Annotated[
        float | None,
        typer.Option(
            help="Temperature of the loss. Default: that of the loss.", rich_help_panel=TRAINING
        ),
    ] = None
    l2: Annotated[
        float | None,
        typer.Option(
            help="Weight of the L2 penalty. Default: that of the model, or {default train.l2}.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            help="Users (or interactions) per step. "
            "Default: that of the model, or {default train.batch}.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time that training may take, refit included, such as 90s, 10m or 2h. "
            "Default: no limit.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed of split and training. Default: {default train.seed}.",
            rich_help_panel=TRAINING,
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or auto. Default: {default train.device}.", rich_help_panel=TRAINING
        ),
    ] = None
    refit: Annotated[
        bool | None,
        typer.Option(
            "--refit/--no-refit",
            help="Known users: train again on training + validation data. "
            "Default: {default train.refit}.",
            rich_help_panel=TRAINING,
        ),
    ] = None


@dataclass(frozen=True)
class ConfigOptions:
    """Settings from files and tables, and single ones by name."""

    config: Annotated[
        Path | None,
        typer.Option(help="A TOML file of settings.", rich_help_panel=CONFIGURATION),
    ] = None
    like: Annotated[
        str | None,
        typer.Option(
            help="The settings of a table's row: inductive/item-log, systems/ease@ml-1m.",
            rich_help_panel=CONFIGURATION,
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A single setting, such as model.pooling=sum; may be repeated.",
            rich_help_panel=CONFIGURATION,
        ),
    ] = None


@dataclass(frozen=True)
class ExperimentOptions:
    """Everything that `train` and `tune` need to know of an experiment."""

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
        """Whether neither data nor a whole configuration was given."""
        configuration = self.configuration
        return self.data is None and configuration.config is None and configuration.like is None

    def base(self) -> Config:
        """The settings before options: those of a file, of a table's row, or none."""
        from itemrec.experiments.suites.suite import row_settings
        from itemrec.settings.toml_file import load_config

        config, like = self.configuration.config, self.configuration.like
        if config is not None and like is not None:
            raise ItemrecError("'--config' and '--like' each give all settings: choose one")
        if like is not None:
            return row_settings(like, self.data or "", self.split.any_protocol())
        return {} if config is None else load_config(config)

    def apply(self, settings: Config) -> list[str]:
        """Put the options on top of settings; returns notes on options without effect."""
        from itemrec.settings.overrides import override

        return override(
            settings,
            data={"data": self.data, **self.reading.settings()},
            parts=vars(self.components),
            protocol=self.split.protocol,
            strategy=self.split.split,
            short={**vars(self.training), "budget": parse_duration("budget", self.training.budget)},
            sets=self.configuration.set_ or (),
        )


def _given(**options: Any) -> dict[str, Any]:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}
