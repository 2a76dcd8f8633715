"""`Split` and its parts, and the check that no held-out interaction leaks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Bools
from itemfold.data.csr import as_sorted, scatter_rows
from itemfold.data.interactions import IdMap
from itemfold.data.items.item_features import ItemFeatures
from itemfold.data.splitting.leaks import check_split
from itemfold.data.splitting.times import Times
from itemfold.data.weights import fades, fading, scaled
from itemfold.errors import ItemfoldError

Protocol = Literal["transductive", "inductive"]


@dataclass(frozen=True, repr=False)
class HeldOut:
    """Users to evaluate: the items that a model knows of each, and those it must find.

    Attributes:
        history: Items known for a user during evaluation, ones or weights.
        target: Held-out items, disjoint from `history`, ones or weights; metrics ignore the
            weights.
        users: Row of `Split.train`, -1 for a user unseen in training.
        ids: External ids.
        excluded: Items besides the history that are not ranked, ones, or None.
        repeats: Whether items of the history are ranked and may be targets again.
    """

    history: sp.csr_array  # [rows, n_items]
    target: sp.csr_array  # [rows, n_items]
    users: npt.NDArray[np.int64]  # [rows]
    ids: npt.NDArray[Any]  # [rows]
    excluded: sp.csr_array | None = None  # [rows, n_items]
    repeats: bool = False

    def take(self, rows: npt.NDArray[np.int64]) -> HeldOut:
        """The part with these rows only, in this order."""
        parts = (self.history[rows], self.target[rows], self.users[rows], self.ids[rows])
        excluded = None if self.excluded is None else self.excluded[rows]
        return HeldOut(*parts, excluded, self.repeats)

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"HeldOut({self.target.nnz:,} items of {len(self):,} users)"


@dataclass(frozen=True, repr=False)
class Joining:
    """Users whose first interaction is in the validation period; a refit gives them rows.

    Attributes:
        train: All their interactions before the test period, ones or weights.
        ids: External ids.
    """

    train: sp.csr_array  # [users, n_items]
    ids: IdMap


@dataclass(frozen=True, repr=False)
class Split:
    """Training interactions and the users held out for validation and test.

    Transductive: all parts have the same users; `valid.history` is their training row and
    `test.history` their training and validation rows. In a split by time, users who are new in a
    period have no row (`users` is -1) and are folded in with their first interactions. Inductive:
    validation and test users have no row in `train`; `history` is their fold-in part, `target`
    their fold-out part.

    Attributes:
        protocol: "transductive" or "inductive".
        train: Training interactions, ones or weights with mean 1, with sorted indices.
        valid: The validation part, or None.
        test: The test part.
        user_ids: External ids of the rows of `train`.
        item_ids: External ids of the columns.
        titles: Title of each item, or None.
        genres: Genres of each item, or None.
        dataset: Name, fingerprint and counts (users, items, interactions) of the whole data.
        settings: Everything needed to repeat the split.
        notes: Sentences about what was left out.
        source: Arguments of `load` for the data.
        features: Features of items, which may include items without interactions, or None.
        new_items: External ids of items that were held out as a whole, or None. They have no
            columns in `train`; in `test` they follow the others.
        ranks_all: Whether held-out items are ranked among all items, not only among themselves.
        joining: Users who are new in the validation period, or None.
        times: When the interactions happened, without those of hidden test targets, or None.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_users(data, seed=0)
        >>> split.protocol, split.n_users, len(split.valid), len(split.test)
        ('inductive', 48, 6, 6)
    """

    protocol: Protocol
    train: sp.csr_array  # [n_users, n_items]
    valid: HeldOut | None
    test: HeldOut
    user_ids: IdMap
    item_ids: IdMap
    titles: npt.NDArray[Any] | None  # [n_items]
    genres: npt.NDArray[Any] | None  # [n_items]
    dataset: dict[str, Any]
    settings: dict[str, Any]
    notes: tuple[str, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)
    features: ItemFeatures | None = None
    new_items: IdMap | None = None
    ranks_all: bool = False
    joining: Joining | None = None
    times: Times | None = None

    def __repr__(self) -> str:
        parts = f"train={self.train.nnz:,} interactions, valid={self.valid}, test={self.test}"
        return f"Split({self.dataset.get('name')!r}, {self.protocol}: {parts})"

    @property
    def n_users(self) -> int:
        """Number of training users."""
        return int(self.train.shape[0])

    @property
    def n_items(self) -> int:
        """Number of items that can be recommended."""
        return int(self.train.shape[1])

    def refit(self) -> Split:
        """Merge the validation interactions into the training part; test targets are unchanged.

        Users who were new in the validation period get rows after the others, so `user_ids` may
        grow; users who are new in the test period stay without one.

        Returns:
            A split without a validation part.

        Raises:
            ItemfoldError: The split is inductive: its validation users never join training.
        """
        if self.protocol == "inductive":
            raise ItemfoldError(
                "'refit' needs a transductive split: inductive validation users never join training"
            )
        if self.valid is None:
            return self
        known = np.flatnonzero(self.valid.users >= 0)
        target, users = self.valid.target[known], self.valid.users[known]
        grown = as_sorted(self.train.maximum(scatter_rows(target, users, self.n_users)))
        if self.joining is None:
            return replace(self, train=grown, valid=None)
        ids = IdMap(np.concatenate([self.user_ids.ids, self.joining.ids.ids]))
        return replace(
            self,
            train=as_sorted(sp.vstack([grown, self.joining.train])),
            valid=None,
            test=replace(self.test, users=ids.index(self.test.ids)),
            user_ids=ids,
            joining=None,
        )

    def is_new(self, part: Literal["valid", "test"] = "test") -> Bools:
        """Which held-out users have no interaction before the period of their part.

        Args:
            part: "valid" or "test".

        Returns:
            A value for each row of the part; the same before and after `refit`.

        Examples:
            >>> import itemfold as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> split = ir.split_by_time(data)
            >>> bool((split.is_new() == split.refit().is_new()).all())
            True
        """
        held = self.valid if part == "valid" else self.test
        if held is None:
            return np.zeros(0, np.bool_)
        out: Bools = held.users < 0
        if part == "test" and self.joining is not None:
            out = out & (self.joining.ids.index(held.ids) < 0)
        return out

    def recent(self, half_life: str | None) -> Split:
        """Let old interactions count less: weights halve with every half-life.

        The weights of training, of the histories and of the validation targets are multiplied by
        2^(-age / half-life), where age counts from the latest training interaction, and then
        divided by their mean over training. For all data before the test part: `refit` first.

        Args:
            half_life: A duration such as "12h", "30d" or "1y"; None or "never": nothing is changed.

        Returns:
            A split with other weights.

        Raises:
            ItemfoldError: The split has no times, or `half_life` is not a duration.

        Examples:
            >>> import itemfold as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> weights = ir.split_by_time(data).recent("30d").train.data
            >>> round(float(weights.mean()), 3), bool(weights.max() > weights.min())
            (1.0, True)
        """
        if half_life is None or not fades(half_life):
            return self
        if self.times is None:
            raise ItemfoldError(
                f"'half_life' needs timestamps, and the split of {self.dataset.get('name')!r} has "
                "none; name their column with time=… or --time-col"
            )
        times, latest = self.times, float(self.times.of(self.train, self.user_ids).max())

        def faded(matrix: sp.csr_array, ids: Any) -> sp.csr_array:
            factor = fading(np.maximum(latest - times.of(matrix, ids), 0), half_life)
            parts = matrix.data * factor, matrix.indices, matrix.indptr
            return sp.csr_array(parts, shape=matrix.shape)

        train = faded(self.train, self.user_ids)
        mean = float(train.data.mean())
        valid, test, joining = self.valid, self.test, self.joining
        if valid is not None:
            history, target = (faded(m, valid.ids) for m in (valid.history, valid.target))
            valid = replace(valid, history=scaled(history, mean), target=scaled(target, mean))
        if joining is not None:
            rows = scaled(faded(joining.train, joining.ids), mean)
            joining = replace(joining, train=rows)
        test = replace(test, history=scaled(faded(test.history, test.ids), mean))
        return replace(self, train=scaled(train, mean), valid=valid, test=test, joining=joining)

    def without_test(self) -> Split:
        """Remove the test users, to tune settings on validation alone.

        Returns:
            A split with an empty test part.

        Raises:
            ItemfoldError: The split has no validation part.
        """
        if self.valid is None:
            raise ItemfoldError(
                "'split' must hold out a validation part for the trials, got "
                f"{self.settings['strategy']!r} without one"
            )
        return replace(self, test=self.test.take(np.empty(0, np.int64)))

    def among_all_items(self) -> Split:
        """Rank the held-out items of `split_items` among all items, not only among themselves.

        Returns:
            A split with the same parts that `evaluate` ranks differently.

        Raises:
            ItemfoldError: No items were held out.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_items(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> run = ir.train(split, ir.models.EASE())
            >>> among_new = ir.evaluate(run, split, metrics=["recall@20"])
            >>> among_all = ir.evaluate(run, split.among_all_items(), metrics=["recall@20"])
            >>> among_all.metrics["recall@20"] < among_new.metrics["recall@20"]
            True
        """
        if self.new_items is None:
            raise ItemfoldError("'among_all_items' needs a split of `split_items`")
        return replace(self, ranks_all=True)

    def check(self) -> None:
        """Check that no held-out interaction reaches the graph, the sampler or model selection.

        Raises:
            LeakError: One does. The message names the user and the item.
            ItemfoldError: Parts do not fit together, or have a user twice.

        Examples:
            >>> from dataclasses import replace
            >>> import itemfold as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> split = ir.split_interactions(data)
            >>> replace(split, train=split.train + split.test.target).check()
            Traceback (most recent call last):
            itemfold.errors.LeakError: test target ... of user ... is also in training (...)
        """
        check_split(self)
