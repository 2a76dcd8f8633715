"""The base class of models: a scorer of histories, and the kinds of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.errors import ItemfoldError
from itemfold.estimator import Estimator
from itemfold.graph.graph import Graph
from itemfold.models.capabilities import Capabilities
from itemfold.models.settings_record import RecordsSettings
from itemfold.sampling.base import Batch

Explainer = Callable[[Tensor], Tensor]  # rows of items [n] → shares [n, items of the history]


class Kind(Enum):
    """How a model is trained.

    Examples:
        >>> import itemfold as ir
        >>> ir.models.EASE.kind.value, ir.models.LightGCN.kind.value
        ('closed form', 'list loss')
    """

    LIST_LOSS = "list loss"  # a list loss over sampled negatives, plus `extra_loss` if defined
    OWN_OBJECTIVE = "own objective"  # `own_loss` is the whole objective: no list loss, no sampler
    CLOSED_FORM = "closed form"  # `solve` computes it: no epochs
    HYBRID = "hybrid"  # a network trained with a list loss, and a closed form

    @property
    def has_lists(self) -> bool:
        """Whether a list loss and a sampler of negatives are used."""
        return self in (Kind.LIST_LOSS, Kind.HYBRID)


class Model(Estimator, RecordsSettings, Capabilities, nn.Module):
    """A scorer: users are given by their histories and, if they have one, their training row.

    The constructor takes settings only, and its signature is the configuration schema. `setup`
    receives the training data and allocates; afterwards either `solve` computes a closed form or
    the training loop computes gradients. A subclass that keeps everything needed for scoring in
    parameters and buffers can be saved and loaded without further code.

    `fit` and `recommend` use a model as in implicit, `get_params`, `set_params` and `clone` as in
    scikit-learn.

    Attributes:
        paper: Title of the paper, for `itemfold models`.
        year: Its year.
        inductive: Whether users unseen in training can be scored.
        why_not_inductive: The reason if they cannot.
        explains: Whether `explain` is implemented.
        kind: How it is trained.
        weighs: What weights of interactions change: "graph", "loss", "linear" or "counts"; empty
            if the model cannot use them.
        batch_by: "users" or "interactions" if the model requires it, else None.
        same_steps: Whether every step does the same work, so that a GPU can record one and repeat
            it.
        default_loss: The default loss.
        default_negatives: The default sampler of negatives.
        default_settings: Settings of these two, by section.
        default_training: Default values for fields of `TrainConfig`.
        chooses: Settings outside the model that training chooses unless they are given.
        moved: Old names of settings, each with the path that it has now.
        recomputed: Whether buffers are computed again on loading instead of being stored.
        by_columns: Whether every column of the vectors is computed alone, so that several processes
            can train together; not inherited: a class says so itself.
        sharded: Whether this process holds only some columns of the parameters.
        watch: Shows progress over the steps of a long computation.
        settings: The arguments of the constructor, recorded automatically.
        n_users: Number of training users, after `setup`.
        n_items: Number of items, after `setup`.

    Examples:
        >>> import torch
        >>> from itemfold.models import Kind, Model
        >>> import itemfold as ir
        >>> class Newest(Model):
        ...     kind = Kind.CLOSED_FORM
        ...     def __init__(self, step: float = 1.0) -> None:
        ...         super().__init__()
        ...         self.step = step
        ...     def solve(self, train):
        ...         self.store("age", torch.arange(self.n_items) * self.step)
        ...     def scores(self, history, users):
        ...         return self.age.repeat(len(users), 1)
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, Newest(step=2.0))
        >>> run.model.settings, run.model.age.tolist()[:3]
        ({'step': 2.0}, [0.0, 2.0, 4.0])
    """

    paper: ClassVar[str] = ""
    year: ClassVar[int] = 0
    kind: ClassVar[Kind] = Kind.LIST_LOSS
    batch_by: ClassVar[Literal["users", "interactions"] | None] = None
    same_steps: ClassVar[bool] = True
    default_loss: ClassVar[str] = "item-ndcg"
    default_negatives: ClassVar[str] = "uniform"
    default_settings: ClassVar[Mapping[str, Mapping[str, Any]]] = MappingProxyType({})
    default_training: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    recomputed: bool = False
    by_columns: ClassVar[bool] = False  # not inherited: see `EmbeddingModel.whole`
    fit_notes: tuple[str, ...] = ()  # sentences about a fit, which its run reports
    sharded: bool = False
    chooses: ClassVar[tuple[str, ...]] = ()  # such as "train.lr" and "loss"
    watch: Callable[[Iterable[Any], str], Iterable[Any]] = staticmethod(lambda steps, text: steps)
    n_users: int
    n_items: int
    half_life: str | None = None  # at which an interaction counts half in training and histories

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate for this training matrix.

        Args:
            train: Training interactions, `[users, items]`.
            inductive: Whether users have no parameters.
            generator: Random generator of the initial weights.
        """
        self.n_users, self.n_items = train.shape

    def initialise(self, graph: Graph, generator: torch.Generator) -> None:
        """Hook called before training from scratch, for initial weights computed from the graph.

        Args:
            graph: The training graph, on the device of the model.
            generator: Random generator of the initial weights, on the CPU.
        """

    def solve(self, train: sp.csr_array) -> None:
        """Compute a closed form; only called for `Kind.CLOSED_FORM`, after `setup`.

        Args:
            train: Training interactions, `[users, items]`.

        Raises:
            ItemfoldError: The model has none.
        """
        raise ItemfoldError(f"{type(self).__name__} has no closed form")

    def trials(self, train: sp.csr_array) -> Iterator[dict[str, Any]]:
        """Fit candidate values of open settings one after another, to select the best.

        The first settings are the typical ones, which are used unless others are better by more
        than a standard error.

        Args:
            train: Training interactions, `[users, items]`.

        Yields:
            Settings, while the weights that belong to them are in place.
        """
        yield from ()

    def typical_settings(self) -> dict[str, Any]:
        """Typical values of open settings, for use without validation data.

        Returns:
            Settings by name; empty if none is open.
        """
        return {}

    @property
    def network(self) -> Model:
        """The part that gradient descent trains: the model itself, unless it is composed."""
        return self

    def cache_embeddings(self, graph: Graph) -> None:
        """Store everything that scoring needs, so that it does not need the graph.

        Args:
            graph: The training graph.
        """

    def drop_embeddings(self) -> None:
        """Free what `cache_embeddings` stored, if the next training steps need the memory."""

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The whole objective of a batch; only called for `Kind.OWN_OBJECTIVE`.

        Args:
            graph: The training graph.
            batch: Users and their positives.
            generator: Random generator of the draws.

        Returns:
            A scalar.

        Raises:
            ItemfoldError: The model has none.
        """
        raise ItemfoldError(f"{type(self).__name__} has no objective: define 'own_loss'")

    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Hook called before each epoch, for models that redraw something.

        Args:
            graph: The training graph.
            generator: Random generator of the draws.
        """

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Scores of all items for each user.

        Args:
            history: Known items of each user, `[B, items]`.
            users: Training row of each user, −1 if unknown, `[B]`.

        Returns:
            `[B, items]`, a tensor that the caller may change.

        Raises:
            ItemfoldError: An unseen user cannot be scored.
        """
        raise ItemfoldError(f"{type(self).__name__} cannot score")

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Share of each history item in each score.

        The shares, the contribution of a trained user vector and `popularity_part` sum to the
        score.

        Args:
            history: Known items of one user, `[1, items]`.
            user: Its training row, −1 if unknown.
            items: Rows of the recommended items, `[n]`.

        Returns:
            `[n, items of the history]`.

        Raises:
            ItemfoldError: The model gives no exact explanations.
        """
        raise ItemfoldError(f"{type(self).__name__} gives no exact explanations")

    def scores_and_explainer(self, history: sp.csr_array, user: int) -> tuple[Tensor, Explainer]:
        """Scores of all items for one user, and a function that explains them.

        Override it if shares depend on the scores of the whole catalogue, to compute these once.

        Args:
            history: Known items of one user, `[1, items]`.
            user: Its training row, −1 if unknown.

        Returns:
            The result of `scores`, `[1, items]`, and a function for this user only: `explain` of
            rows of items `[n]`. It does not depend on the scores, which the caller may change.

        Raises:
            ItemfoldError: An unseen user cannot be scored.
        """
        scores = self.scores(history, np.array([user], dtype=np.int64))
        return scores, partial(self.explain, history, user)

    def popularity_part(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """The part of each score that comes from an item's popularity.

        Args:
            history: Known items of one user, `[1, items]`.
            user: Its training row, −1 if unknown.
            items: Rows of the recommended items, `[n]`.

        Returns:
            `[n]`; 0 for models without such a part.

        Examples:
            >>> import numpy as np
            >>> import scipy.sparse as sp
            >>> import torch
            >>> import itemfold as ir
            >>> nothing = sp.csr_array((1, 5))
            >>> ir.models.EASE().popularity_part(nothing, -1, torch.tensor([2])).tolist()
            [0.0]
        """
        return torch.zeros(len(items), device=items.device)

    def similar_to(self, item: int) -> Tensor:
        """Similarity of every item to one, −∞ where there is none.

        Args:
            item: The row of the item.

        Returns:
            `[items]`.

        Raises:
            ItemfoldError: The model has neither item vectors nor item–item weights.

        Examples:
            >>> import itemfold as ir
            >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
            >>> ir.train(split, ir.models.EASE()).model.similar_to(3).shape
            torch.Size([80])
        """
        if not self.explains:
            raise ItemfoldError(
                f"{type(self).__name__} has neither item vectors nor item–item weights "
                "to compare items by"
            )
        # a score sums weights over the history, here of a single item
        alone = sp.csr_array(([1.0], [item], [0, 1]), shape=(1, self.n_items), dtype=np.float32)
        scores = self.scores(alone, np.array([-1], dtype=np.int64))[0]
        return scores.masked_fill(scores == 0, -torch.inf)

    def restore(self, train: sp.csr_array) -> None:
        """Hook called after loading, for models that store less than they need.

        Args:
            train: The interactions that the model was trained on, `[users, items]`.
        """

    def replace_interactions(self, train: sp.csr_array) -> None:
        """Hook called after a user is removed, for models that store the interactions.

        Args:
            train: The interactions that are left, `[users, items]`.
        """

    def unshard(self) -> None:
        """Collect the columns of the parameters from all ranks, if this one holds only some."""
        self.sharded = False

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """The optimizer's groups of parameters, each with its learning rate.

        Args:
            lr: The learning rate of training.

        Returns:
            Parameter groups for `torch.optim.Adam`.
        """
        return [{"params": list(self.parameters()), "lr": lr}]

    @property
    def device(self) -> torch.device:
        """The device of the model's tensors."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.device("cpu")

    def store(self, name: str, tensor: Tensor) -> None:
        """Register or replace a buffer that scoring needs; it is saved with the run.

        Args:
            name: Name of the attribute.
            tensor: Its value.

        Examples:
            >>> import torch
            >>> import itemfold as ir
            >>> model = ir.models.Popularity()
            >>> model.store("counts", torch.tensor([3.0, 1.0]))
            >>> model.counts.tolist()
            [3.0, 1.0]
        """
        owner, _, own = name.rpartition(".")
        part: Any = self.get_submodule(owner)  # the model itself, or a model within
        if own in part._buffers:
            part._buffers[own] = tensor
        else:
            part.register_buffer(own, tensor, persistent=not part.recomputed)
