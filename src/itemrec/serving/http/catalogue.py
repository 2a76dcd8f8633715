"""The items of a run as the service shows them: by search, by genre, by a user's history."""

from __future__ import annotations

from typing import Any

import numpy as np

from itemrec.errors import ItemrecError
from itemrec.serving.filters import ItemFilter
from itemrec.serving.http.schemas import Item
from itemrec.serving.http.title_search import TitleSearch
from itemrec.serving.recommender import Recommender


class Catalogue:
    """Ids, titles, genres, pictures and popularity of the items of a run."""

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
        """Items by a part of their title or by id, the best match first."""
        allowed, _ = self.filter.allowed(None, None, genre)
        if only_new:
            is_new = np.arange(len(self.ids)) >= self.n_known
            allowed = is_new if allowed is None else allowed & is_new
        return [self.item(row) for row in self.search.find(query, limit, allowed)]

    def history(self, user: Any) -> list[Item]:
        """The items that a known user was trained on."""
        return [self.item(row) for row in self.run.train.indices[self._part(user)].tolist()]

    def history_length(self, user: Any) -> int:
        """The number of items that a known user was trained on."""
        part = self._part(user)
        return int(part.stop - part.start)

    def _part(self, user: Any) -> slice:
        row = int(self.run.user_ids.index([user])[0])
        if row < 0:
            raise ItemrecError(f"'user' must be a user of the training data, got {user!r}")
        start, end = self.run.train.indptr[row : row + 2]
        return slice(int(start), int(end))
