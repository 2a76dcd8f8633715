"""The fingerprint of interactions: a hash over external ids and pairs, in bounded memory.

Every pair is hashed to 64 bits and the hashes are summed, so the order of rows does not matter. Ids
are compared as text, so 1 in a frame and "1" in a file are the same id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
CHUNK = 2**20  # pairs or ids that are hashed at once
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)


def fingerprint_of(
    user_hash: Hashes, item_hash: Hashes, pairs: Iterable[tuple[npt.NDArray[Any], ...]]
) -> str:
    """The fingerprint, 16 hex digits, from the hashes of ids and the pairs.

    Pairs come in pieces: rows of users, rows of items and, for data that comes split, the
    part of each pair (1 for a pair of the test file, or a `UserPart`).
    """
    mixed, count = _mix(item_hash), 0
    pair_sum = mixed_pair_sum = 0
    for users, items, *parts in pairs:
        held = parts[0].astype(np.uint64) if parts else np.zeros(1, np.uint64)
        pair = _mix(user_hash[users] * _ODD[0] + mixed[items] + held * _ODD[1])
        count += len(users)
        pair_sum += _sum(pair)
        mixed_pair_sum += _sum(_mix(pair))
    numbers = [count, len(user_hash), len(item_hash)]
    numbers += [_sum(s) for s in (user_hash, _mix(user_hash), item_hash, mixed)]
    numbers += [pair_sum % 2**64, mixed_pair_sum % 2**64]
    return hashlib.sha256(" ".join(map(str, numbers)).encode()).hexdigest()[:16]


def in_pieces(*arrays: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], ...]]:
    """Arrays of the same length, a chunk at a time."""
    for start in range(0, len(arrays[0]), CHUNK):
        yield tuple(array[start : start + CHUNK] for array in arrays)


def hash_ids(ids: npt.NDArray[Any]) -> Hashes:
    """FNV-1a over the code points of each id's text."""
    out = np.zeros(len(ids), np.uint64)
    for start in range(0, len(ids), CHUNK):
        part = slice(start, start + CHUNK)
        if ids.dtype.kind in "iu":
            out[part] = _fnv(ids[part].astype(np.str_))
        else:
            out[part] = _hash_texts([str(value) for value in ids[part].tolist()])
    return _mix(out)


def _hash_texts(texts: list[str]) -> Hashes:
    """Hash texts in groups of similar length, so that a long text does not widen all others."""
    sizes = np.array([len(text).bit_length() for text in texts], dtype=np.int64)
    out = np.zeros(len(texts), np.uint64)
    for size in np.unique(sizes):
        rows = np.flatnonzero(sizes == size)
        out[rows] = _fnv(np.array([texts[row] for row in rows]))
    return out


def _fnv(text: npt.NDArray[np.str_]) -> Hashes:
    points = np.ascontiguousarray(text).view(np.uint32).reshape(len(text), -1)  # zero padded
    state = np.full(len(text), 0xCBF29CE484222325, dtype=np.uint64)
    for column in points.T:
        state = np.where(column > 0, (state ^ column) * np.uint64(0x100000001B3), state)
    return state


def _sum(values: Hashes) -> int:
    return int(np.sum(values, dtype=np.uint64))


def _mix(x: Hashes) -> Hashes:
    """The finaliser of splitmix64: every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
