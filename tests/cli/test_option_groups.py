"""Groups of options reach typer as single options and the command as filled dataclasses."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from itemfold.cli.app import app
from itemfold.cli.option_groups import with_options


@dataclass(frozen=True)
class Inner:
    width: Annotated[int, typer.Option(help="Of the box.", rich_help_panel="Size")] = 3


@dataclass(frozen=True)
class Outer:
    inner: Inner
    tag: Annotated[list[str] | None, typer.Option("--tag")] = None
    needed: Annotated[str | None, typer.Argument(metavar="NAME")] = None


def make_app(received: list) -> typer.Typer:
    small = typer.Typer()

    @small.command()
    @with_options
    def box(outer: Outer, loud: Annotated[bool, typer.Option("--loud")] = False) -> None:
        """A box."""
        received.append((outer, loud))

    return small


def test_a_command_gets_its_dataclasses_filled():
    received: list = []
    small = make_app(received)
    for line, expected in (
        ([], (Outer(Inner(3)), False)),
        (["x", "--width", "5", "--loud"], (Outer(Inner(5), None, "x"), True)),
        (["--tag", "a", "--tag", "b"], (Outer(Inner(3), ["a", "b"]), False)),
    ):
        result = CliRunner().invoke(small, line)
        assert result.exit_code == 0, result.output
        assert received[-1] == expected


def test_types_panels_and_docstring_reach_typer():
    small = make_app([])
    assert CliRunner().invoke(small, ["--width", "wide"]).exit_code == 2
    text = CliRunner().invoke(small, ["--help"]).stdout
    for part in ("A box.", "NAME", "--width", "Of the box.", "Size", "--tag", "--loud"):
        assert part in text


def test_options_of_a_group_share_its_panel_unless_they_name_another():
    @dataclass(frozen=True)
    class Shape:
        panel: ClassVar = "Shape"
        sides: Annotated[int, typer.Option(help="How many.")] = 4
        width: Annotated[int, typer.Option(rich_help_panel="Size")] = 3

    def box(shape: Shape) -> None: ...

    hints = with_options(box).__annotations__
    panels = {name: hint.__metadata__[0].rich_help_panel for name, hint in hints.items()}
    assert panels == {"sides": "Shape", "width": "Size"}


def test_two_options_of_one_name_are_rejected():
    def twice(inner: Inner, width: int = 1) -> None: ...

    with pytest.raises(TypeError, match="twice: two options are called 'width'"):
        with_options(twice)


OPTIONS = {
    "describe": "--data-root --min-rating --k-core --user-col --item-col --rating-col --time-col "
    "--titles --ppr --json",
    "train": "--model --loss --negatives --protocol --split --out --config --like --final --set "
    "--epochs --dim --layers --lr --tau --l2 --batch --seed --device --refit --no-refit --resume "
    "--data-root --min-rating --k-core --user-col --item-col --rating-col --time-col --titles",
    "tune": "--search --trials --time-limit --out --resume --model --loss --negatives --protocol "
    "--split --config --like --set --epochs --seed --device --data-root --min-rating --k-core "
    "--user-col --item-col --rating-col --time-col --titles",
    "recommend": "--user --history --all -k --k --out --seen --only --without --genre --explain "
    "--no-explain --json --device",
    "reproduce": "--datasets --rows --seeds --device --jobs --data-root --results --per-user "
    "--time-limit",
}


@pytest.mark.parametrize("command", OPTIONS)
def test_help_has_every_option_and_no_list_is_cut_short(command):
    text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "160"}).stdout
    for option in OPTIONS[command].split():
        assert f"{option} " in text
    assert "…" not in text
    assert "{" not in text.replace("{RUN}", "").replace("{DATA}", "").replace("{SUITE}", "")


def test_help_of_train_is_in_panels_with_all_choices():
    text = CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "160"}).stdout
    panels = ("Options", "Model and loss", "Split", "Training", "Configuration", "Data")
    places = [text.index(f"─ {panel} ─") for panel in panels]
    assert places == sorted(places)
    words = " ".join(text.replace("│", " ").split())
    assert "interactions, users, time, last, rolling, items (new items) or all." in words
    for table in ("MODELS", "LOSSES"):
        assert table not in words
    from itemfold.losses import LOSSES
    from itemfold.models import MODELS
    from itemfold.sampling import NEGATIVES

    for choices in (MODELS, LOSSES, NEGATIVES):
        assert ", ".join(choices) in words
