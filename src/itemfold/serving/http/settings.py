"""The settings of a service."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from itemfold.data.item_table import read_item_table
from itemfold.errors import ItemfoldError
from itemfold.serving.http.limits import Limits
from itemfold.serving.recommender import Recommender
from itemfold.validation import positive

MIN_KEY = 16  # characters: shorter keys can be guessed
LOCAL_NAMES = ("localhost", "ip6-localhost")


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a service.

    Attributes:
        allowed_hosts: Host names of the service; IP addresses are always allowed.
        api_keys: API keys; empty: no key is needed.
        rate_limit: Requests per second and key; None: no limit.
        cors: Origins whose pages may use the service.
        feedback: Folder for feedback; None: it is not collected.
        access_log: Log every request.
        metrics_port: Port for metrics alone, without a key; None: they are at /metrics.
        threads: Scoring threads.
        limits: What one client can take from the others.
        item_table: A file with more columns of the items.
        available: A file with the items that may be recommended.
        new_items: A table of items without interactions, recommended by their features.
        image_hosts: Origins from which the page may load images.
    """

    allowed_hosts: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    rate_limit: float | None = None
    cors: tuple[str, ...] = ()
    feedback: Path | None = None
    access_log: bool = True
    metrics_port: int | None = None
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    item_table: Path | None = None
    available: Path | None = None
    new_items: Path | None = None
    image_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in self.api_keys:
            if not re.fullmatch(rf"[!-~]{{{MIN_KEY},}}", key):
                raise ItemfoldError(
                    f"'api_key' must have at least {MIN_KEY} printable ASCII characters and no "
                    f"spaces, got {len(key)} characters"
                )
        if self.rate_limit is not None:
            positive(rate_limit=self.rate_limit)
            if not self.api_keys:
                raise ItemfoldError("'rate_limit' applies per key: give 'api_key' as well")
        for name, origins in (("cors", self.cors), ("image_host", self.image_hosts)):
            for origin in origins:
                if not re.fullmatch(r"https?://[\w.:\[\]-]+", origin, flags=re.ASCII):
                    raise ItemfoldError(
                        f"'{name}' must be an origin such as https://shop.example, got {origin!r}"
                    )

    def load(self, folder: Path, device: str) -> Recommender:
        """The recommender of a run folder, with the item files of these settings."""
        table = read_item_table(self.item_table, self.available)
        return Recommender.load(folder, device, table, self.new_items)

    @property
    def item_files(self) -> list[Path]:
        """The files with data about items."""
        files = (self.item_table, self.available, self.new_items)
        return [file for file in files if file is not None]


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys in a file, one per line; lines that begin with # are comments."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise ItemfoldError(f"'api_key_file' must hold one key per line, '{path}' holds none")
    return keys


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOCAL_NAMES


def check_exposed(host: str, settings: ServiceSettings, *, insecure: bool) -> None:
    """Raise if other machines can reach the service without a key, unless `insecure` is set."""
    if not (is_loopback(host) or settings.api_keys or insecure):
        raise ItemfoldError(
            f"'host' {host} is reachable from other machines: give --api-key or --api-key-file, "
            "or allow it with --insecure"
        )
