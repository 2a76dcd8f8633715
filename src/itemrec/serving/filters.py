"""Which items may be recommended: by id and by genre."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.interactions import IdMap
from itemrec.errors import ItemrecError

Mask = npt.NDArray[np.bool_]


class ItemFilter:
    """The items of a catalogue, by their ids and genres."""

    def __init__(self, ids: IdMap, genres: npt.NDArray[Any] | None) -> None:
        self.ids, self.texts = ids, genres

    @cached_property
    def genres(self) -> tuple[str, ...]:
        """All genres, sorted."""
        texts = () if self.texts is None else self.texts
        return tuple(sorted({name for text in texts for name in _names(text)}))

    def allowed(
        self,
        only: Iterable[Any] | None,
        without: Iterable[Any] | None,
        genre: str | Iterable[str] | None,
    ) -> tuple[Mask | None, tuple[Any, ...]]:
        """Which items may be recommended, bool [items] (None: all), and the unknown ids."""
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
                raise ItemrecError(
                    f"'only' must name at least one item of the training data, got {got}"
                )
        if without is not None:
            rows, others = self.known("without", without)
            mask[rows] = False
            unknown += others
        if genre is not None:
            mask &= self._of_genres([genre] if isinstance(genre, str) else as_list("genre", genre))
        return mask, unknown

    def known(self, name: str, ids: Iterable[Any]) -> tuple[npt.NDArray[np.int64], tuple[Any, ...]]:
        """Rows of the items that the model knows, and the ids that it does not."""
        listed = as_list(name, ids)
        rows = self.ids.index(listed)
        unknown = tuple(item for item, row in zip(listed, rows, strict=True) if row < 0)
        return rows[rows >= 0], unknown

    def _of_genres(self, wanted: list[Any]) -> Mask:
        """Items with at least one of the genres."""
        any_of = np.zeros(len(self.ids), dtype=np.bool_)
        for name in wanted or [""]:  # an empty list is rejected like an unknown genre
            key = str(name).strip().lower()
            if key not in self._by_genre:
                choices = ", ".join(sorted(self._by_genre))
                raise ItemrecError(f"'genre' must be one of {choices}, got {name!r}")
            any_of |= self._by_genre[key]
        return any_of

    @cached_property
    def _by_genre(self) -> dict[str, Mask]:
        """The items of each genre (in lower case), bool [items]."""
        if self.texts is None:
            raise ItemrecError("'genre' cannot be used: the data of this run has no genres")
        out: dict[str, Mask] = {}
        for row, text in enumerate(self.texts):
            for name in _names(text):
                out.setdefault(name.lower(), np.zeros(len(self.ids), dtype=np.bool_))[row] = True
        return out


def _names(text: Any) -> list[str]:
    return [name for part in str(text).split("|") if (name := part.strip())]


def as_list(name: str, values: Iterable[Any]) -> list[Any]:
    """A list of any iterable except text: "34" would be read as 3 and 4.

    Arrays, tensors and columns of a frame are lists of their values. A frame is not: iterating over
    it gives its column names, which would be taken for unknown ids.
    """
    shape = getattr(values, "shape", (0,))
    if isinstance(values, str | bytes) or len(shape) != 1 or hasattr(values, "columns"):
        raise ItemrecError(f"'{name}' must be a list, got {_described(values, shape)}")
    try:
        return values.tolist() if hasattr(values, "tolist") else list(values)
    except TypeError:  # a number
        raise ItemrecError(f"'{name}' must be a list, got {values!r}") from None


def _described(values: Any, shape: Any) -> str:
    if len(shape) < 2 and not hasattr(values, "columns"):
        return repr(values)
    return f"a {type(values).__name__}; give a single column or row of it"
