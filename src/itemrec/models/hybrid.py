"""Hybrid: a graph neural network, a prior by popularity and a linear item–item model, summed.

For a user u with history H, every part is divided by its standard deviation over the catalogue:

    score(u, i) = û·ê_i |e_i|^norm / σ  +  prior · log popularity(i)  +  weight · Σ_{h∈H} W_hi / σ'

The network is trained on cosines with negatives drawn by popularity, so it learns how much more a
user likes an item than everybody does; the prior adds what everybody likes. The linear part knows
which items go together. `prior` and `weight` are chosen on validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.data.csr import row_of_entry
from itemrec.errors import ItemrecError
from itemrec.graph.graph import Graph
from itemrec.models.base import Kind, Model
from itemrec.models.ease import FORMS, NEIGHBOURS, Form
from itemrec.models.embedding_model import EmbeddingModel
from itemrec.models.rlae import RLAE
from itemrec.validation import (
    at_least_zero,
    check_settings,
    is_number,
    lookup,
    one_of,
    positive,
    positive_integers,
    schema,
    share_below_one,
)

OF_LINEAR = ("l2", "item_power", "user_power", "dropout", "relax")
BLEND = ((0.0, 0.4, 1.5),)  # without validation data


class Hybrid(Model):
    """A message-passing network and a linear item–item model, summed; the default.

    Every setting that is not given is chosen from the training data and on validation. A score is
    a sum over the history, the user's own vector and the item's popularity, so that explanations
    are exact if the network's are.

    Args:
        gnn: Name of the network: a model with vectors that can fold in unseen users.
        dim: Length of a vector; default: by the size of the data and the device.
        layers: Depth of message passing; default: the network's.
        norm: Exponent of the length of an item's vector; 0 is the cosine, 1 the inner product.
        blend: Rows of (least length of a history, prior, weight); the last row that applies to a
            user is used.
        linear_l2: Regularisation of the linear part; default: all its settings are chosen.
        linear_item_power: Its normalisation by item popularity.
        linear_user_power: Its normalisation by the length of histories.
        linear_dropout: Its dropout of inputs, below 1.
        linear_relax: How far its diagonal may be above 0.
        linear_items: How many items it covers, the most popular ones; default: by the device, and
            all in the sparse form.
        keep: Weights of the linear part that are stored for each item.
        linear_form: Its form, "dense" or "sparse" as in `RLAE`; "auto" is sparse for catalogues of
            more items than the dense form covers.
        linear_neighbours: Items that each item's weights come from in the sparse form.

    Raises:
        ItemrecError: A setting is invalid, or the network cannot fold in unseen users.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.Hybrid(dim=8), epochs=2)
        >>> picks = ir.Recommender(run).recommend(history=[3, 5], k=1, explain=True)
        >>> rest = picks[0].score - sum(reason.share for reason in picks[0].reasons)
        >>> abs(rest - picks[0].own) < 1e-5
        True
    """

    paper = "itemrec: a network, a prior by popularity and a linear model, summed"
    year = 2026
    kind = Kind.HYBRID
    explains = True
    default_loss = "item-log"
    default_negatives = "in-batch"
    default_settings = MappingProxyType({"loss": {"tau": 0.1}, "negatives": {"group": 4096}})
    default_training = MappingProxyType(
        {
            "batch_by": "interactions",
            "batch": 32768,
            "similarity": "cosine",
            "lr": 0.01,
            "epochs": 100,
            "eval_every": 2,
            "patience": 6,
            "min_gain": 0.003,
        }
    )

    gnn: EmbeddingModel
    linear: RLAE
    popularity: Tensor  # log of the number of interactions, scaled to deviation 1, [items]

    def __init__(
        self,
        gnn: str = "lightgcn",
        dim: int | None = None,
        layers: int | None = None,
        norm: float = 0.5,
        blend: tuple[Sequence[float], ...] | None = None,
        linear_l2: float | None = None,
        linear_item_power: float = 0.0,
        linear_user_power: float = 0.0,
        linear_dropout: float = 0.0,
        linear_relax: float = 0.0,
        linear_items: int | None = None,
        keep: int | None = None,
        linear_form: Form = "auto",
        linear_neighbours: int = NEIGHBOURS,
    ) -> None:
        super().__init__()
        self.gnn_name, self.dim, self.layers, self.kept = gnn, dim, layers, keep
        self.norm, self.blend = norm, check_blend(blend)
        self.settings["blend"] = self.blend
        self.linear_l2, self.linear_item_power = linear_l2, linear_item_power
        self.linear_user_power, self.linear_dropout = linear_user_power, linear_dropout
        self.linear_relax, self.linear_items = linear_relax, linear_items
        self.linear_form, self.linear_neighbours = linear_form, linear_neighbours
        one_of("linear_form", linear_form, FORMS)
        positive_integers(linear_neighbours=linear_neighbours)
        at_least_zero(norm=norm)
        at_least_zero(linear_item_power=linear_item_power, linear_user_power=linear_user_power)
        share_below_one(linear_dropout=linear_dropout, linear_relax=linear_relax)
        if linear_l2 is not None:
            positive(linear_l2=linear_l2)
        for name, value in (("dim", dim), ("layers", layers), ("linear_items", linear_items)):
            if value is not None:
                positive_integers(**{name: value})
        self._scaled: tuple[Tensor, Tensor] | None = None
        self.temperature = 0.0  # of the prior until the blend is chosen; 0: inner products
        self.make_network()
        self.make_linear()

    def make_network(self) -> None:
        """The network with the current settings, not yet set up."""
        from itemrec.models import MODELS

        kind = lookup(MODELS, "gnn", self.gnn_name)
        if not is_network(kind):
            able = ", ".join(name for name, model in MODELS.items() if is_network(model))
            raise ItemrecError(
                f"'gnn' must be a network that folds in unseen users: {able}; got {self.gnn_name!r}"
            )
        wanted = {"dim": self.dim, "layers": self.layers}
        given = {k: v for k, v in wanted.items() if v is not None and k in schema(kind)}
        self.gnn = kind(**check_settings(kind, self.gnn_name, given))
        self.gnn.recomputed, self.gnn.sharded = True, self.sharded
        self.explains = self.gnn.explains
        self.weighs = (*self.gnn.weighs, "linear") if self.gnn.weighs else ()

    def make_linear(self) -> None:
        """The linear part with the current settings, not yet set up."""
        names = (*OF_LINEAR, "items", "form", "neighbours")
        settings = {name: getattr(self, f"linear_{name}") for name in names}
        self.linear = RLAE(**settings, keep=self.kept)

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Set up both parts and count the interactions of every item."""
        super().setup(train, inductive=inductive, generator=generator)
        device = self.device
        self.make_network()
        self.make_linear()
        self.gnn.setup(train, inductive=inductive, generator=generator)
        self.to(device)
        self.linear.to(device)
        self.linear.setup(train, inductive=inductive, generator=generator)
        self.count(train)

    def count(self, train: sp.csr_array) -> None:
        """Store the popularity of the items, by weight."""
        count = np.bincount(train.indices, train.data, self.n_items).astype(np.float32)
        logarithm = torch.from_numpy(np.log1p(count)).to(self.gnn.device)
        self.spread = max(float(logarithm.std(correction=0)), 1e-6)
        self.store("popularity", (logarithm - logarithm.mean()) / self.spread)

    def restore(self, train: sp.csr_array) -> None:
        """Compute the final vectors again, which are not stored."""
        self.linear.restore(train)
        self.cache_embeddings(Graph.from_csr(train, self.gnn.device))

    @torch.no_grad()
    def cache_embeddings(self, graph: Graph) -> None:
        """Message passing over the whole graph."""
        self.gnn.cache_embeddings(graph)

    @property
    def table(self) -> Tensor:
        """Item vectors of length |e|^norm, ``[items, d]``; scaled once for each training state."""
        if self._scaled is None or self._scaled[0] is not self.gnn.item_vectors:
            vectors = self.gnn.item_vectors
            self._scaled = vectors, scaled_items(vectors, self.norm)
        return self._scaled[1]

    def unshard(self) -> None:
        """Collect the columns of the network's parameters."""
        self.gnn.unshard()
        super().unshard()

    def check_inductive(self) -> None:
        """Both parts can always fold in."""

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """The sum of the three parts; before the blend is chosen, the network's score alone."""
        vectors = self.gnn.vectors_of(history, users)
        if self.blend is None:
            return self.provisional(vectors)
        prior, weight = self.blend_of(history)
        total = standardised(vectors @ self.table.T)
        total.addcmul_(prior, self.popularity)
        return total.addcmul_(weight, standardised(self.linear.scores(history, users)))

    def provisional(self, vectors: Tensor) -> Tensor:
        """Cosine + τ · log popularity, or the inner product if training used it."""
        items = self.gnn.item_vectors
        if not self.temperature:
            return vectors @ items.T
        scores = F.normalize(vectors, dim=1) @ F.normalize(items, dim=1).T
        return scores.add_(self.popularity, alpha=self.temperature * self.spread)

    def blend_of(self, history: sp.csr_array) -> tuple[Tensor, Tensor]:
        """Prior and weight of each user, by the length of the history, ``[B, 1]`` each."""
        rows = np.asarray(self.blend, dtype=np.float32)  # [groups, 3]
        group = np.searchsorted(rows[:, 0], liked_items(history), side="right") - 1
        chosen = torch.from_numpy(rows[np.maximum(group, 0), 1:]).to(self.table.device)
        return chosen[:, :1], chosen[:, 1:]

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Shares of both parts; the rest is popularity and, if there is one, the user's vector."""
        row = np.array([user], dtype=np.int64)
        _, weight = self.blend_of(history)
        vectors = self.gnn.vectors_of(history, row)
        own = deviation(vectors @ self.table.T)
        length = self.gnn.item_vectors[items].norm(dim=1).clamp(min=1e-12)
        factor = self.table[items].norm(dim=1) / length / own[0]
        shares = self.gnn.explain(history, user, items) * factor.unsqueeze(1)
        spread = deviation(self.linear.scores(history, row))
        total: Tensor = shares + self.linear.explain(history, user, items) * (weight / spread)
        return total

    def popularity_part(self, history: sp.csr_array, items: Tensor) -> Tensor:
        """prior · log popularity."""
        prior, _ = self.blend_of(history)
        return self.popularity[items] * prior[0]

    @torch.no_grad()
    def similar_to(self, item: int) -> Tensor:
        """Cosines of item vectors and weights of the linear part, each standardised."""
        cosines = self.gnn.similar_to(item).unsqueeze(0)
        weights = torch.nan_to_num(self.linear.similar_to(item), neginf=0.0).unsqueeze(0)
        _, weight = self.blend_of(sp.csr_array((1, self.n_items)))
        scores: Tensor = standardised(cosines).addcmul_(weight, standardised(weights))
        return scores[0]


def is_network(kind: type[Model]) -> bool:
    """Whether a model can be the network: vectors that descent trains, also of unseen users."""
    trained = kind.kind is not Kind.CLOSED_FORM
    return issubclass(kind, EmbeddingModel) and kind.inductive and trained


def scaled_items(vectors: Tensor, norm: float) -> Tensor:
    """Item vectors with their length raised to the power ``norm``."""
    length = vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
    out: Tensor = vectors * length.pow(norm - 1)
    return out


def liked_items(history: sp.csr_array) -> npt.NDArray[np.int64]:
    """How many items of each history are not dislikes, ``[B]``."""
    length: npt.NDArray[np.int64] = np.diff(history.indptr).astype(np.int64)
    disliked = history.data < 0
    if disliked.any():
        length -= np.bincount(row_of_entry(history)[disliked], minlength=len(length))
    return length


def deviation(scores: Tensor) -> Tensor:
    """Standard deviation over the catalogue, ``[B, items] → [B, 1]``."""
    return scores.std(1, keepdim=True, correction=0).clamp(min=1e-12)


def standardised(scores: Tensor) -> Tensor:
    """Scores divided by their standard deviation over the catalogue, in place."""
    return scores.div_(deviation(scores))


def check_blend(blend: Any) -> tuple[tuple[float, ...], ...] | None:
    """Rows of three numbers that begin with a history of length 0, or None."""
    if blend is None:
        return None
    rows = tuple(tuple(row) if isinstance(row, list | tuple) else () for row in blend)
    starts = [row[0] for row in rows if _is_row(row)]
    if not rows or len(starts) != len(rows) or starts != sorted({0.0, *starts}):
        raise ItemrecError(
            "'blend' must be rows of (least length of a history, prior, weight) that begin with "
            f"length 0, got {blend!r}"
        )
    return tuple(tuple(float(value) for value in row) for row in rows)


def _is_row(row: tuple[Any, ...]) -> bool:
    return len(row) == 3 and all(is_number(value) and isfinite(value) for value in row)
