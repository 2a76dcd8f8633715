"""The command `serve`: its options become the settings of the service."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from itemrec.cli import options
from itemrec.cli.option_groups import with_options
from itemrec.cli.parsing import parse_list
from itemrec.cli.steering import TableOptions
from itemrec.environment import need_extra
from itemrec.errors import ItemrecError

ACCESS = "Access"


@with_options
def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, or NAME=FOLDER; the first answers unless a request names another.",
            show_default=False,
        ),
    ],
    table: TableOptions,
    new_items: options.NewItems = None,
    host: Annotated[
        str, typer.Option(help="Address to listen at; 0.0.0.0: all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at; 0: any free port.")] = 8000,
    split: Annotated[
        str | None,
        typer.Option(help="Share of the users for each run, such as a=90,b=10."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that answer; default: one for each CPU, 4 at most."),
    ] = None,
    feedback: Annotated[
        Path | None, typer.Option(help="Folder for feedback; default: none is stored.")
    ] = None,
    access_log: Annotated[
        bool, typer.Option(help="Write a line of JSON to stderr for every request.")
    ] = True,
    device: options.ScoringDevice = "cpu",
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ITEMREC_API_KEY",
            help="A key that requests must have; may be repeated.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="A file with a key in each line.", rich_help_panel=ACCESS)
    ] = None,
    rate_limit: Annotated[
        float | None,
        typer.Option(help="Requests a second with one key.", rich_help_panel=ACCESS),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Answer other machines too.", rich_help_panel=ACCESS),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name by which the service is addressed; may be repeated.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    image_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin from which the page may load the pictures of --item-table, such as "
            "https://images.example; may be repeated.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin whose pages may use the service; may be repeated.",
            rich_help_panel=ACCESS,
        ),
    ] = None,
) -> None:
    """Serve recommendations over HTTP, with a web page to try them.

    Example: itemrec serve runs/item runs/bpr --split item=90,bpr=10 --port 8000
    """
    need_extra("serve")
    from itemrec.serving.http import ServiceSettings
    from itemrec.serving.http import serve as run_service
    from itemrec.serving.http.settings import read_keys

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server completes requests before it ends
    keys = tuple(api_key or ()) + (read_keys(api_key_file) if api_key_file else ())
    settings = ServiceSettings(
        allowed_hosts=tuple(allowed_host or ()),
        api_keys=keys,
        rate_limit=rate_limit,
        cors=tuple(cors or ()),
        feedback=feedback,
        access_log=access_log,
        item_table=table.item_table,
        available=table.available,
        new_items=new_items,
        image_hosts=tuple(image_host or ()),
    )
    run_service(
        runs,
        host=host,
        port=port,
        device=device,
        split=parse_shares(split),
        workers=workers,
        insecure=insecure,
        settings=settings,
    )


def parse_shares(text: str | None) -> dict[str, float]:
    """The share of each run.

    >>> parse_shares("a=90,b=10")
    {'a': 90.0, 'b': 10.0}
    """
    shares: dict[str, float] = {}
    for part in parse_list("split", text or ""):
        name, _, number = part.rpartition("=")
        try:
            shares[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise ItemrecError(f"'split' must be shares such as a=90,b=10, got {text!r}")
    return shares
