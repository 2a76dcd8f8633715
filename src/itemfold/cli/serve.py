"""The command `serve`."""

from __future__ import annotations

import os
import signal
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from itemfold.cli import list_options, options
from itemfold.cli.option_groups import with_options
from itemfold.cli.parsing import parse_list
from itemfold.environment import need_extra
from itemfold.errors import ItemfoldError, ItemfoldWarning

API_KEY = "ITEMFOLD_API_KEY"


@dataclass(frozen=True)
class AccessOptions:
    """Options for access control."""

    panel: ClassVar = "Access"

    api_key: Annotated[
        list[str] | None,
        typer.Option(
            envvar=API_KEY,
            help="A key that requests must send; may be repeated. Prefer the variable: other users "
            "of the machine can see the option.",
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="A private file with one key per line, read again when it changes."),
    ] = None
    rate_limit: Annotated[
        float | None,
        typer.Option(help="Maximum requests per second and key; a batch counts once per user."),
    ] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept other machines without a key.")
    ] = False
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A host name of the service; may be repeated."),
    ] = None
    image_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin from which the page may load images of --item-table, such as "
            "https://images.example; may be repeated."
        ),
    ] = None
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Origin whose pages may use the service; may be repeated."),
    ] = None


@dataclass(frozen=True)
class FeedbackOptions:
    """Options for feedback."""

    panel: ClassVar = "Feedback"

    feedback: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where feedback is stored: a folder, a .sqlite file, or postgres (the database of "
            "DATABASE_URL). Default: feedback is not stored.",
        ),
    ] = None
    feedback_days: Annotated[
        float | None, typer.Option(help="Delete feedback after this many days. Default: never.")
    ] = None
    feedback_mb: Annotated[
        int, typer.Option(help="Maximum size of stored feedback in MiB; more is rejected.")
    ] = 10_240


@with_options
def serve_command(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...",
            help="Run folders, or NAME=FOLDER; the first answers unless a request names another.",
            show_default=False,
        ),
    ],
    table: list_options.TableOptions,
    access: AccessOptions,
    storing: FeedbackOptions,
    new_items: options.NewItems = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free port.")] = 8000,
    split: Annotated[
        str | None, typer.Option(help="Share of the users for each run, such as a=90,b=10.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes. Default: one per CPU, at most 4.")
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(help="Separate port for metrics, without a key. Default: /metrics of --port."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="A limit to change, such as max_body=2000000; may be repeated. The page on "
            "serving lists all."
        ),
    ] = None,
    access_log: Annotated[
        bool, typer.Option(help="Write a line of JSON to stderr for every request.")
    ] = True,
    otel: Annotated[
        bool,
        typer.Option(
            "--otel",
            help="Send a span per request to the OpenTelemetry collector of "
            "OTEL_EXPORTER_OTLP_ENDPOINT.",
        ),
    ] = False,
    device: options.ScoringDevice = "cpu",
) -> None:
    """Serve recommendations over HTTP, with a web page to try them.

    Example: itemfold serve runs/item runs/bpr --split item=90,bpr=10 --port 8000
    """
    need_extra("serve")
    from itemfold.serving.http import ServiceSettings, serve
    from itemfold.serving.http.limits import Limits

    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the server drains connections itself
    if access.api_key and access.api_key != os.environ.get(API_KEY, "").split():
        warnings.warn(
            "--api-key can be seen by other users of this machine: "
            f"set {API_KEY} or give --api-key-file instead",
            ItemfoldWarning,
            stacklevel=2,
        )
    settings = ServiceSettings(
        allowed_hosts=tuple(access.allowed_host or ()),
        api_keys=tuple(access.api_key or ()),
        api_key_file=access.api_key_file,
        rate_limit=access.rate_limit,
        cors=tuple(access.cors or ()),
        feedback=storing.feedback,
        feedback_days=storing.feedback_days,
        feedback_mb=storing.feedback_mb,
        access_log=access_log,
        metrics_port=metrics_port,
        otel=otel,
        limits=Limits.parse(limit or ()),
        item_table=table.item_table,
        available=table.available,
        new_items=new_items,
        image_hosts=tuple(access.image_host or ()),
    )
    serve(
        runs,
        host=host,
        port=port,
        device=device,
        split=parse_shares(split),
        workers=workers,
        insecure=access.insecure,
        settings=settings,
    )


def parse_shares(text: str | None) -> dict[str, float]:
    """The share of the users of each run.

    >>> parse_shares("a=90,b=10")
    {'a': 90.0, 'b': 10.0}
    """
    shares: dict[str, float] = {}
    for part in parse_list("--split", text or ""):
        name, _, number = part.rpartition("=")
        try:
            shares[name] = float(number)
        except ValueError:
            name = ""
        if not name:
            raise ItemfoldError(f"'--split' must be shares such as a=90,b=10, got {text!r}")
    return shares
