"""`Recommender`: lists for known users, new users and all users, with external ids."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch

from itemfold.data.items.item_table import ItemTable
from itemfold.errors import ItemfoldError, UnknownIdError
from itemfold.evaluation.ranking import BUDGET
from itemfold.reranking.item_facts import ItemFacts
from itemfold.reranking.steering import Steering
from itemfold.serving.filters import ItemFilter
from itemfold.serving.history import (
    new_history,
    rows_of_users,
    trained_history,
    with_dislikes,
)
from itemfold.serving.ranker import Ranker
from itemfold.serving.recommendation_table import (
    RecommendationTable,
    check_frames,
    kind_of_frame,
)
from itemfold.serving.recommendations import Recommendation, Recommendations
from itemfold.serving.served_items import PresentedItems, ServedItems
from itemfold.training.run import Run
from itemfold.validation import positive_integer, shown

IMAGES = tuple(f"{what}{rest}" for what in ("image", "poster", "cover") for rest in ("", "_url"))
POPULAR = "nothing is known about this user, so these are the most popular items"


class Recommender:
    """Recommends items with the model of a run; the data and the split are not needed.

    A new user is given by a history. If it is empty or has only unknown items, the most popular
    items are recommended, and `fallback` says so.

    Items without interactions are recommended by their features: those of the run's
    `item_features`, and those of `new_items`.

    Args:
        run: A trained run; `Recommender.load` takes its folder.
        frames: "polars" or "pandas", for `recommend_frame`; default: polars.
        item_table: More columns of the items, and which items are available.
        new_items: A table of further items with their features, a file or a frame.

    Attributes:
        interactions: The training interactions, `[users, items]`, with columns of new items.

    Raises:
        ItemfoldError: `run` is not a run, no item is available, or a table is invalid.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> recommender = ir.Recommender(ir.train(split, ir.models.EASE()))
        >>> len(recommender.recommend(history=[3, 5, 8], k=5))
        5
    """

    def __init__(
        self,
        run: Run,
        frames: str | None = None,
        item_table: ItemTable | None = None,
        new_items: Any = None,
    ) -> None:
        if not isinstance(run, Run):
            raise ItemfoldError(
                f"'run' must be a Run, got {shown(run)}; for a folder use Recommender.load(folder)"
            )
        self.run, self.items = run, ServedItems.of(run, new_items)
        self.frames = frames
        self.model, self.interactions = self.items.model(), self.items.interactions
        self.n_known, self.n_items = len(run.item_ids), len(self.items.ids)
        self.filter = ItemFilter(self.items.ids, self.items.genres)
        self.item_table = item_table
        columns = (self.items.ids, self.items.genres, self.items.titles)
        self.facts = ItemFacts(self.model, self.interactions, *columns, item_table)
        self.ranker = Ranker(self.model, self.interactions, self.facts)
        self.presented = PresentedItems(self.items, self.facts.column(*IMAGES))

    def __repr__(self) -> str:
        return f"Recommender({self.run!r}, {self.n_items:,} items)"

    @property
    def repeats(self) -> bool:
        """Whether lists keep items that a user has seen, because the run was trained to."""
        return bool(self.run.config["split"].get("repeats"))

    @property
    def train(self) -> sp.csr_array:
        """`interactions` under its name of release 0.2."""
        return self.interactions

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "cpu",
        item_table: ItemTable | None = None,
        new_items: Any = None,
    ) -> Self:
        """A recommender from a run folder.

        Args:
            folder: The folder of a finished run.
            device: "cpu", "cuda" or "auto".
            item_table: More columns of the items, and which items are available.
            new_items: A table of further items with their features, a file or a frame.

        Returns:
            A recommender.

        Raises:
            ItemfoldError: The folder is missing, unfinished or damaged.
        """
        return cls(Run.load(folder, device), item_table=item_table, new_items=new_items)

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """A recommender from a run in memory.

        Args:
            run: The result of `train`.

        Returns:
            A recommender.
        """
        return cls(run)

    @torch.inference_mode()
    def recommend(
        self,
        user: Any = None,
        *,
        history: Iterable[Any] | None = None,
        weights: Iterable[float] | None = None,
        dislikes: Iterable[Any] | None = None,
        k: int = 20,
        exclude_seen: bool | None = None,
        only: Iterable[Any] | None = None,
        without: Iterable[Any] | None = None,
        genre: str | Iterable[str] | None = None,
        explain: bool = False,
        reasons: int | None = None,
        steering: Steering | None = None,
    ) -> Recommendations:
        """The k best items for a known `user`, or for any user with this `history`.

        Args:
            user: The id of a training user.
            history: Ids of the items of any user; give either this or `user`.
            weights: Positive weights of the history items. Only their ratios matter.
            dislikes: Ids of items that the user does not like, in addition to `user` or `history`.
                They are never recommended, and similar items have lower scores.
            k: Number of items.
            exclude_seen: Leave out the items of the history; default: unless the run was trained
                with `repeats`.
            only: Ids to choose from. Unknown ids are ignored and listed in `unknown`.
            without: Ids to leave out. Unknown ids are ignored and listed in `unknown`.
            genre: Keep items that have at least one of these genres.
            explain: Add the share of each history item in each score.
            reasons: Number of shares to list per item, the largest; default: all. The sum of the
                rest is in `others`.
            steering: Re-ranking options: diversity, popularity, caps and others.

        Returns:
            The list, best first. It may be shorter than `k`.

        Raises:
            ItemfoldError: The user is unknown, both or neither of `user` and `history` are given, a
                filter matches nothing, or the model gives no exact explanations, which `explain`
                and `dislikes` need.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> recommender = ir.Recommender(ir.train(split, ir.models.EASE()))
            >>> picks = recommender.recommend(history=[3, 5, "nothing"], k=2, explain=True)
            >>> len(picks), picks.unknown, len(picks[0].reasons)
            (2, ('nothing',), 2)
            >>> abs(picks[0].score - sum(reason.share for reason in picks[0].reasons)) < 1e-6
            True
        """
        k = positive_integer("k", k)
        listed = None if reasons is None else positive_integer("reasons", reasons)
        if explain and not self.model.explains:
            raise ItemfoldError(
                f"{type(self.run.model).__name__} gives no exact explanations; leave out 'explain'"
            )
        if dislikes is not None and not self.model.explains:
            raise ItemfoldError(
                f"{type(self.run.model).__name__} cannot use 'dislikes': its scores are not sums "
                "over the history; 'without' leaves items out"
            )
        if (user is None) == (history is None):
            raise ItemfoldError("give either 'user' or 'history'")
        unknown: tuple[Any, ...] = ()
        if history is None:
            given = trained_history(user, weights, self.run.user_ids, self.interactions)
        else:
            given, unknown = new_history(history, weights, self.filter)
        given, others = with_dislikes(given, dislikes, self.filter)
        new = given.items[given.items >= self.n_known]  # the model has no interactions of them
        unknown += (*others, *self.items.ids.external(new).tolist())
        seen = given.below(self.n_known)
        allowed, ignored = self.filter.allowed(only, without, genre)
        hides = not self.repeats if exclude_seen is None else exclude_seen
        hidden = given.matrix(self.n_items) if hides else given.disliked(self.n_items)
        best, scores, shares = self.ranker.for_history(
            seen, hidden, k, allowed, steering, explain=explain
        )
        if shares is None:
            picks = self.presented.plain(best, scores)
        else:
            picks = self.presented.explained(best, scores, seen.items, shares, listed)
        if explain:
            picks = tuple(map(self._with_similar_known, picks, best.tolist()))
        fallback = "" if seen.is_known else POPULAR
        return Recommendations(picks, user, (*unknown, *ignored), fallback)

    @torch.inference_mode()
    def recommend_all(
        self,
        k: int = 20,
        *,
        users: Iterable[Any] | None = None,
        exclude_seen: bool | None = None,
        only: Iterable[Any] | None = None,
        without: Iterable[Any] | None = None,
        genre: str | Iterable[str] | None = None,
        steering: Steering | None = None,
        progress: bool = False,
        budget: float = BUDGET,
    ) -> RecommendationTable:
        """The k best items of all known users, or of some, one block of users at a time.

        Args:
            k: Number of items per user.
            users: Ids of training users; default: all.
            exclude_seen: Leave out the items of each user's history; default: as in `recommend`.
            only: Ids to choose from.
            without: Ids to leave out.
            genre: Keep items that have at least one of these genres.
            steering: Re-ranking options: diversity, popularity, caps and others.
            progress: Show a progress bar.
            budget: Memory limit of scores in megabytes.

        Returns:
            The lists as columns; `save` writes them to a .parquet, .csv or .tsv file.

        Raises:
            ItemfoldError: A user is unknown, or a filter matches nothing.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> table = ir.Recommender(ir.train(split, ir.models.EASE())).recommend_all(k=3)
            >>> list(table.columns()), len(table.columns()["item_id"])  # 48 training users
            (['user_id', 'item_id', 'rank', 'score'], 144)
        """
        k = positive_integer("k", k)
        allowed, unknown = self.filter.allowed(only, without, genre)
        known = self.run.user_ids
        user_rows = np.arange(len(known)) if users is None else rows_of_users(users, known)
        rows, values = self.ranker.for_users(
            user_rows,
            k,
            allowed,
            steering,
            exclude_seen=not self.repeats if exclude_seen is None else exclude_seen,
            budget=budget,
            progress=progress,
        )
        return RecommendationTable(
            known.external(user_rows),
            rows,
            values,
            self.items.ids.ids,
            unknown,
            self.items.titles,
        )

    def recommend_frame(
        self, users: Iterable[Any] | None = None, k: int = 20, **options: Any
    ) -> Any:
        """The k best items of many users as a frame of the library that `fit` was given.

        Args:
            users: Ids of training users, such as a column of a frame; default: all.
            k: Number of items per user.
            **options: Further arguments of `recommend_all`, such as `genre`.

        Returns:
            A polars or pandas frame with the columns user_id, item_id, title (if there are
            titles), rank and score.

        Raises:
            ItemfoldError: A user is unknown, or a filter matches nothing.
        """
        library = check_frames(self.frames or kind_of_frame(users))
        return self.recommend_all(k, users=users, **options).frame(library)

    @torch.inference_mode()
    def similar_items(self, item: Any, k: int = 20) -> tuple[Recommendation, ...]:
        """The k items most similar to this one, without the item itself.

        Similarity is the cosine of item vectors, or the weight in an item–item model; items with
        weight 0 are left out. A new item is compared by its features.

        Args:
            item: The id of an item.
            k: Number of items.

        Returns:
            The items, most similar first.

        Raises:
            ItemfoldError: The item is unknown, or the model has neither item vectors nor weights.
        """
        k = positive_integer("k", k)
        row = int(self.items.ids.index([item])[0])
        if row < 0:
            raise UnknownIdError(f"'item' must be an item of the training data, got {item!r}")
        return self.presented.plain(*self.ranker.similar_to(row, k))

    @property
    def genres(self) -> tuple[str, ...]:
        """The genres of the catalogue; empty if the data has none."""
        return self.filter.genres

    def image_of(self, row: int) -> str:
        """The image URL of the item in a row, "" if there is none.

        Args:
            row: The row of the item.

        Returns:
            The text of the column image, poster or cover of the item table.
        """
        return self.presented.image_of(row)

    def _with_similar_known(self, pick: Recommendation, row: int) -> Recommendation:
        """A new item gets the known items that it is most similar to."""
        if not pick.is_new:
            return pick
        known = self.ranker.known_similar_to(row, self.n_known)
        return replace(pick, like=self.presented.similarities(row, known))
