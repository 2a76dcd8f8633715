"""The user splits of Mult-VAE, made from the raw files of ML-20M, Netflix and MSD.

Liang et al., "Variational Autoencoders for Collaborative Filtering", WWW 2018. Steps, random
numbers and their order are those of the script published for ML-20M: interactions are filtered,
users are permuted, the last ones are held out for validation and test, items without a training
interaction are removed, and a fifth of each held-out user's items is hidden.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Ints
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.readers.delimited import read_delimited
from itemfold.data.splitting.user_parts import PAIRS
from itemfold.errors import ItemfoldError

SEED = 98765
SHARE_HIDDEN = 0.2
MIN_TO_HIDE = 5  # users with fewer items have no hidden ones


@dataclass(frozen=True)
class Recipe:
    """The rules for making a user split from raw files.

    Attributes:
        files: What to put into the folder, as messages name it.
        pattern: Pattern of these files.
        read: Reads the positive interactions of a folder: ids of users and items.
        held_out: Number of users for validation, and the same number for test.
        min_per_user: Users with fewer items are removed.
        min_per_item: Items with fewer users are removed first.
    """

    files: str
    pattern: str
    read: Callable[[list[Path]], tuple[npt.NDArray[Any], npt.NDArray[Any]]]
    held_out: int
    min_per_user: int = 5
    min_per_item: int = 0

    def raw_files(self, folder: Path) -> list[Path]:
        """The raw files in a folder, sorted; empty if there are none."""
        return sorted(folder.glob(self.pattern))

    def table(self, folder: Path) -> RawTable:
        """The split of the raw files in a folder."""
        users, items = self.read(self.raw_files(folder))
        return split_as_mult_vae(
            users, items, self.held_out, self.min_per_user, self.min_per_item, str(folder)
        )


def split_as_mult_vae(
    users: npt.NDArray[Any],
    items: npt.NDArray[Any],
    held_out: int,
    min_per_user: int = 5,
    min_per_item: int = 0,
    place: str = "the data",
) -> RawTable:
    """Split interactions as the published script does; rows are in the order of the file."""
    item_codes = np.unique(items, return_inverse=True)[1]
    keep = np.bincount(item_codes)[item_codes] >= min_per_item
    users, items = users[keep], items[keep]
    user_codes = np.unique(users, return_inverse=True)[1]
    keep = np.bincount(user_codes)[user_codes] >= min_per_user
    users, items = users[keep], items[keep]
    ids, codes = np.unique(users, return_inverse=True)
    if len(ids) <= 2 * held_out:
        raise ItemfoldError(
            f"{place}: expected more than {2 * held_out:,} users with at least {min_per_user} "
            f"items, found {len(ids):,}; put the complete file there"
        )
    order = np.random.RandomState(SEED).permutation(len(ids))
    group = np.zeros(len(ids), np.int8)
    group[order[len(ids) - 2 * held_out :]] = 1
    group[order[len(ids) - held_out :]] = 2
    row_group = group[codes]
    known, item_codes = np.unique(items, return_inverse=True)
    trained = np.zeros(len(known), np.bool_)
    trained[item_codes[row_group == 0]] = True
    part = np.zeros(len(users), np.int8)
    keep = trained[item_codes]
    for number, (shown, hidden) in enumerate(PAIRS, start=1):
        rows = np.flatnonzero((row_group == number) & keep)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        part[rows] = np.where(_hidden(codes[rows]), hidden, shown)
    return RawTable(users[keep], items[keep], part=part[keep])


def _hidden(users: Ints) -> Bools:
    """A fifth of each user's rows, which are together, drawn as the published script draws them."""
    rng = np.random.RandomState(SEED)
    out = np.zeros(len(users), np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], users[1:] != users[:-1])))
    for start, end in zip(starts, [*starts[1:], len(users)], strict=True):
        count = int(end - start)
        if count >= MIN_TO_HIDE:
            size = int(SHARE_HIDDEN * count)
            out[start + rng.choice(count, size=size, replace=False)] = True
    return out


def read_ml_20m(files: list[Path]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Ratings above 3.5 of ratings.csv."""
    table = read_delimited(files[0], {"user": "userId", "item": "movieId", "rating": "rating"})
    assert table.rating is not None
    keep = table.rating > 3.5
    return table.user[keep], table.item[keep]


def read_netflix(files: list[Path]) -> tuple[Ints, Ints]:
    """Ratings of at least 4: a line "film:", then lines "user,rating,date"."""
    users, items = array("q"), array("q")
    film = -1
    for path in files:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                fields = line.strip().split(b",")
                try:
                    if len(fields) == 1 and fields[0].endswith(b":"):
                        film = int(fields[0][:-1])
                    elif len(fields) == 3 and film >= 0:
                        if int(fields[1]) >= 4:
                            users.append(int(fields[0]))
                            items.append(film)
                    elif fields != [b""]:
                        raise ValueError
                except ValueError:
                    raise ItemfoldError(
                        f"{path}, line {number}: expected 'film:' or 'user,rating,date', got "
                        f"{line[:60].decode(errors='replace').strip()!r}"
                    ) from None
    return np.frombuffer(users, np.int64), np.frombuffer(items, np.int64)


def read_msd(files: list[Path]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Every play of train_triplets.txt: lines "user song plays", separated by tabs."""
    users, songs = array("q"), array("q")
    user_codes: dict[bytes, int] = {}
    song_codes: dict[bytes, int] = {}
    for path in files:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                fields = line.split(b"\t")
                if len(fields) != 3:
                    raise ItemfoldError(
                        f"{path}, line {number}: expected user, song and plays separated by tabs, "
                        f"got {line[:60].decode(errors='replace').strip()!r}"
                    )
                users.append(user_codes.setdefault(fields[0], len(user_codes)))
                songs.append(song_codes.setdefault(fields[1], len(song_codes)))

    def texts(codes: array[int], known: dict[bytes, int]) -> npt.NDArray[Any]:
        names = np.array([name.decode() for name in known], dtype=object)
        return np.asarray(names[np.frombuffer(codes, np.int64)])

    return texts(users, user_codes), texts(songs, song_codes)


ML_20M = Recipe("ratings.csv", "ratings.csv", read_ml_20m, held_out=10_000)
NETFLIX = Recipe(
    "combined_data_1.txt to combined_data_4.txt",
    "combined_data_*.txt",
    read_netflix,
    held_out=40_000,
)
MSD = Recipe(
    "train_triplets.txt",
    "train_triplets.txt",
    read_msd,
    held_out=50_000,
    min_per_user=20,
    min_per_item=200,
)
