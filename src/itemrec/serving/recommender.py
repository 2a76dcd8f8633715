"""Recommender: external ids in and out, for known users, new users and all users at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from itemrec.data.item_table import ItemTable
from itemrec.errors import ItemrecError
from itemrec.evaluation.ranking import (
    BUDGET,
    mask_history,
    own_scores,
    steered_items,
    top_items,
)
from itemrec.reranking.item_facts import ItemFacts
from itemrec.reranking.reranker import Reranker
from itemrec.reranking.steering import Steering, check_steering
from itemrec.serving.filters import ItemFilter, as_list
from itemrec.serving.history import History, new_history, with_dislikes
from itemrec.serving.new_items import ServedItems
from itemrec.serving.recommendation_frame import check_frames, frame_of, kind_of_frame
from itemrec.serving.recommendation_table import RecommendationTable
from itemrec.serving.recommendations import Likeness, Reason, Recommendation, Recommendations
from itemrec.training.progress import track
from itemrec.training.run import Run
from itemrec.validation import positive_integer, shown

IMAGES = tuple(f"{what}{rest}" for what in ("image", "poster", "cover") for rest in ("", "_url"))
POPULAR = "nothing is known about this user, so these are the most popular items"


class Recommender:
    """Recommends from a run: its folder is enough, neither the data nor its split is needed.

    An unseen user is given by a history. If nothing is known about a user (the history is empty or
    has only unknown items), the most popular items are recommended, and `fallback` explains this.

    Items without interactions are recommended by their features: those of the run's
    `item_features`, and those of `new_items`.

    Args:
        run: A trained run; `Recommender.load` takes its folder.
        frames: "polars" or "pandas", for `recommend_frame`; default: what is installed.
        item_table: More columns of the items, and which of them are available.
        new_items: A table of further items with their features, a file or a frame.

    Raises:
        ItemrecError: It is not a run, no item is available, or a table cannot be used.

    Examples:
        >>> import itemrec as ir
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
            raise ItemrecError(
                f"'run' must be a Run, got {shown(run)}; for a folder use Recommender.load(folder)"
            )
        self.run, self.items = run, ServedItems.of(run, new_items)
        self.frames = frames
        self.model, self.train = self.items.model(), self.items.train
        self.n_known, self.n_items = len(run.item_ids), len(self.items.ids)
        self._filter = ItemFilter(self.items.ids, self.items.genres)
        self._ids = self.items.ids.ids.tolist()
        self.item_table = item_table
        columns = (self.items.ids, self.items.genres, self.items.titles)
        self.facts = ItemFacts(self.model, self.train, *columns, item_table)
        self._images = self.facts.column(*IMAGES)

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
            item_table: More columns of the items, and which of them are available.
            new_items: A table of further items with their features, a file or a frame.

        Returns:
            A recommender.

        Raises:
            ItemrecError: The folder is missing, unfinished or damaged.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> folder = Path(tempfile.mkdtemp()) / "run"
            >>> ir.train(split, ir.models.EASE()).save(folder)
            >>> ir.Recommender.load(folder).n_items
            80
        """
        return cls(Run.load(folder, device), item_table=item_table, new_items=new_items)

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """A recommender from a run in memory.

        Args:
            run: The result of `train`.

        Returns:
            A recommender.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> ir.Recommender.from_run(ir.train(split, ir.models.EASE())).n_items
            80
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
        exclude_seen: bool = True,
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
            weights: How much each item of the history counts, positive numbers. Only their ratios
                matter.
            dislikes: Ids of items that the user does not like, in addition to `user` or `history`.
                They are never recommended, and items like them have lower scores.
            k: Number of items.
            exclude_seen: Leave out the items of the history.
            only: Ids to choose from. Unknown ids are ignored and listed in `unknown`.
            without: Ids to leave out. Unknown ids are ignored and listed in `unknown`.
            genre: Keep items that have at least one of these genres.
            explain: Add the share of each history item in each score.
            reasons: Number of shares to list, those that move a score most; default: all. The
                sum of the rest is in `others`.
            steering: How the list is re-ranked: diversity, popularity, caps and the like.

        Returns:
            The list, best first. It may be shorter than `k`.

        Raises:
            ItemrecError: The user is unknown, both or neither of `user` and `history` are given, a
                filter matches nothing, or the model gives no exact explanations, which dislikes
                need, too.

        Examples:
            >>> import itemrec as ir
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
            raise ItemrecError(f"{type(self.run.model).__name__} gives no exact explanations")
        if dislikes is not None and not self.model.explains:
            raise ItemrecError(
                f"{type(self.run.model).__name__} cannot use 'dislikes': its scores are not sums "
                "over the history; 'without' leaves items out"
            )
        given, unknown = self._history_of(user, history, weights)
        given, others = with_dislikes(given, dislikes, self._filter)
        new = given.items[given.items >= self.n_known]  # they say nothing to the model
        unknown += (*others, *(self._ids[one] for one in new.tolist()))
        seen = given.below(self.n_known)
        row, items = seen.row, seen.items
        allowed, ignored = self._filter.allowed(only, without, genre)
        history_row = seen.matrix(self.n_items)
        if seen.is_known:
            scores = own_scores(
                self.model, history_row, np.array([row], dtype=np.int64)
            )  # [1, items]
        else:
            scores = self._popularity.clone().unsqueeze(0)
        hidden = given.matrix(self.n_items) if exclude_seen else given.disliked(self.n_items)
        scores = self._only_allowed(mask_history(scores, hidden), allowed)
        best = steered_items(scores, k, self._reranker(steering))[0]
        best = best[best >= 0]
        values = scores[0, best]
        shares = None
        if explain and seen.is_known:
            shares = self.model.explain(history_row, row, best)  # [k, history]
        picks = self._picks(best, values, items, shares, listed)
        if explain:
            picks = tuple(
                replace(pick, like=self._like(row)) if pick.is_new else pick
                for pick, row in zip(picks, best.tolist(), strict=True)
            )
        unknown += ignored
        return Recommendations(picks, user, unknown, "" if seen.is_known else POPULAR)

    @torch.inference_mode()
    def recommend_all(
        self,
        k: int = 20,
        *,
        users: Iterable[Any] | None = None,
        exclude_seen: bool = True,
        only: Iterable[Any] | None = None,
        without: Iterable[Any] | None = None,
        genre: str | Iterable[str] | None = None,
        steering: Steering | None = None,
        progress: bool = False,
        budget: float = BUDGET,
    ) -> RecommendationTable:
        """The k best items of all known users, or of some of them, one block of users at a time.

        Args:
            k: Number of items per user.
            users: Ids of training users; default: all.
            exclude_seen: Leave out the items of each user's history.
            only: Ids to choose from.
            without: Ids to leave out.
            genre: Keep items that have at least one of these genres.
            steering: How lists are re-ranked: diversity, popularity, caps and the like.
            progress: Show a progress bar.
            budget: Memory for scores in megabytes.

        Returns:
            The lists as columns; `save` writes them to a .parquet, .csv or .tsv file.

        Raises:
            ItemrecError: A user is unknown, or a filter matches nothing.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> table = ir.Recommender(ir.train(split, ir.models.EASE())).recommend_all(k=3)
            >>> list(table.columns()), len(table.columns()["item_id"])  # 48 training users
            (['user_id', 'item_id', 'rank', 'score'], 144)
        """
        k = positive_integer("k", k)
        allowed, unknown = self._filter.allowed(only, without, genre)
        reranker = self._reranker(steering)
        user_rows = np.arange(self.train.shape[0]) if users is None else self._rows_of(users)
        depth = min(k, self.n_items)
        rows = np.full((len(user_rows), depth), -1, dtype=np.int32)
        values = np.zeros((len(user_rows), depth), dtype=np.float32)
        size = max(1, int(budget * 2**20 / 4 / self.n_items))  # users per block
        starts = range(0, len(user_rows), size)
        for start in track(starts, "recommending to all users", show=progress):
            part = slice(start, start + size)
            histories = self.train[user_rows[part]]
            scores = own_scores(self.model, histories, user_rows[part])
            without_history = np.flatnonzero(np.diff(histories.indptr) == 0)
            if len(without_history):
                scores[torch.from_numpy(without_history).to(scores.device)] = self._popularity
            if exclude_seen:
                scores = mask_history(scores, histories)
            scores = self._only_allowed(scores, allowed)
            best = steered_items(scores, k, reranker)
            rows[part] = best.cpu().numpy()
            values[part] = scores.gather(1, best.clamp(min=0)).cpu().numpy()
        users_ids, ids = self.run.user_ids.external(user_rows), self.items.ids.ids
        return RecommendationTable(users_ids, rows, values, ids, unknown)

    def recommend_frame(
        self, users: Iterable[Any] | None = None, k: int = 20, **options: Any
    ) -> Any:
        """The k best items of many users as a frame, of the kind that `fit` was given.

        Args:
            users: Ids of training users, such as a column of a frame; default: all.
            k: Number of items per user.
            **options: Further arguments of `recommend_all`, such as `genre`.

        Returns:
            A polars or pandas frame with the columns user_id, item_id, title (if there are
            titles), rank and score.

        Raises:
            ItemrecError: A user is unknown, or a filter matches nothing.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> recommender = ir.Recommender(ir.train(split, ir.models.EASE()))
            >>> recommender.recommend_frame(k=3).shape  # 48 training users
            (144, 5)
        """
        frames = check_frames(self.frames or kind_of_frame(users))
        return frame_of(self.recommend_all(k, users=users, **options), self.items.titles, frames)

    @torch.inference_mode()
    def similar_items(self, item: Any, k: int = 20) -> tuple[Recommendation, ...]:
        """The k items most similar to this one, without the item itself.

        Similarity is the cosine of item vectors, or the item–item weight in a model that has such
        weights; items with zero weight are left out. A new item is compared by its features.

        Args:
            item: The id of an item.
            k: Number of items.

        Returns:
            The items, most similar first.

        Raises:
            ItemrecError: The item is unknown, or the model has neither item vectors nor weights.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> recommender = ir.Recommender(ir.train(split, ir.models.LightGCN(dim=8), epochs=2))
            >>> [pick.item for pick in recommender.similar_items(12, k=3)].count(12)
            0
        """
        k = positive_integer("k", k)
        row = int(self.items.ids.index([item])[0])
        if row < 0:
            raise ItemrecError(f"'item' must be an item of the training data, got {item!r}")
        scores = self.model.similar_to(row).clone()
        scores[row] = -torch.inf
        best = top_items(self._only_allowed(scores.unsqueeze(0), None), k)[0]
        best = best[best >= 0]
        return self._picks(best, scores[best], np.empty(0, dtype=np.int64), None)

    @cached_property
    def genres(self) -> tuple[str, ...]:
        """The genres of the catalogue; empty if the data has none.

        Examples:
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> "Drama" in ir.Recommender(ir.train(split, ir.models.Popularity())).genres
            True
        """
        return self._filter.genres

    def image_of(self, row: int) -> str:
        """The address of the picture of the item in a row, "" if there is none.

        Args:
            row: The row of the item.

        Returns:
            The text of the column image, poster or cover of the item table.

        Examples:
            >>> from itemrec.data.item_table import ItemTable
            >>> import itemrec as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> table = ItemTable([1], {"poster": ["https://images.example/1.jpg"]})
            >>> ir.Recommender(ir.train(split, ir.models.EASE()), item_table=table).image_of(0)
            'https://images.example/1.jpg'
        """
        return "" if self._images is None else self._images[row]

    # --- internal --------------------------------------------------------------------------------

    def _reranker(self, steering: Steering | None) -> Reranker | None:
        checked = check_steering(steering)
        return None if checked.is_plain else Reranker(self.facts, checked)

    def _only_allowed(self, scores: Tensor, allowed: npt.NDArray[np.bool_] | None) -> Tensor:
        """−∞ at the items that a filter excludes or that are not available, in place."""
        if allowed is not None:
            scores[:, ~torch.from_numpy(allowed).to(scores.device)] = -torch.inf
        if self.facts.available is not None:
            scores[:, ~self.facts.available] = -torch.inf
        return scores

    @cached_property
    def _popularity(self) -> Tensor:
        counts = np.bincount(self.train.indices, self.train.data, self.n_items).astype(np.float32)
        return torch.from_numpy(counts).to(self.model.device)

    def _history_of(
        self, user: Any, history: Iterable[Any] | None, weights: Iterable[float] | None
    ) -> tuple[History, tuple[Any, ...]]:
        """What is known of a user, and the ids of the history that are not."""
        if (user is None) == (history is None):
            raise ItemrecError("give either 'user' or 'history'")
        if history is None:
            row = int(self._rows_of([user])[0])
            if weights is not None:
                raise ItemrecError("'weights' is for a 'history', a known user has trained ones")
            start, end = self.train.indptr[row : row + 2]
            items = self.train.indices[start:end].astype(np.int64)
            return History(row, items, self.train.data[start:end]), ()
        return new_history(history, weights, self._filter)

    def _like(self, row: int, most: int = 3) -> tuple[Likeness, ...]:
        """The known items with the features most like those of a new one; of equals the popular."""
        weight = self.model.similar_to(row)[: self.n_known]
        popularity = self._popularity[: self.n_known]
        weight = weight + 1e-3 * popularity / popularity.max().clamp(min=1)
        found = top_items(weight.unsqueeze(0), most)[0].tolist()
        return tuple(
            Likeness(self._ids[one], self._text("titles", one), self.items.shared(row, one))
            for one in found
        )

    def _rows_of(self, users: Iterable[Any]) -> npt.NDArray[np.int64]:
        """Training rows of known users."""
        listed = as_list("users", users)
        rows = self.run.user_ids.index(listed)
        for user in (user for user, row in zip(listed, rows, strict=True) if row < 0):
            raise ItemrecError(
                f"'user' must be a user of the training data, got {user!r}; "
                "for a new user give a history of items"
            )
        return rows

    def _picks(
        self,
        best: Tensor,
        values: Tensor,
        history: npt.NDArray[np.int64],
        shares: Tensor | None,
        listed: int | None = None,
    ) -> tuple[Recommendation, ...]:
        rows, scores = best.tolist(), values.tolist()
        if shares is None:
            return tuple(
                Recommendation(
                    *self._named(row), s, image=self.image_of(row), is_new=row >= self.n_known
                )
                for row, s in zip(rows, scores, strict=True)
            )
        names = [(self._ids[row], self._text("titles", row)) for row in history.tolist()]

        def reasons(ranked: list[int], part: list[float]) -> tuple[Reason, ...]:
            pairs = zip(ranked, part, strict=True)
            return tuple(Reason(names[h][0], names[h][1], share) for h, share in pairs)

        total = shares.double().sum(1)
        if listed is not None and listed < len(names):  # those that move the score most
            kept = shares.abs().topk(listed, dim=1).indices.sort(dim=1).values  # [k, listed]
        else:
            kept = torch.arange(len(names), device=shares.device).expand(len(rows), -1)
        parts = shares.gather(1, kept)
        order = parts.argsort(dim=1, descending=True, stable=True)
        kept, parts = kept.gather(1, order), parts.gather(1, order)
        own = (values.double() - total).tolist()
        others = (total - parts.double().sum(1)).tolist() if kept.shape[1] < len(names) else None
        return tuple(
            Recommendation(
                *self._named(row),
                score,
                reasons(ranked, part),
                rest,
                unlisted,
                self.image_of(row),
                row >= self.n_known,
            )
            for row, score, ranked, part, rest, unlisted in zip(
                rows,
                scores,
                kept.tolist(),
                parts.tolist(),
                own,
                others or [0.0] * len(rows),
                strict=True,
            )
        )

    def _named(self, row: int) -> tuple[Any, str, str]:
        """Id, title and genres of an item."""
        return self._ids[row], self._text("titles", row), self._text("genres", row)

    def _text(self, column: str, row: int) -> str:
        texts = getattr(self.items, column)
        return "" if texts is None else str(texts[row])
