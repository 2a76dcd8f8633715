"""The items of a served run: title search, and the histories of known users."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError
from itemrec.serving.filters import ItemFilter
from itemrec.serving.http.schemas import Item
from itemrec.serving.recommender import Recommender


class ServedCatalogue:
    """Ids, titles, genres, images and popularity of the items of a run."""

    def __init__(self, recommender: Recommender) -> None:
        self.run, items = recommender.run, recommender.items
        self.image_of, self.n_known = recommender.image_of, recommender.n_known
        self.ids = items.ids.ids.tolist()
        counts = np.bincount(self.run.train.indices, minlength=len(self.ids))
        none = [""] * len(self.ids)
        self.titles = none if items.titles is None else items.titles.tolist()
        self.genres = none if items.genres is None else items.genres.tolist()
        titles = None if items.titles is None else self.titles
        self.search = TitleSearch(self.ids, titles, counts.tolist())
        self.filter = ItemFilter(items.ids, items.genres)

    def item(self, row: int) -> Item:
        """The item in a row."""
        return Item(
            item=self.ids[row],
            title=self.titles[row],
            genres=self.genres[row],
            image=self.image_of(row),
            is_new=row >= self.n_known,
        )

    def find(
        self, query: str, limit: int, genre: str | None = None, *, only_new: bool = False
    ) -> list[Item]:
        """Items by a part of their title or by id, best match first."""
        allowed, _ = self.filter.allowed(None, None, genre)
        if only_new:
            is_new = np.arange(len(self.ids)) >= self.n_known
            allowed = is_new if allowed is None else allowed & is_new
        return [self.item(row) for row in self.search.find(query, limit, allowed)]

    def history(self, user: Any) -> npt.NDArray[np.int32]:
        """Rows of the items in the training history of a known user."""
        row = int(self.run.user_ids.index([user])[0])
        if row < 0:
            raise ItemrecError(f"'user' must be a user of the training data, got {user!r}")
        start, end = self.run.train.indptr[row : row + 2]
        rows: npt.NDArray[np.int32] = self.run.train.indices[start:end]
        return rows


class TitleSearch:
    """Search titles (ids if there are none) by words, ignoring case and accents.

    All titles are lines of one string, the most popular first: `str.find` does the work and stops
    as soon as enough lines are found.

    >>> films = TitleSearch(["1", "2", "3"], ["The Mask", "Masked Ball", "Heat"], [1, 9, 5])
    >>> films.find("mask", 5)
    [1, 0]
    """

    def __init__(
        self, ids: Sequence[Any], titles: Sequence[str] | None, counts: Sequence[int]
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
