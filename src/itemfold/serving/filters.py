"""Filters on the recommended items: by id and by genre."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.interactions import IdMap
from itemfold.errors import ItemfoldError

ItemMask = npt.NDArray[np.bool_]


class ItemFilter:
    """Looks up items by id and by genre; genres are texts such as "Drama|Crime", or None."""

    def __init__(self, ids: IdMap, genres: npt.NDArray[Any] | None) -> None:
        self.ids, self._genres = ids, genres

    @cached_property
    def genres(self) -> tuple[str, ...]:
        """All genres, sorted."""
        texts = () if self._genres is None else self._genres
        return tuple(sorted({name for text in texts for name in _split_genres(text)}))

    def allowed(
        self,
        only: Iterable[Any] | None,
        without: Iterable[Any] | None,
        genre: str | Iterable[str] | None,
    ) -> tuple[ItemMask | None, tuple[Any, ...]]:
        """A mask of the allowed items, bool [items] (None: all), and the unknown ids."""
        if only is None and without is None and genre is None:
            return None, ()
        mask = np.ones(len(self.ids), dtype=np.bool_)
        unknown: tuple[Any, ...] = ()
        if only is not None:
            rows, unknown = self.known("only", only)
            mask[:] = False
            mask[rows] = True
            if not len(rows):
                got = ", ".join(map(repr, unknown)) or "none"
                raise ItemfoldError(
                    f"'only' must name at least one item of the training data, got {got}"
                )
        if without is not None:
            rows, others = self.known("without", without)
            mask[rows] = False
            unknown += others
        if genre is not None:
            names = [genre] if isinstance(genre, str) else as_list("genre", genre)
            any_of = np.zeros(len(self.ids), dtype=np.bool_)
            for name in names or [""]:  # an empty list is rejected like an unknown genre
                key = str(name).strip().lower()
                if key not in self._by_genre:
                    choices = ", ".join(sorted(self._by_genre))
                    raise ItemfoldError(f"'genre' must be one of {choices}, got {name!r}")
                any_of |= self._by_genre[key]
            mask &= any_of
        return mask, unknown

    def known(self, name: str, ids: Iterable[Any]) -> tuple[npt.NDArray[np.int64], tuple[Any, ...]]:
        """Rows of the known items, and the unknown ids."""
        listed = as_list(name, ids)
        rows = self.ids.index(listed)
        unknown = tuple(item for item, row in zip(listed, rows, strict=True) if row < 0)
        return rows[rows >= 0], unknown

    @cached_property
    def _by_genre(self) -> dict[str, ItemMask]:
        """A mask of the items of each genre, by its name in lower case."""
        if self._genres is None:
            raise ItemfoldError("'genre' needs genres, which the data of this run does not have")
        out: dict[str, ItemMask] = {}
        for row, text in enumerate(self._genres):
            for name in _split_genres(text):
                out.setdefault(name.lower(), np.zeros(len(self.ids), dtype=np.bool_))[row] = True
        return out


def _split_genres(text: Any) -> list[str]:
    return [name for part in str(text).split("|") if (name := part.strip())]


def as_list(name: str, values: Iterable[Any]) -> list[Any]:
    """The values of a list, array, tensor or column; raise for a text, a number or a frame.

    Iterating over "34" would give 3 and 4, over a frame its column names.
    """
    shape = getattr(values, "shape", (0,))
    if len(shape) > 1 or hasattr(values, "columns"):
        raise ItemfoldError(
            f"'{name}' must be a list, got a {type(values).__name__}; "
            "give a single column or row of it"
        )
    try:
        if isinstance(values, str | bytes) or not len(shape):
            raise TypeError
        return values.tolist() if hasattr(values, "tolist") else list(values)
    except TypeError:
        raise ItemfoldError(f"'{name}' must be a list, got {values!r}") from None
