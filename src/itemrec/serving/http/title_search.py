"""Finding items by what people type: parts of titles, whatever their case and accents."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any


def plain(text: str) -> str:
    """Lower case, without accents.

    >>> plain("Amélie (2001)")
    'amelie (2001)'
    """
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).casefold()


class Finder:
    """Titles (ids where there are none), searched by their words.

    >>> films = Finder(["1", "2", "3"], ["The Mask", "Masked Ball", "Heat"], [1, 9, 5])
    >>> films.find("mask", 5)
    [1, 0]
    """

    def __init__(
        self, ids: Sequence[Any], titles: Sequence[str] | None, counts: Sequence[int]
    ) -> None:
        self.names = [str(item) for item in ids]
        self.ids = [plain(name) for name in self.names]
        self.texts = self.ids if titles is None else [plain(str(title)) for title in titles]
        self.counts = counts

    def find(self, query: str, limit: int) -> list[int]:
        """Rows of items that have every word of the query, best first.

        An id that is the query comes first, then titles that begin with it, then those with a word
        that begins with it, then all others; popular ones first among equals.
        """
        exact, query = query.strip(), plain(query).strip()
        words = query.split()
        found = [
            row
            for row, text in enumerate(self.texts)
            if all(word in text for word in words) or self.ids[row] == query
        ]
        found.sort(
            key=lambda row: (
                self.names[row] != exact,
                self._place(row, query),
                -self.counts[row],
                row,
            )
        )
        return found[:limit]

    def _place(self, row: int, query: str) -> int:
        text = self.texts[row]
        if self.ids[row] == query:
            return 0
        if text.startswith(query):
            return 1
        return 2 if f" {query}" in text else 3
