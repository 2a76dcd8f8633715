"""The runs behind a service, each by its name: which one answers, and how one is replaced."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from itemrec.errors import ItemrecError
from itemrec.serving.http.catalogue import Catalogue
from itemrec.serving.recommender import Recommender
from itemrec.training.fingerprint import fingerprint
from itemrec.validation import lookup

NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class ServedRun:
    """A run as it is served: it never changes, a new version takes its place.

    Attributes:
        name: Its name in requests.
        recommender: Its recommender.
        catalogue: Its items.
        fingerprint: A hash of everything that its answers depend on.
        since: When it was loaded, UTC.
    """

    name: str
    recommender: Recommender
    catalogue: Catalogue
    fingerprint: str
    since: str

    @classmethod
    def of(cls, name: str, recommender: Recommender) -> Self:
        """A run that is served from now on."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        print_ = fingerprint(recommender.run, recommender.item_table, recommender.items.features)
        return cls(name, recommender, Catalogue(recommender), print_, now)


class Runs:
    """The runs of a service, the first of which answers unless a request or a split says otherwise.

    Args:
        recommenders: A recommender for each name.
        split: Share of the traffic for some names; the shares are relative to their sum.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.EASE())
        >>> runs = Runs({"a": ir.Recommender(run), "b": ir.Recommender(run)}, {"a": 9, "b": 1})
        >>> drawn = [runs.choose(None, f"user {i}").name for i in range(1000)]
        >>> 70 < drawn.count("b") < 130
        True
        >>> runs.choose("b", None).name
        'b'
    """

    def __init__(
        self, recommenders: Mapping[str, Recommender], split: Mapping[str, float] | None = None
    ) -> None:
        self._served = {name: ServedRun.of(name, r) for name, r in recommenders.items()}
        self.split = check_split(split or {}, list(self._served))

    def __iter__(self) -> Iterator[ServedRun]:
        return iter(self._served.values())

    @property
    def names(self) -> list[str]:
        """The names, the default first."""
        return list(self._served)

    def choose(self, name: str | None, whom: Any) -> ServedRun:
        """The run of this name; without a name the one that this user's traffic goes to.

        Args:
            name: The name of a run, or None.
            whom: What identifies a user; the same user always gets the same run.

        Raises:
            ItemrecError: No run has this name.
        """
        if name is None:
            name = self._drawn(whom) if self.split else self.names[0]
        found: ServedRun = lookup(self._served, "run", name)
        return found

    def replace(self, run: ServedRun) -> None:
        """Let this run answer from now on; requests that have begun keep the one they have."""
        self._served[run.name] = run

    def _drawn(self, whom: Any) -> str:
        digest = hashlib.sha256(str(whom).encode(errors="surrogatepass")).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64 * sum(self.split.values())
        for name, share in self.split.items():
            place -= share
            if place < 0:
                return name
        return name  # the sum was rounded


def run_folders(runs: Sequence[str]) -> dict[str, Path]:
    """The folder of each name, of arguments such as ``runs/a`` or ``name=runs/a``.

    >>> run_folders(["runs/bpr", "new=runs/item"])
    {'bpr': PosixPath('runs/bpr'), 'new': PosixPath('runs/item')}
    """
    found: dict[str, Path] = {}
    for text in runs:
        given, equals, rest = text.partition("=")
        named = bool(equals) and NAME.fullmatch(given) is not None and not Path(text).exists()
        folder = Path(rest if named else text)
        name = given if named else re.sub(r"[^\w.-]", "-", folder.name or folder.resolve().name)
        if name in found:
            raise ItemrecError(
                f"two runs are called {name!r}: name them, such as first={found[name]} "
                f"second={folder}"
            )
        found[name] = folder
    return found


def check_split(split: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """The shares of traffic, or an error that names the wrong one."""
    for name, share in split.items():
        if name not in names:
            raise ItemrecError(f"'split' must name runs ({', '.join(names)}), got {name!r}")
        if not 0 <= share < float("inf"):
            raise ItemrecError(f"'split' must have shares of at least 0, got {name}={share:g}")
    if split and not sum(split.values()):
        raise ItemrecError("'split' must have a share above 0")
    return dict(split)
