"""The runs of a service: selection by request, and replacement."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np

from itemfold.errors import ItemfoldError, UnknownIdError
from itemfold.serving.history import trained_history
from itemfold.serving.http.api.schemas import Answer, Item
from itemfold.serving.recommender import Recommender
from itemfold.serving.title_search import TitleSearch
from itemfold.training.fingerprint import fingerprint

RUN_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class ServedRun:
    """One version of a run; a newer version replaces it as a whole.

    Attributes:
        name: Its name in requests.
        recommender: Its recommender.
        search: The search of its titles.
        fingerprint: A hash of everything that its answers depend on.
        since: When it was loaded, UTC.
    """

    name: str
    recommender: Recommender
    search: TitleSearch
    fingerprint: str
    since: str

    @classmethod
    def of(cls, name: str, recommender: Recommender) -> Self:
        """A run that is served from now on."""
        run, items = recommender.run, recommender.items
        counts = np.bincount(run.interactions.indices, minlength=recommender.n_items)
        search = TitleSearch(items.ids.ids.tolist(), items.titles, counts.tolist())
        digest = fingerprint(run, recommender.item_table, items.features)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(name, recommender, search, digest, now)

    def find(
        self, query: str, limit: int, genre: str | None = None, *, only_new: bool = False
    ) -> list[Item]:
        """Items by a part of their title or by id, best match first."""
        allowed, _ = self.recommender.filter.allowed(None, None, genre)
        if only_new:
            is_new = np.arange(self.recommender.n_items) >= self.recommender.n_known
            allowed = is_new if allowed is None else allowed & is_new
        return self.items(self.search.find(query, limit, allowed))

    def history(self, user: Any) -> list[int]:
        """Rows of the items in the training history of a known user."""
        users, train = self.recommender.run.user_ids, self.recommender.interactions
        rows: list[int] = trained_history(user, None, users, train).items.tolist()
        return rows

    def items(self, rows: Iterable[int]) -> list[Item]:
        """The items in these rows."""
        return [Item(**self.recommender.presented.describe(row)) for row in rows]

    def answer(self, arguments: Mapping[str, Any]) -> Answer:
        """The list of `Recommender.recommend` for these arguments, signed by this run."""
        picks = self.recommender.recommend(**arguments)
        return Answer(**vars(picks), run=self.name, run_fingerprint=self.fingerprint)


class ServedRuns:
    """The runs of a service by name; the first is the default.

    Args:
        recommenders: A recommender for each name.
        split: Traffic weights of some names, relative to their sum.
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

    def choose(self, name: str | None, assignment_key: Any) -> ServedRun:
        """The run with this name; without a name, the one that the traffic split assigns.

        Args:
            name: The name of a run, or None.
            assignment_key: Identifies a user: the same key always gets the same run.

        Raises:
            UnknownIdError: No run has this name.
        """
        if name is None:
            name = self._assigned(assignment_key) if self.split else self.names[0]
        if name not in self._served:
            known = ", ".join(self._served)
            raise UnknownIdError(f"'run' must be one of {known}, got {name!r}")
        return self._served[name]

    def traffic(self, name: str) -> float:
        """The fraction of the users whose requests a run answers if they name no run."""
        if not self.split:
            return float(name == self.names[0])
        return self.split.get(name, 0.0) / sum(self.split.values())

    def replace(self, run: ServedRun) -> None:
        """Serve this run from now on; requests in progress keep the previous one."""
        self._served[run.name] = run

    def _assigned(self, assignment_key: Any) -> str:
        digest = hashlib.sha256(str(assignment_key).encode(errors="surrogatepass")).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64 * sum(self.split.values())
        for name, weight in self.split.items():
            place -= weight
            if place < 0:
                return name
        return name  # the sum was rounded


def run_folders(runs: Sequence[str]) -> dict[str, Path]:
    """The folder of each name, from arguments such as ``runs/a`` or ``name=runs/a``.

    >>> run_folders(["runs/bpr", "new=runs/item"])
    {'bpr': PosixPath('runs/bpr'), 'new': PosixPath('runs/item')}
    """
    found: dict[str, Path] = {}
    for text in runs:
        given, equals, rest = text.partition("=")
        named = bool(equals) and RUN_NAME.fullmatch(given) is not None and not Path(text).exists()
        folder = Path(rest if named else text)
        name = given if named else re.sub(r"[^\w.-]", "-", folder.name or folder.resolve().name)
        if name in found:
            raise ItemfoldError(
                f"two runs are called {name!r}: name them, such as first={found[name]} "
                f"second={folder}"
            )
        found[name] = folder
    return found


def check_split(split: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """The traffic weights; raise if one is invalid."""
    for name, weight in split.items():
        if name not in names:
            raise ItemfoldError(f"'split' must name runs ({', '.join(names)}), got {name!r}")
        if not 0 <= weight < float("inf"):
            raise ItemfoldError(f"'split' must have shares of at least 0, got {name}={weight:g}")
    if split and not sum(split.values()):
        raise ItemfoldError("'split' must have a share above 0")
    return dict(split)
