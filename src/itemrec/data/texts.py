"""Arrays of texts whose memory one long text cannot multiply.

A numpy array of texts has the width of its longest one in every place, four bytes a character.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

WASTE = 8  # characters that may be stored for each character of the texts
NARROW = 50  # characters of a text that any place may have
LONGEST = 200  # characters of a text where the width must be fixed


def text_array(texts: Sequence[str]) -> npt.NDArray[Any]:
    """Texts as an array of fixed width, or of Python strings where that would waste memory.

    >>> names = ["ann"] * 20
    >>> text_array(names).dtype.kind, text_array([*names, "x" * 10**6]).dtype.kind
    ('U', 'O')
    """
    lengths = [len(text) for text in texts]
    longest = max(lengths, default=0)
    if longest <= NARROW or len(texts) * longest <= WASTE * sum(lengths):
        return np.array(texts, dtype=str)
    return np.array(texts, dtype=object)


def fixed_width(texts: Sequence[str]) -> npt.NDArray[np.str_]:
    """Texts for a file that needs a fixed width; where that wastes memory, long ones are cut.

    A cut text ends in a hash of the whole, so that different texts stay different.

    >>> fixed_width(["ann"] * 20 + ["x" * 10**6]).dtype
    dtype('<U200')
    """
    array = text_array(texts)
    return array if array.dtype.kind == "U" else np.array([_cut(text) for text in texts])


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 32]}{hashlib.sha256(text.encode()).hexdigest()[:32]}"
