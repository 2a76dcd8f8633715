"""Rows of ids by binary search: among many millions a dictionary would take gigabytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class IdSearch:
    """Finds ids, int64 or text, that need not be sorted."""

    def __init__(self, ids: npt.NDArray[Any]) -> None:
        is_sorted = bool((ids[1:] > ids[:-1]).all())
        self.order = None if is_sorted else np.argsort(ids, kind="stable")
        self.ids = ids if self.order is None else ids[self.order]

    def rows(self, texts: list[str]) -> npt.NDArray[np.int64]:
        """Rows of ids by their text, -1 where unknown.

        >>> IdSearch(np.array([30, 7, 20])).rows(["7", "20", "007", "x"]).tolist()
        [1, 2, -1, -1]
        """
        out = np.full(len(texts), -1, dtype=np.int64)
        if self.ids.dtype.kind in "iu":
            fits = [at for at, text in enumerate(texts) if _is_int64(text)]
            keys = np.array([int(texts[at]) for at in fits], dtype=np.int64)
        else:  # a longer key would widen all ids, and numpy does not see a NUL at the end
            width = self.ids.dtype.itemsize // 4 if self.ids.dtype.kind == "U" else None
            fits = [
                at
                for at, text in enumerate(texts)
                if (width is None or len(text) <= width) and "\0" not in text
            ]
            keys = np.array([texts[at] for at in fits], dtype=self.ids.dtype)
        out[fits] = self.find(keys)
        return out

    def find(self, keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Rows of ids of the same type, -1 where unknown."""
        if not len(self.ids):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.searchsorted(self.ids, keys)
        at[at == len(self.ids)] = 0
        rows = at if self.order is None else self.order[at]
        return np.where(self.ids[at] == keys, rows, -1)


def _is_int64(text: str) -> bool:
    """Whether a text is an integer as Python writes it, of 64 bits."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return False
    return str(int(text)) == text and -(2**63) <= int(text) < 2**63
