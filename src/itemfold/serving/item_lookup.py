"""Lookup of items by an id, a title, or a part of a title.

Ids that are words, such as names of games, are their own titles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from itemfold.errors import ItemfoldError
from itemfold.serving.recommender import Recommender
from itemfold.serving.title_search import TitleSearch, search_key

LISTED = 8  # candidates in an error
WORDY = 0.25  # share of ids of several words from which ids are names
SUFFIX = re.compile(r"\s*\([^()]*\)$")  # such as the year of a film


@dataclass(frozen=True)
class FoundItem:
    """An item of a search, and its number of interactions in training."""

    item: Any
    title: str
    genres: str
    interactions: int


@dataclass
class ItemLookup:
    """Finds the items of a recommender; `notes` reports which titles matched which items."""

    recommender: Recommender
    notes: list[str] = field(default_factory=list)

    @cached_property
    def search(self) -> TitleSearch:
        """The search of titles, or of ids if there are no titles."""
        items = self.recommender.items
        return TitleSearch(items.ids.ids.tolist(), items.titles, self._counts.tolist())

    @cached_property
    def _counts(self) -> Any:
        interactions = self.recommender.interactions
        return np.bincount(interactions.indices, minlength=self.recommender.n_items)

    def find(self, query: str, limit: int) -> list[FoundItem]:
        """The items that contain every word of a query, best match first."""
        described = self.recommender.presented.describe
        out = []
        for row in self.search.find(query, limit):
            about = described(row)
            count = int(self._counts[row])
            out.append(FoundItem(about["item"], about["title"], about["genres"], count))
        return out

    def resolve(self, option: str, texts: Iterable[str]) -> list[Any]:
        """The id of each text: a known id, a whole title, or a part of one title only.

        Texts that match nothing are returned as they are; `Recommender` lists them as unknown.
        """
        return [self._resolve(option, text) for text in texts]

    def is_title(self, text: str) -> bool:
        """Whether a text as a whole is the title of an item."""
        return bool(self._whole(text))

    @cached_property
    def _titles(self) -> Sequence[str]:
        """The title of each item, or its id where ids are names; empty if there are neither."""
        items = self.recommender.items
        if items.titles is not None:
            return list(map(str, items.titles))
        ids = list(map(str, items.ids.ids.tolist()))
        return ids if sum(" " in name.strip() for name in ids) > WORDY * len(ids) else ()

    def _resolve(self, option: str, text: str) -> Any:
        ids = self.recommender.items.ids
        if ids.index([text])[0] >= 0 or not self._titles:
            return text
        rows = self._whole(text)
        if not rows and not text.strip().isdecimal():  # a number is an id, not a part of a title
            rows = self.search.find(text, LISTED + 1)
        if not rows:
            return text
        found = [self._named(row) for row in rows[:LISTED]]
        if len(rows) > 1:
            more = ", …" if len(rows) > LISTED else ""
            raise ItemfoldError(
                f"'{option}' must name one item, and {text!r} is in several titles: "
                f"{', '.join(found)}{more}; give an id or the whole title"
            )
        self.notes.append(f"{text!r} is {found[0]}")
        return ids.ids[[rows[0]]].tolist()[0]

    def _whole(self, text: str) -> list[int]:
        """Rows whose title is this text, or becomes it without a last part in brackets."""
        key = " ".join(search_key(text).split())
        return self._rows_of_title.get(key) or self._rows_of_short_title.get(key, [])

    @cached_property
    def _rows_of_title(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for row, title in enumerate(self._titles):
            if key := " ".join(search_key(title).split()):
                out.setdefault(key, []).append(row)
        return out

    @cached_property
    def _rows_of_short_title(self) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {}
        for key, rows in self._rows_of_title.items():
            if short := SUFFIX.sub("", key):
                out.setdefault(short, []).extend(rows)
        return out

    def _named(self, row: int) -> str:
        about = self.recommender.presented.describe(row)
        return f"{about['item']} {about['title']!r}" if about["title"] else str(about["item"])
