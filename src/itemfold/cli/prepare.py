"""The command `prepare`, which converts files of any size to a folder of mapped arrays."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console

from itemfold.cli import options
from itemfold.cli.errors import report_interrupt
from itemfold.cli.option_groups import with_options
from itemfold.cli.tables.layout import print_line

REPORTED_S = 2.0  # phases that take longer are reported
FILES_HELP = (
    "Parquet, text or JSON files of any form, also compressed, patterns in quotes such as "
    "'plays/*/*.parquet', or folders with all their files. A folder called name=value is a column."
)


@with_options
def prepare_command(
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help=FILES_HELP, show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The folder to write.", show_default=False)],
    reading: options.RowOptions,
    memory: Annotated[
        str, typer.Option(help="Memory limit; the rest goes to temporary files inside --out.")
    ] = "4GB",
    threads: Annotated[
        int | None, typer.Option(help="Number of threads. Default: all CPUs.")
    ] = None,
) -> None:
    """Convert files larger than memory to a folder that all other commands accept as DATA.

    After an interruption, even by kill -9, the same command continues.

    Example: itemfold prepare 'plays/*.parquet' --out plays --memory 4GB
    """
    from itemfold.data.preparing.prepare import prepare

    with report_interrupt(lambda: "the same command continues"), Phases() as phases:
        found = prepare(
            files, out, memory=memory, threads=threads, progress=phases.show, **reading.settings()
        )
    merged = f", {found.duplicates:,} rows merged" if found.duplicates else ""
    print_line(
        f"{found.interactions:,} interactions of {found.users:,} users with {found.items:,} items "
        f"(of {found.rows:,} rows{merged}), fingerprint {found.fingerprint}"
    )
    if found.weighting:
        print_line(f"weights: {found.weighting}")
    for why, count in found.skipped.items():
        print_line(f"rows left out: {why} ({count:,})")
    for role, why in found.left_out.items():
        print_line(f"the {role} column was left out: {why}")
    print_line(f"data: {found.folder}")


class Phases:
    """Progress on stderr: a bar on a terminal, otherwise a line for each phase."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            console=self.console,
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.phase, self.task = "", self.bar.add_task("", visible=False)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, phase: str, done: int, steps: int, seconds: float) -> None:
        """Show that a step of a phase begins or ends."""
        if phase != self.phase:
            self.bar.reset(self.task, description=phase, total=steps, visible=True)
            self.phase = phase
        self.bar.update(self.task, completed=done)
        if done == steps and seconds > REPORTED_S:
            self.console.print(f"{phase}: {seconds:.0f} s", soft_wrap=True, highlight=False)
