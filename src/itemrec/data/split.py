"""The parts of a split, and the check that they do not overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.data.csr import as_sorted, scatter_rows
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import ItemFeatures
from itemrec.errors import ItemrecError, LeakError

Protocol = Literal["transductive", "inductive"]


@dataclass(frozen=True, repr=False)
class HeldOut:
    """Users to evaluate: the items a model may use for each, and those it must find.

    Attributes:
        history: Items known for a user during evaluation, ones or weights `[rows, n_items]`.
        target: Held-out items, disjoint from `history`, ones or weights `[rows, n_items]`;
            metrics do not use the weights.
        users: Row of `Split.train`, -1 for a user unseen in training, `[rows]`.
        ids: External ids, `[rows]`.
        excluded: Further items that are not ranked, though a model does not know them, ones
            `[rows, n_items]`; None: none but the history.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> len(split.test), split.test.users.max().item()  # six users, none of them in training
        (6, -1)
    """

    history: sp.csr_array  # [rows, n_items]: items known for a user during evaluation
    target: sp.csr_array  # [rows, n_items]: held-out items, disjoint from history
    users: npt.NDArray[np.int64]  # [rows] row of Split.train, -1 for a user unseen in training
    ids: npt.NDArray[Any]  # [rows] external ids
    excluded: sp.csr_array | None = None  # [rows, n_items] ones: further items that are not ranked

    def take(self, rows: npt.NDArray[np.int64]) -> HeldOut:
        """Some of the users.

        Args:
            rows: Which ones, in this order.

        Returns:
            A part with these rows only.

        Examples:
            >>> import numpy as np
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> len(split.test.take(np.array([0, 2])))
            2
        """
        parts = (self.history[rows], self.target[rows], self.users[rows], self.ids[rows])
        return HeldOut(*parts, None if self.excluded is None else self.excluded[rows])

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"HeldOut({self.target.nnz:,} items of {len(self):,} users)"


@dataclass(frozen=True, repr=False)
class Split:
    """Training interactions and the users held out for validation and test.

    Transductive: all parts have the same users; `valid.history` is their training row and
    `test.history` their training and validation rows. Inductive: validation and test users have
    no row in `train`; `history` is their fold-in part, `target` their fold-out part.

    Attributes:
        protocol: "transductive" or "inductive".
        train: Training interactions, ones or weights with mean 1, `[n_users, n_items]`.
        valid: The validation part, or None.
        test: The test part.
        user_ids: External ids of the rows of `train`.
        item_ids: External ids of the columns.
        titles: Title of each item, or None.
        genres: Genres of each item, or None.
        dataset: Name, fingerprint and counts of the whole data.
        settings: Everything needed to repeat the split.
        notes: Sentences about what was left out.
        source: Arguments of `load` for the data.
        features: Features of items, also of those without interactions, or None.
        new_items: External ids of items that were held out as a whole, or None. They are no
            columns of `train`; in `test` they follow the others.
        ranks_all: Whether held-out items are ranked among all items, not only among themselves.

    Examples:
        >>> import itemrec as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_users(data, seed=0)
        >>> split.protocol, split.n_users, len(split.valid), len(split.test)
        ('inductive', 48, 6, 6)
    """

    protocol: Protocol
    train: sp.csr_array  # [n_users, n_items] ones or weights, sorted indices
    valid: HeldOut | None
    test: HeldOut
    user_ids: IdMap  # of the rows of train
    item_ids: IdMap  # of the columns
    titles: npt.NDArray[Any] | None  # [n_items]
    genres: npt.NDArray[Any] | None  # [n_items]
    dataset: dict[str, Any]  # name, fingerprint, users, items, interactions of the whole data
    settings: dict[str, Any]  # everything needed to repeat the split
    notes: tuple[str, ...] = ()  # sentences about what was left out
    source: dict[str, Any] = field(default_factory=dict)  # arguments of `load` for the data
    features: ItemFeatures | None = None
    new_items: IdMap | None = None
    ranks_all: bool = False

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
        """Merge the validation interactions into the training part; the test part is unchanged.

        Returns:
            A split without a validation part.

        Raises:
            ItemrecError: The split is inductive: its validation users never join training.

        Examples:
            >>> import itemrec as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> split = ir.split_interactions(data)
            >>> split.refit().train.nnz == split.train.nnz + split.valid.target.nnz
            True
        """
        if self.protocol == "inductive":
            raise ItemrecError(
                "'refit' is for the transductive protocol: inductive validation users are a "
                "separate group and never join training"
            )
        if self.valid is None:
            return self
        grown = self.train + scatter_rows(self.valid.target, self.valid.users, self.n_users)
        return replace(self, train=as_sorted(grown), valid=None)

    def without_test(self) -> Split:
        """The split without its test users, for trials of settings, which are chosen on validation.

        Returns:
            A split with an empty test part.

        Raises:
            ItemrecError: The split has no validation part.

        Examples:
            >>> import itemrec as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> len(ir.split_users(data).without_test().test)
            0
        """
        if self.valid is None:
            raise ItemrecError(
                "'split' must hold out a validation part for the trials, got "
                f"{self.settings['strategy']!r} without one"
            )
        return replace(self, test=self.test.take(np.empty(0, np.int64)))

    def among_all_items(self) -> Split:
        """The split of `split_items`, with held-out items that are ranked among all items.

        Returns:
            A split that `evaluate` ranks differently; its parts are the same.

        Raises:
            ItemrecError: No items were held out.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_items(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> run = ir.train(split, ir.models.EASE())
            >>> among_new = ir.evaluate(run, split, metrics=["recall@20"])
            >>> among_all = ir.evaluate(run, split.among_all_items(), metrics=["recall@20"])
            >>> among_all.metrics["recall@20"] < among_new.metrics["recall@20"]
            True
        """
        if self.new_items is None:
            raise ItemrecError("'among_all_items' is for a split of `split_items`")
        return replace(self, ranks_all=True)

    def check(self) -> None:
        """Prove that no held-out interaction reaches the graph, the sampler or model selection.

        Raises:
            LeakError: One does. The message names the user and the item.

        Examples:
            >>> from dataclasses import replace
            >>> import itemrec as ir
            >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
            >>> split = ir.split_interactions(data)
            >>> split.check()
            >>> replace(split, train=split.train + split.test.target).check()
            Traceback (most recent call last):
            itemrec.errors.LeakError: test target ... of user ... is also in training (...)
        """
        if self.new_items is not None:
            self._check_new_items(self.new_items)
        for name, held in (("validation", self.valid), ("test", self.test)):
            if held is None:
                continue
            self._no_common(held.target, held.history, held, name, "in that user's own history")
            if held.excluded is not None:
                self._no_common(held.target, held.excluded, held, name, "excluded from ranking")
            if self.new_items is not None and held is self.test:
                continue  # its targets have no column in training
            if self.protocol == "inductive":
                known = np.flatnonzero(self.user_ids.index(held.ids) >= 0)
                if len(known) or (held.users >= 0).any():
                    row = int(known[0]) if len(known) else int(np.argmax(held.users >= 0))
                    user = held.ids[[row]].tolist()[0]
                    raise LeakError(f"{name} user {user!r} is also a training user")
            rows = np.flatnonzero(held.users >= 0)
            trained = scatter_rows(self.train[held.users[rows]], rows, len(held))
            self._no_common(held.target, trained, held, name, "in training")
        if self.valid is None or self.new_items is not None:
            return
        match = IdMap(self.valid.ids).index(self.test.ids)  # [test rows] → validation row or -1
        rows = np.flatnonzero(match >= 0)
        for part, where in (("target", "a validation target"), ("history", "validation history")):
            other = scatter_rows(getattr(self.valid, part)[match[rows]], rows, len(self.test))
            self._no_common(self.test.target, other, self.test, "test", where)

    def _check_new_items(self, new: IdMap) -> None:
        """No held-out item has a column in training or validation, nor is it in a history.

        Graph, sampler, selection and feature map see no other columns.
        """
        known = np.flatnonzero(self.item_ids.index(new.ids) >= 0)
        if len(known):
            item = new.ids[known[:1]].tolist()[0]
            raise LeakError(f"held-out item {item!r} is also an item of the training part")
        valid = () if self.valid is None else (self.valid.history, self.valid.target)
        for matrix in (self.train, *valid):
            if matrix.shape[1] != len(self.item_ids):
                raise LeakError("a held-out item has a column in training or validation")
        shown = self.test.history.indices[self.test.history.indices >= self.n_items]
        if len(shown):
            item = new.ids[shown[:1] - self.n_items].tolist()[0]
            raise LeakError(f"held-out item {item!r} is in the history of a test user")
        if len(self.test.target.indices) and self.test.target.indices.min() < self.n_items:
            item = self.item_ids.ids[self.test.target.indices.min()]
            raise LeakError(f"test target {item!r} is an item of the training part")

    def _no_common(
        self, target: sp.csr_array, other: sp.csr_array, held: HeldOut, name: str, where: str
    ) -> None:
        common = target.multiply(other).tocoo()
        if common.nnz:
            user = held.ids[common.row[:1]].tolist()[0]
            item = self._item(int(common.col[0]))
            raise LeakError(
                f"{name} target {item!r} of user {user!r} is also {where} "
                f"({common.nnz} such interactions)"
            )

    def _item(self, column: int) -> Any:
        """The external id of a column."""
        if column < self.n_items or self.new_items is None:
            return self.item_ids.ids[[column]].tolist()[0]
        return self.new_items.ids[[column - self.n_items]].tolist()[0]
