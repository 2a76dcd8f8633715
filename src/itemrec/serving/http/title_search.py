"""Search for items by parts of their titles, whatever the case and the accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any


def normalise(text: str) -> str:
    """Lower case, without accents.

    >>> normalise("Amélie (2001)")
    'amelie (2001)'
    """
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).casefold()


class TitleSearch:
    """The titles of a catalogue (ids if there are none), searched by their words.

    >>> films = TitleSearch(["1", "2", "3"], ["The Mask", "Masked Ball", "Heat"], [1, 9, 5])
    >>> films.find("mask", 5)
    [1, 0]
    """

    def __init__(
        self, ids: Sequence[Any], titles: Sequence[str] | None, counts: Sequence[int]
    ) -> None:
        self.names = [str(item) for item in ids]
        self.ids = [normalise(name) for name in self.names]
        self.texts = self.ids if titles is None else [normalise(str(title)) for title in titles]
        self.counts = counts

    def find(self, query: str, limit: int) -> list[int]:
        """Rows of the items that contain every word of the query, best match first.

        An item whose id equals the query comes first, then titles that start with it, then titles
        with a word that starts with it, then all others; ties are sorted by popularity.
        """
        exact, query = query.strip(), normalise(query).strip()
        words = query.split()
        found = [
            row
            for row, text in enumerate(self.texts)
            if all(word in text for word in words) or self.ids[row] == query
        ]
        found.sort(
            key=lambda row: (
                self.names[row] != exact,
                self._match_level(row, query),
                -self.counts[row],
                row,
            )
        )
        return found[:limit]

    def _match_level(self, row: int, query: str) -> int:
        text = self.texts[row]
        if self.ids[row] == query:
            return 0
        if text.startswith(query):
            return 1
        return 2 if f" {query}" in text else 3
