"""The command `recommend`: for one known user, a history, or all users."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from itemfold import ranks
from itemfold.cli import list_options, options
from itemfold.cli.errors import error_console, print_note
from itemfold.cli.option_groups import with_options
from itemfold.cli.parsing import parse_list, parse_numbers, parse_optional_list
from itemfold.cli.tables.layout import console
from itemfold.errors import ItemfoldError
from itemfold.validation import positive_integer

if TYPE_CHECKING:
    from itemfold.serving.item_lookup import ItemLookup
    from itemfold.serving.recommendation_table import RecommendationTable
    from itemfold.serving.recommender import Recommender

QUOTING = "ids or titles, those with commas as '1,\"a,b\"'"
JSON_REASONS = 5  # listed per item; "others" has the sum of the rest


@dataclass(frozen=True)
class AudienceOptions:
    """Options for the users: a known user, a history, or all users."""

    panel: ClassVar = "Users"

    user: Annotated[str | None, typer.Option(help="A user of the training data.")] = None
    history: Annotated[
        str | None,
        typer.Option(
            help=f"The items of any other user, such as 1,260 or 'Toy Story'; {QUOTING}. "
            "`itemfold items` searches titles."
        ),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(help="Weights of the items of --history, such as 1,2.5; only ratios matter."),
    ] = None
    dislike: Annotated[
        str | None,
        typer.Option(
            help="Items that the user dislikes, such as 1196: they are excluded, and similar items "
            f"score lower; {QUOTING}."
        ),
    ] = None
    all_users: Annotated[bool, typer.Option("--all", help="All users; needs --out.")] = False

    def check(self) -> None:
        """Raise unless exactly one of them is given."""
        if (self.user is not None) + (self.history is not None) + self.all_users != 1:
            raise ItemfoldError("give one of --user, --history and --all")
        for name, value in (("--dislike", self.dislike), ("--weights", self.weights)):
            if self.all_users and value is not None:
                raise ItemfoldError(f"'{name}' cannot be combined with --all")

    def arguments(self, lookup: ItemLookup) -> dict[str, Any]:
        """The keyword arguments of `Recommender.recommend`."""
        return {
            "history": named_items("--history", self.history, lookup),
            "weights": parse_numbers("weights", self.weights),
            "dislikes": named_items("--dislike", self.dislike, lookup),
        }


@dataclass(frozen=True)
class FilterOptions:
    """Filters of the recommended items."""

    panel: ClassVar = "Items"

    seen: Annotated[
        bool,
        typer.Option("--seen", help="Allow items of the history, as a run with --repeats does."),
    ] = False
    only: Annotated[
        str | None, typer.Option(help=f"Allow only these items, such as 1,260; {QUOTING}.")
    ] = None
    without: Annotated[
        str | None, typer.Option(help=f"Exclude these items, such as 1,260; {QUOTING}.")
    ] = None
    genre: Annotated[
        str | None, typer.Option(help="Allow only items of these genres, such as War,Drama.")
    ] = None
    new_items: options.NewItems = None

    def arguments(self, lookup: ItemLookup) -> dict[str, Any]:
        """The keyword arguments of `Recommender.recommend`."""
        return {
            "only": named_items("--only", self.only, lookup),
            "without": named_items("--without", self.without, lookup),
            "genre": parse_optional_list("genre", self.genre),
            **({"exclude_seen": False} if self.seen else {}),
        }


@dataclass(frozen=True)
class OutputOptions:
    """Options for the output."""

    panel: ClassVar = "Output"

    k: Annotated[int, typer.Option("-k", "--k", help="Length of a list.")] = 20
    out: Annotated[
        Path | None,
        typer.Option(
            help="For --all: a .parquet, .csv or .tsv file, or a folder for parquet parts."
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            help="With a folder: the parts that this process writes, such as 0/4 in the first of "
            "four. Default: all, or by RANK and WORLD_SIZE under torchrun."
        ),
    ] = None
    part: Annotated[
        int | None, typer.Option(help="With a folder: users per part. Default: 10000.")
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="With a folder: skip parts that are complete.")
    ] = False
    explain: Annotated[
        bool,
        typer.Option(
            "--explain/--no-explain",
            help="Show the items of the history that contribute most to each score.",
            show_default=False,
        ),
    ] = False
    as_json: options.AsJson = False

    def check(self, all_users: bool) -> None:
        """Reject invalid combinations before a model is loaded."""
        if all_users and self.out is None:
            raise ItemfoldError(
                "'--all' needs a file to write to: give --out recs.parquet, or a folder"
            )
        for name, value in (("--explain", self.explain), ("--json", self.as_json)):
            if all_users and value:
                raise ItemfoldError(f"'{name}' cannot be combined with --all, which writes a table")
        if self.out is not None and not all_users:
            raise ItemfoldError("'--out' needs --all; a single list is printed, also with --json")
        self._check_parts()

    @property
    def is_folder(self) -> bool:
        """Whether --out is a folder of parts."""
        return self.out is not None and (self.out.is_dir() or not self.out.suffix)

    def _check_parts(self) -> None:
        """Reject a path that cannot be written, and options that need a folder."""
        given = {"--shard": self.shard, "--part": self.part, "--resume": self.resume or None}
        for name in (name for name, value in given.items() if value is not None):
            if not self.is_folder:
                raise ItemfoldError(f"'{name}' needs --all and a folder, such as --out lists")
        if self.part is not None:
            positive_integer("--part", self.part)
        if self.out is None:
            return
        from itemfold.serving.recommendation_table import check_parts_folder, check_table_path

        if self.is_folder:
            parse_shard(self.shard)
            if self.shard is not None and ranks.wanted_size() > 1:
                raise ItemfoldError(
                    "'--shard' must not be given under torchrun, which sets it for each process"
                )
            check_parts_folder(self.out)
            return
        check_table_path(self.out)
        if parse_shard(None) != (0, 1):
            raise ItemfoldError(
                f"'--out' must be a folder if several processes write, got the file '{self.out}'"
            )


@with_options
def recommend_command(
    run: options.RunPath,
    audience: AudienceOptions,
    filters: FilterOptions,
    steering: list_options.SteeringOptions,
    output: OutputOptions,
    device: options.ScoringDevice = "cpu",
) -> None:
    """Recommend to a known user, to a new user with a history, or to all users.

    Example: itemfold recommend r --history "1,260,1196" -k 10 --diversity 0.5 --max-per genre=4
    """
    audience.check()
    output.check(audience.all_users)
    if not audience.all_users and not ranks.is_first():
        return  # the first process prints the list
    steer = steering.settings()
    from itemfold.cli.tables import recommendations as tables
    from itemfold.serving.item_lookup import ItemLookup
    from itemfold.serving.recommender import Recommender
    from itemfold.training.progress import watch
    from itemfold.training.run import Run

    ranks.take_gpu(device)  # under torchrun every process has one of its own
    trained, table = Run.load(run, device), steering.table.read()
    watch(trained.model, show=error_console.is_terminal)
    recommender = Recommender(trained, item_table=table, new_items=filters.new_items)
    lookup = ItemLookup(recommender)
    arguments = {**filters.arguments(lookup), "steering": steer}
    given = audience.arguments(lookup)
    for note in lookup.notes:
        print_note(note)
    if audience.all_users:
        _recommend_all(recommender, arguments, output)
        return
    found = recommender.recommend(
        audience.user,
        **given,
        k=output.k,
        explain=output.explain,
        reasons=JSON_REASONS if output.as_json else None,
        **arguments,
    )
    if found.fallback and given["history"]:
        raise ItemfoldError(
            f"'--history' must name an item of the training data, got "
            f"{', '.join(map(repr, given['history']))}; `itemfold items {run} TEXT` searches them"
        )
    if output.as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        console.print(tables.recommendations(found))


def named_items(option: str, text: str | None, lookup: ItemLookup) -> list[Any] | None:
    """The ids of a list of ids and titles; a text that is itself an id or title is not split."""
    if text is None:
        return None
    is_one = lookup.recommender.items.ids.index([text])[0] >= 0 or lookup.is_title(text)
    return lookup.resolve(option, [text] if is_one else parse_list(option.lstrip("-"), text))


def _recommend_all(
    recommender: Recommender, arguments: dict[str, Any], output: OutputOptions
) -> None:
    """Write the lists of all users to a file, or this shard of them to a folder."""
    from itemfold.cli.tables import recommendations as tables
    from itemfold.serving.recommendation_parts import USERS, all_lists, write_parts
    from itemfold.serving.recommendation_table import save_tables

    assert output.out is not None
    show, unknown = error_console.is_terminal, list[Any]()
    if output.is_folder:
        index, count = parse_shard(output.shard)
        done = write_parts(
            recommender,
            output.out,
            output.k,
            shard=(index, count),
            resume=output.resume or ranks.is_restart(),
            users_per_part=output.part or USERS,
            progress=show,
            **arguments,
        )
        line = f"{done.users:,} users, up to {output.k} items each, in {done.parts:,} parts"
        line += f" of shard {index}/{count}" if count > 1 else ""
        line += f", {done.skipped:,} of them already complete" if done.skipped else ""
        unknown += done.unknown
    else:

        def lists() -> Iterator[RecommendationTable]:
            for table in all_lists(recommender, output.k, progress=show, **arguments):
                unknown[:] = table.unknown
                yield table

        save_tables(lists(), output.out)
        line = f"{recommender.interactions.shape[0]:,} users, up to {output.k} items each"
    console.print(tables.written(f"{line}: {output.out}", unknown, recommender.run), soft_wrap=True)


def parse_shard(text: str | None) -> tuple[int, int]:
    """The index of this shard and the number of shards; by default those of torchrun, or 0/1.

    >>> parse_shard("1/4")
    (1, 4)
    >>> parse_shard("4/4")
    Traceback (most recent call last):
    itemfold.errors.ItemfoldError: '--shard' must be i/n with i from 0 to n - 1, got '4/4'
    """
    name = "--shard"
    if text is None:
        name = "RANK/WORLD_SIZE"
        text = f"{os.environ.get('RANK', '0')}/{os.environ.get('WORLD_SIZE', '1')}"
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip())
    if not found or not int(found[1]) < int(found[2]):
        raise ItemfoldError(f"'{name}' must be i/n with i from 0 to n - 1, got {text!r}")
    return int(found[1]), int(found[2])
