"""The methods `fit` and `recommend` of every model, in the form of implicit and scikit-learn.

They are a short form of `itemfold.fit` and `Recommender`, which have more options.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
import numpy.typing as npt

from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.serving.recommender import Recommender
    from itemfold.training.run import Run

Arrays = tuple[npt.NDArray[Any], npt.NDArray[np.float32]]  # ids and scores


class Estimator:
    """A model that is fitted and asked directly; `Model` is one."""

    settings: dict[str, Any]
    recommender_: Recommender | None = None  # after `fit`
    _reading: dict[str, Any] = {}  # noqa: RUF012 - replaced by `fit`, never modified

    def fit(
        self,
        user_items: Any,
        *,
        budget: float | None = None,
        seed: int = 0,
        progress: bool = False,
        **reading: Any,
    ) -> Self:
        """Train on everything; settings that were left open are chosen on a tenth of it.

        This is `ir.fit` in the form of implicit. The settings of the model stay as they were given;
        `run_` has those that were chosen.

        Args:
            user_items: A scipy matrix of users × items, whose entries are weights as in implicit,
                or what `ir.fit` takes: a frame, a path, or what `ir.read` returns.
            budget: Time limit of training in seconds; default: no limit.
            seed: Seed of the validation part and of training.
            progress: Show a progress bar.
            **reading: Arguments of `read`, such as `user`, `item` and `min_rating`.

        Returns:
            The model itself.

        Raises:
            ItemfoldError: The data cannot be read, or a setting is invalid.

        Examples:
            >>> import scipy.sparse as sp
            >>> import itemfold as ir
            >>> likes = sp.csr_array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1]])
            >>> ids, scores = ir.models.EASE(l2=1.0).fit(likes).recommend(0, likes[[0]], N=2)
            >>> ids.tolist()
            [2, 3]
        """
        from itemfold.serving.estimation import fit_estimator

        fitted = fit_estimator(
            self, user_items, reading, budget=budget, seed=seed, progress=progress
        )
        given = self.settings
        vars(self).update(vars(fitted.run.model))  # tensors of a model of the same class
        self.settings, self.recommender_, self._reading = given, fitted, reading
        return self

    @overload
    def recommend(
        self,
        users: Any,
        user_items: Any = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
    ) -> Arrays: ...

    @overload
    def recommend(
        self,
        users: Any,
        *,
        dataset: Any,
        k: int = 10,
        filter_viewed: bool = True,
        items_to_recommend: Any = None,
    ) -> Any: ...

    def recommend(
        self,
        users: Any,
        user_items: Any = None,
        N: int = 10,
        filter_already_liked_items: bool = True,
        filter_items: Any = None,
        recalculate_user: bool = False,
        items: Any = None,
        *,
        dataset: Any = None,
        k: int | None = None,
        filter_viewed: bool = True,
        items_to_recommend: Any = None,
    ) -> Any:
        """The best items of one user or of many, in the form of implicit or of RecTools.

        Users and items are the ids of the data: rows and columns if the model was fitted to a
        matrix. A user who is not in it is scored by their items in `user_items`.

        Args:
            users: The id of a user, or several.
            user_items: The known items of these users: a matrix with one row per user, such as
                `user_items[users]`, or a table. Default: those that the model was fitted to.
            N: Number of items per user.
            filter_already_liked_items: Leave out the items of `user_items`.
            filter_items: Ids of items to leave out.
            recalculate_user: Score by `user_items` instead of what the model was fitted to.
            items: Ids of the items to choose from; default: all.
            dataset: RecTools' name for a table `user_items`; the lists are then returned as a
                frame.
            k: RecTools' name for `N`, with `dataset`.
            filter_viewed: RecTools' name for `filter_already_liked_items`, with `dataset`.
            items_to_recommend: RecTools' name for `items`, with `dataset`.

        Returns:
            Ids and scores, best first: `[N]` each for one user, `[users, N]` for several. Where no
            item is left, the score is −∞ and the id −1 (or "" among texts). With `dataset`, a
            frame with the columns user_id, item_id, rank and score.

        Raises:
            ItemfoldError: The model was not fitted, an id is unknown, or `user_items` does not
                belong to the users.
        """
        from itemfold.serving.estimation import as_user_items, list_arrays, list_frame

        known, table = self._fitted("recommend"), dataset if dataset is not None else user_items
        given = as_user_items(known, table, users, self._reading)
        if dataset is not None:
            k = 10 if k is None else k
            only = items_to_recommend
            return list_frame(known, users, given, k, exclude_seen=filter_viewed, only=only)
        if k is not None or items_to_recommend is not None:
            raise ItemfoldError("'k' and 'items_to_recommend' need 'dataset'; give 'N' and 'items'")
        return list_arrays(
            known,
            users,
            given,
            N,
            exclude_seen=filter_already_liked_items,
            without=filter_items,
            only=items,
            refold=recalculate_user,
        )

    def similar_items(self, itemid: Any, N: int = 10) -> Arrays:
        """The items most similar to one, itself left out.

        Args:
            itemid: The id of an item.
            N: Number of items.

        Returns:
            Ids and similarities, `[N]` each, most similar first.

        Raises:
            ItemfoldError: The model was not fitted, the item is unknown, or the model has neither
                item vectors nor item–item weights.
        """
        found = self._fitted("similar_items").similar_items(itemid, N)
        scores = np.array([one.score for one in found], dtype=np.float32)
        return np.array([one.item for one in found]), scores

    @property
    def run_(self) -> Run:
        """The run of the last `fit`: chosen settings, and metrics on the validation part."""
        return self._fitted("run_").run

    def save(self, folder: str | Path) -> None:
        """Write the fitted model as a run folder, without pickle.

        Args:
            folder: The folder; `load`, `Recommender.load` and all commands read it.

        Raises:
            ItemfoldError: The model was not fitted, or the path is a file.

        Examples:
            >>> from pathlib import Path
            >>> import tempfile
            >>> import scipy.sparse as sp
            >>> import itemfold as ir
            >>> model = ir.models.EASE(l2=1.0).fit(sp.csr_array([[1, 1, 0], [0, 1, 1]]))
            >>> folder = Path(tempfile.mkdtemp()) / "model"
            >>> model.save(folder)
            >>> ir.models.EASE.load(folder).recommend(0, N=1)[0].tolist()
            [2]
        """
        self.run_.save(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        """A fitted model from a run folder; nothing in it is ever executed.

        Args:
            folder: A folder of `save`, `ir.fit` or `itemfold train`.
            device: "cpu", "cuda" or "auto".

        Returns:
            A model of this class.

        Raises:
            ItemfoldError: The folder is missing or damaged, or holds another model.
        """
        from itemfold.serving.recommender import Recommender

        recommender = Recommender.load(folder, device)
        found = recommender.run.model
        if not isinstance(found, cls):
            raise ItemfoldError(
                f"{folder} holds a model of the class {type(found).__name__}, not {cls.__name__}"
            )
        found.recommender_ = recommender
        return found

    def _fitted(self, what: str) -> Recommender:
        if self.recommender_ is None:
            raise ItemfoldError(f"'{what}' needs a fitted model: call fit(user_items) first")
        return self.recommender_
