"""Title search: by words, ignoring case and accents."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


class TitleSearch:
    """The titles of a catalogue, or its ids if there are no titles.

    All titles are lines of one string, the most popular first: `str.find` does the work and stops
    as soon as enough lines are found.

    >>> films = TitleSearch(["1", "2", "3"], ["The Mask", "Masked Ball", "Heat"], [1, 9, 5])
    >>> films.find("mask", 5)
    [1, 0]
    """

    def __init__(
        self, ids: Sequence[Any], titles: Iterable[str] | None, counts: Sequence[int]
    ) -> None:
        names = [str(item) for item in ids]
        self.row_of = {name: row for row, name in enumerate(names)}
        self.rows_of_id: dict[str, list[int]] = {}  # ids that differ only in case
        for row, name in enumerate(names):
            self.rows_of_id.setdefault(search_key(name).strip(), []).append(row)
        order = np.argsort(-np.asarray(counts), kind="stable")
        self.order: list[int] = order.tolist()  # row of each line
        self.popularity = np.argsort(order).tolist()  # line of each row
        texts = names if titles is None else [str(title) for title in titles]
        lines = [search_key(texts[row]).replace("\n", " ") for row in self.order]
        self.text = "\n".join(["", *lines, ""])  # each line between two line ends
        ends = np.cumsum([0, *(len(line) + 1 for line in lines)])
        self.starts: list[int] = ends.tolist()  # of the line end before each line

    def find(
        self, query: str, limit: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> list[int]:
        """Rows of the allowed items that contain every word of the query, best match first.

        The order is: an item whose id equals the query, titles that start with it, titles with a
        word that starts with it, all others. Ties are sorted by popularity.
        """
        found: dict[int, None] = {}  # in the order of the match
        for row in self._candidates(query.strip(), search_key(query).split()):
            if allowed is None or allowed[row]:
                found[row] = None
            if len(found) == limit:
                break
        return list(found)

    def _candidates(self, exact: str, words: list[str]) -> Iterator[int]:
        phrase = " ".join(words)
        if exact in self.row_of:
            yield self.row_of[exact]
        yield from sorted(self.rows_of_id.get(phrase, ()), key=self.popularity.__getitem__)
        yield from (row for row, _ in self._lines_with(f"\n{phrase}"))
        if not words:
            return
        yield from (row for row, _ in self._lines_with(f" {phrase}"))
        rarest = min(words, key=self.text.count) if len(words) > 1 else words[0]
        others = [word for word in words if word != rarest]
        for row, line in self._lines_with(rarest):
            if all(word in line for word in others):
                yield row

    def _lines_with(self, part: str) -> Iterator[tuple[int, str]]:
        """Row and text of each line that contains a string, the most popular first."""
        place = self.text.find(part)
        while 0 <= place < len(self.text) - 1:
            line = bisect_right(self.starts, place) - 1
            start, end = self.starts[line], self.starts[line + 1]
            yield self.order[line], self.text[start:end]
            place = self.text.find(part, end)


def search_key(text: str) -> str:
    """Text in lower case, without accents.

    >>> search_key("Amélie (2001)")
    'amelie (2001)'
    """
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c)).casefold()
