"""The settings of a service."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

from itemfold.data.items.item_table import read_item_table
from itemfold.environment import need_packages
from itemfold.errors import ItemfoldError
from itemfold.serving.http.access.api_keys import MAX_KEYS, check_key, read_keys
from itemfold.serving.http.limits import Limits
from itemfold.serving.recommender import Recommender
from itemfold.validation import positive, positive_integer

OTEL = ("opentelemetry.sdk", "opentelemetry.exporter.otlp")
LOCAL_NAMES = ("localhost", "ip6-localhost")


@dataclass(frozen=True)
class ServiceSettings:
    """The settings of a service.

    Attributes:
        allowed_hosts: Host names of the service; IP addresses are always allowed.
        api_keys: API keys; without these and a file, no key is needed.
        api_key_file: A file with one key per line, read again when it changes; None: no file.
        rate_limit: Requests per second and key; None: no limit.
        cors: Origins whose pages may use the service.
        feedback: Where feedback is stored: a folder, a SQLite file (.sqlite, .sqlite3 or .db), or
            "postgres", the database of DATABASE_URL; None: it is not collected.
        feedback_days: Age in days at which feedback is deleted; None: never.
        feedback_mb: Largest size of stored feedback in MiB; more is rejected with 507.
        access_log: Log every request.
        metrics_port: Port for metrics alone, without a key; None: they are at /metrics.
        otel: Send spans of requests to an OpenTelemetry collector.
        threads: Scoring threads.
        limits: What one client can take from the others.
        item_table: A file with more columns of the items.
        available: A file with the items that may be recommended.
        new_items: A table of items without interactions, recommended by their features.
        image_hosts: Origins from which the page may load images.
    """

    allowed_hosts: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()
    api_key_file: Path | None = None
    rate_limit: float | None = None
    cors: tuple[str, ...] = ()
    feedback: str | Path | None = None
    feedback_days: float | None = None
    feedback_mb: int = 10_240
    access_log: bool = True
    metrics_port: int | None = None
    otel: bool = False
    threads: int = 1
    limits: Limits = field(default_factory=Limits)
    item_table: Path | None = None
    available: Path | None = None
    new_items: Path | None = None
    image_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key in self.api_keys:
            check_key("api_key", key)
        if self.api_key_file is not None:
            read_keys(self.api_key_file)  # raises before a run is loaded
        if self.rate_limit is not None:
            positive(rate_limit=self.rate_limit)
            if not self.needs_key:
                raise ItemfoldError("'rate_limit' applies per key: give 'api_key_file' as well")
        if self.otel:
            need_packages("--otel", OTEL)
        positive_integer("feedback_mb", self.feedback_mb)
        if self.feedback_days is not None:
            positive(feedback_days=self.feedback_days)
            if self.feedback is None:
                raise ItemfoldError("'feedback_days' needs 'feedback', the place that it limits")
        for name, origins in (("cors", self.cors), ("image_host", self.image_hosts)):
            for origin in origins:
                if not re.fullmatch(r"https?://[\w.:\[\]-]+", origin, flags=re.ASCII):
                    raise ItemfoldError(
                        f"'{name}' must be an origin such as https://shop.example, got {origin!r}"
                    )

    @property
    def needs_key(self) -> bool:
        """Whether requests need a key."""
        return bool(self.api_keys) or self.api_key_file is not None

    @property
    def max_keys(self) -> int:
        """The number of keys that there can be, also after the file has changed."""
        return len(self.api_keys) + (0 if self.api_key_file is None else MAX_KEYS)

    def load(self, folder: Path, device: str) -> Recommender:
        """The recommender of a run folder, with the item files of these settings."""
        table = read_item_table(self.item_table, self.available)
        return Recommender.load(folder, device, table, self.new_items)

    @property
    def item_files(self) -> list[Path]:
        """The files with data about items."""
        files = (self.item_table, self.available, self.new_items)
        return [file for file in files if file is not None]


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
    if not (is_loopback(host) or settings.needs_key or insecure):
        raise ItemfoldError(
            f"'host' {host} is reachable from other machines: give --api-key-file, set "
            "ITEMFOLD_API_KEY, or allow it with --insecure"
        )
