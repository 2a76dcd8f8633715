"""Interactions between users and items, with external ids mapped to rows."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.content_hash import fingerprint_of, hash_ids, in_pieces
from itemfold.data.id_arrays import IdSearch
from itemfold.data.splitting.user_parts import UserPart
from itemfold.errors import ItemfoldError
from itemfold.validation import positive_integer

if TYPE_CHECKING:
    from itemfold.data.columns.layout import Layout
    from itemfold.data.items.item_features import ItemFeatures
    from itemfold.data.splitting.repeats import EarlierRows

MOST_IN_DICT = 2**20  # ids; larger maps are searched without a dictionary


@dataclass(frozen=True, eq=False)
class IdMap:
    """External ids of rows 0 … n-1, unique, and sorted if `read` returned them.

    Attributes:
        ids: The external ids, int64 or str, `[n]`.

    Examples:
        >>> import numpy as np
        >>> ids = IdMap(np.array([10, 20, 30]))
        >>> ids.index(["20", 30, "nobody"]).tolist()
        [1, 2, -1]
        >>> ids.take(np.array([2, 0])).ids.tolist(), ids.external(np.array([1])).tolist()
        ([30, 10], [20])
    """

    ids: npt.NDArray[Any]  # [n]

    def __post_init__(self) -> None:
        if self.ids.ndim != 1:
            raise ItemfoldError(f"'ids' must have one dimension, got {self.ids.ndim}")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        first = ", ".join(map(repr, self.ids[:3].tolist()))
        return f"IdMap({len(self):,} ids: {first}{', …' if len(self) > 3 else ''})"

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {str(value): row for row, value in enumerate(self.ids.tolist())}

    @cached_property
    def _search(self) -> IdSearch:
        return IdSearch(self.ids)

    def index(self, external: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Rows of external ids, int64, -1 where unknown; ids are compared as text: "1" finds 1.

        So do 1.0 and, if all ids are integers, "1.0", which `read` takes for one.
        """
        if isinstance(external, np.ndarray):
            if external.dtype.kind == self.ids.dtype.kind == "i":
                return self._search.find(external)
            values = external.tolist()
        else:  # values of numpy become those of Python
            values = [
                value.item()
                if isinstance(value, np.generic | np.ndarray) and value.size == 1
                else value
                for value in external
            ]
        rows = self._rows([_text(value) for value in values])
        for at in np.flatnonzero(rows < 0).tolist():
            value = values[at]
            if isinstance(value, float) and value.is_integer():  # they were read as integers
                rows[at] = self._rows([str(int(value))])[0]
            elif self.ids.dtype.kind == "i" and (text := _text(value)).endswith(".0"):
                rows[at] = self._rows([text.removesuffix(".0")])[0]
        return rows

    def _rows(self, texts: list[str]) -> npt.NDArray[np.int64]:
        if len(self) > MOST_IN_DICT and self.ids.dtype.kind in "iuUO":
            return self._search.rows(texts)
        get = self._row_of.get
        return np.fromiter((get(text, -1) for text in texts), np.int64, len(texts))

    def take(self, rows: npt.NDArray[np.integer[Any]]) -> "IdMap":
        """The map of a selection of rows, in this order, renumbered from 0."""
        return IdMap(self.ids[rows])

    def external(self, rows: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        """External ids of rows."""
        return np.asarray(self.ids[rows])


def _text(value: Any) -> str:
    """An id as text."""
    if isinstance(value, bytes):  # bytes that are not UTF-8 match nothing
        value = value.decode(errors="surrogateescape")
    return str(value).strip()


@dataclass(frozen=True, eq=False, repr=False)
class Interactions:
    """Unique (user, item) pairs with ratings, times and titles, as `load` and `read` return them.

    Attributes:
        users: Row of each pair's user, `[n]`.
        items: Row of each pair's item, `[n]`.
        user_ids: External ids of the users.
        item_ids: External ids of the items.
        ratings: Rating of each pair, or None.
        times: Seconds since 1970 of each pair, or None.
        titles: Title of each item, "" where unknown, or None.
        genres: Genres of each item, separated by `|`, "" where unknown, or None.
        held_out: True for pairs from the data's own test file, or None.
        user_parts: `UserPart` of each pair of data that comes split by users, or None.
        weights: Positive weight of each pair, before it is divided by the mean, or None.
        weighting: How the weights were computed, "" if there are none.
        name: Name of the data in results.
        duplicates: Number of rows that were merged into others.
        source: Arguments of the `load` call that reproduces this data; empty for frames and
            matrices in memory.
        left_out: For each column that was left out ("rating", "time", "title"), the reason. A
            function that needs the column raises an error with it.
        skipped: For each reason, the number of rows that were left out.
        features: Features of items, which may include items without interactions, or None.
        remarks: Further sentences, such as on the unit of the times.
        layout: Which columns of a table were read, or None for other sources.
        earlier: Times of the earlier rows of pairs that occur several times, or None.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> len(data), data.n_users, data.n_items
        (900, 60, 80)
        >>> data.csr().shape
        (60, 80)
    """

    users: npt.NDArray[np.int32]  # [n]
    items: npt.NDArray[np.int32]  # [n]
    user_ids: IdMap
    item_ids: IdMap
    ratings: npt.NDArray[np.float32] | None = None  # [n]
    times: npt.NDArray[np.float64] | None = None  # [n]
    titles: npt.NDArray[Any] | None = None  # [n_items]
    genres: npt.NDArray[Any] | None = None  # [n_items]
    held_out: npt.NDArray[np.bool_] | None = None  # [n]
    user_parts: npt.NDArray[np.int8] | None = None  # [n]
    weights: npt.NDArray[np.float64] | None = None  # [n]
    weighting: str = ""
    name: str = "data"
    duplicates: int = 0
    source: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    features: "ItemFeatures | None" = None
    remarks: tuple[str, ...] = ()
    layout: "Layout | None" = None
    earlier: "EarlierRows | None" = None

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        counts = f"{len(self):,} interactions of {self.n_users:,} users with {self.n_items:,} items"
        return f"Interactions({self.name!r}: {counts})"

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    @property
    def n_held_out(self) -> int:
        """Number of test pairs that the data itself holds out."""
        if self.user_parts is not None:
            return int((self.user_parts == UserPart.TEST_HIDDEN).sum())
        return 0 if self.held_out is None else int(self.held_out.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on rows and columns that were skipped or changed."""
        rows = "; ".join(f"{why} ({count:,})" for why, count in self.skipped.items())
        columns = (f"The {role} column was left out: {why}." for role, why in self.left_out.items())
        left_out = [f"Rows that were left out: {rows}."] if rows else []
        return (*left_out, *columns, *self.remarks)

    def csr(self) -> sp.csr_array:
        """The pairs as a sparse matrix, without their weights.

        Returns:
            Ones at the pairs, `[n_users, n_items]`, float32, sorted indices.
        """
        ones = np.ones(len(self), dtype=np.float32)
        matrix = sp.coo_array((ones, (self.users, self.items)), shape=(self.n_users, self.n_items))
        out = sp.csr_array(matrix)
        out.sort_indices()
        return out

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits over external ids, pairs and their parts, in any order of rows.

        Ids are compared as text, so 1 in a frame and "1" in a file are the same id.

        >>> import itemfold as ir
        >>> ir.read(sp.csr_array([[1, 0], [0, 1]])).fingerprint
        'f1d0b04d53f90501'
        """
        hashes = hash_ids(self.user_ids.ids), hash_ids(self.item_ids.ids)
        parts = self.held_out if self.user_parts is None else self.user_parts
        given = () if parts is None else (parts,)
        return fingerprint_of(*hashes, in_pieces(self.users, self.items, *given))

    def where(self, keep: npt.NDArray[np.bool_]) -> "Interactions":
        """The pairs where `keep` is true; users and items without a remaining pair are removed.

        Args:
            keep: bool `[n]`.

        Returns:
            The remaining interactions, with the ids, titles and genres that occur in them.
        """
        user_rows, users = np.unique(self.users[keep], return_inverse=True)
        item_rows, items = np.unique(self.items[keep], return_inverse=True)
        return replace(
            self,
            users=users.astype(np.int32),
            items=items.astype(np.int32),
            user_ids=self.user_ids.take(user_rows),
            item_ids=self.item_ids.take(item_rows),
            ratings=None if self.ratings is None else self.ratings[keep],
            times=None if self.times is None else self.times[keep],
            titles=None if self.titles is None else self.titles[item_rows],
            genres=None if self.genres is None else self.genres[item_rows],
            held_out=None if self.held_out is None else self.held_out[keep],
            user_parts=None if self.user_parts is None else self.user_parts[keep],
            weights=None if self.weights is None else self.weights[keep],
            earlier=None if self.earlier is None else self.earlier.where(keep),
        )

    def at_least(self, rating: float) -> "Interactions":
        """The pairs with a rating of at least `rating`.

        Args:
            rating: The lowest rating to keep.

        Returns:
            The remaining interactions.

        Raises:
            ItemfoldError: The data has no ratings, or none of at least `rating`.
        """
        if isinstance(rating, bool) or not isinstance(rating, Real):
            raise ItemfoldError(f"'min_rating' must be a number, got {rating!r}")
        if self.ratings is None:
            if why := self.left_out.get("rating"):
                raise ItemfoldError(why)
            raise ItemfoldError(
                f"'min_rating' needs ratings, and '{self.name}' has none; name their column with "
                "rating=… or --rating-col"
            )
        keep = self.ratings >= rating
        if not keep.any():
            low, high = self.ratings.min(), self.ratings.max()
            raise ItemfoldError(
                f"'min_rating' must be at most {high:g}, the best rating in '{self.name}' "
                f"(they run from {low:g}), got {rating:g}"
            )
        return self.where(keep)

    def k_core(self, k: int) -> "Interactions":
        """The largest part in which every user and every item has at least `k` pairs.

        Args:
            k: Minimum number of pairs, at least 1.

        Returns:
            Interactions without the users and items that have fewer.

        Raises:
            ItemfoldError: `k` is not a positive integer, or no pair would remain.

        Examples:
            >>> import scipy.sparse as sp
            >>> import itemfold as ir
            >>> core = ir.read(sp.csr_array([[1, 1, 0], [1, 1, 0], [0, 1, 1]])).k_core(2)
            >>> core.n_users, core.n_items
            (2, 2)
        """
        positive_integer("k_core", k)
        keep = np.ones(len(self), dtype=np.bool_)
        while True:  # removing users may take items below k, and vice versa
            user_degree = np.bincount(self.users[keep], minlength=self.n_users)
            item_degree = np.bincount(self.items[keep], minlength=self.n_items)
            after = keep & (user_degree[self.users] >= k) & (item_degree[self.items] >= k)
            if (after == keep).all():
                break
            keep = after
        if not keep.any():
            raise ItemfoldError(f"'k_core' must be less than {k}: '{self.name}' has no {k}-core")
        return self.where(keep)
