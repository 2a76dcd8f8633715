"""Hybrid: the sum of a graph neural network, a popularity prior and a linear item–item model.

For a user u with history H, each part is divided by its standard deviation over the catalogue:

    score(u, i) = w · û·ê_i |e_i|^norm / σ  +  prior · log popularity(i)  +  w' · Σ_{h∈H} W_hi / σ'

The network is trained on cosines with negatives drawn by popularity, so it learns how much more a
user likes an item than everybody does. The prior adds what everybody likes, or has liked recently.
The linear part knows which items go together. `prior` and the weights w are selected on validation.
Any other model can be added as a part with its own weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.data.csr import row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Explainer, Kind, Model
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.hybrid_settings import (
    Rows,
    as_list,
    check_blend,
    check_half_life,
    is_network,
    make_part,
    networks,
    shown_part,
)
from itemfold.models.popularity import log_popularity
from itemfold.models.score_deviation import NetworkScores, deviation, standardise_
from itemfold.validation import at_least_zero

TYPICAL_PRIOR, TYPICAL_WEIGHT = 0.4, 1.5  # of a network on cosines and of the linear part


class Hybrid(Model):
    """The sum of a message-passing network, popularity and a linear item–item model; the default.

    Pass a part as a model, as its name, or as a table of its settings. Settings left open, such as
    `l2` of `RLAE`, are selected on validation; `dim` of a network that is not passed as a model
    depends on the device. A score is a sum over the history, the user's own vector and the item's
    popularity, so explanations are exact if those of all parts are.

    Args:
        gnn: The network, a model with vectors that can fold in unseen users; None: no network.
        linear: The linear model, or any other closed form; None: no linear part.
        others: Additional models, each weighted on validation. Default: ItemKNN, if the validation
            part is a later period and ItemKNN improves it; it suits new users with short histories.
        norm: Exponent of the length of an item's vector; 0 is the cosine, 1 the inner product.
        blend: Rows of (minimum history length, weight of popularity, weight of recent popularity,
            weight of each part); the last row that applies to a user is used. Default: selected on
            validation.
        new_blend: The same for users who are not in the training data; default: as `blend`, or
            selected on validation if it has both new and known users.
        popularity_half_life: Age at which the weight of an interaction in recent popularity has
            halved, such as "12h" or "30d", or "never". Default: selected on validation if the
            validation part is a later period, else "never".
        half_life: The same for the linear part, the messages and the histories, or "never".
            Default: as above.
        **old: Settings of the parts under their names of release 0.2, such as `linear_l2`.

    Raises:
        ItemfoldError: A setting is invalid, or the network cannot fold in unseen users.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> model = ir.models.Hybrid(gnn=ir.models.LightGCN(dim=8), linear=ir.models.RLAE(l2=50.0))
        >>> run = ir.train(split, model, epochs=2)
        >>> picks = ir.Recommender(run).recommend(history=[3, 5], k=1, explain=True)
        >>> rest = picks[0].score - sum(reason.share for reason in picks[0].reasons)
        >>> abs(rest - picks[0].own) < 1e-5
        True
    """

    paper = "itemfold: a network, a prior by popularity and a linear model, summed"
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
    chooses = (
        *("loss", "negatives", "train.batch", "train.batch_by", "train.lr", "train.l2"),
        *("train.similarity", "train.n_negatives", "train.epochs", "train.eval_every"),
        "train.patience",
    )
    moved = MappingProxyType(
        {"dim": "gnn.dim", "layers": "gnn.layers", "keep": "linear.keep"}
        | {
            f"linear_{name}": f"linear.{name}"
            for name in ("l2", "item_power", "user_power", "dropout", "relax", "items")
        }
        | {"linear_form": "linear.form", "linear_neighbours": "linear.neighbours"}
    )

    gnn: EmbeddingModel | None
    linear: Model | None
    popularity: Tensor  # log of the number of interactions, scaled to deviation 1, [items]
    recent_popularity: Tensor  # the same of recent interactions

    def __init__(
        self,
        gnn: Model | Mapping[str, Any] | str | None = "lightgcn",
        linear: Model | Mapping[str, Any] | str | None = "rlae",
        others: Sequence[Model | Mapping[str, Any] | str] | None = None,
        norm: float = 0.5,
        blend: Sequence[Sequence[float]] | None = None,
        new_blend: Sequence[Sequence[float]] | None = None,
        popularity_half_life: str | None = None,
        half_life: str | None = None,
        **old: Any,
    ) -> None:
        super().__init__()
        given: dict[str, Any] = {"gnn": gnn, "linear": linear, "others": others}
        if old:
            unknown = [name for name in old if name not in self.moved]
            if unknown:
                raise ItemfoldError(
                    f"'Hybrid' has no setting {unknown[0]!r}; its settings are: "
                    "gnn, linear, others, norm, blend, new_blend, popularity_half_life, half_life"
                )
            given = self.current_settings({**given, **old})
        at_least_zero(norm=norm)
        network, recorded_gnn = make_part("gnn", given["gnn"], "lightgcn")
        self.linear, recorded_linear = make_part("linear", given["linear"], "rlae")
        made = [make_part("others", each, "") for each in as_list(given["others"])]
        self.others = nn.ModuleList(part for part, _ in made if part is not None)
        if self.linear is not None and self.linear.kind is not Kind.CLOSED_FORM:
            raise ItemfoldError(
                "'linear' must be a closed form, such as rlae or ease, got "
                f"{type(self.linear).__name__}; give other models as 'others'"
            )
        if any(part is None or part.kind is Kind.HYBRID for part, _ in made):
            raise ItemfoldError("'others' must be a list of models except hybrids")
        if network is not None and not is_network(type(network)):
            raise ItemfoldError(
                f"'gnn' must be a network that folds in unseen users: {', '.join(networks())}; "
                f"got {shown_part(given['gnn'])}"
            )
        self.gnn = network  # type: ignore[assignment] # checked above
        self.norm, self.blend = norm, check_blend("blend", blend, len(self.parts))
        self.new_blend = check_blend("new_blend", new_blend, len(self.parts))
        check_half_life("popularity_half_life", popularity_half_life)
        check_half_life("half_life", half_life)
        self.popularity_half_life, self.half_life = popularity_half_life, half_life
        self.settings = {
            "gnn": recorded_gnn,
            "linear": recorded_linear,
            "others": None if given["others"] is None else tuple(recorded for _, recorded in made),
            "norm": norm,
            "blend": self.blend,
            "new_blend": self.new_blend,
            "popularity_half_life": popularity_half_life,
            "half_life": half_life,
        }
        self.explains = all(part.explains for part in self.parts)
        weighted = all(part.weighs for part in self.parts)
        uses = [use for part in self.parts for use in part.weighs] if weighted else []
        self.weighs = tuple(dict.fromkeys(uses))
        self._scaled: tuple[Tensor, NetworkScores] | None = None
        if self.gnn is not None:
            self.gnn.recomputed = True  # final vectors are computed on loading instead of stored
            for name, vectors in list(self.gnn.named_buffers(recurse=False)):
                delattr(self.gnn, name)
                self.gnn.store(name, vectors)

    @property
    def parts(self) -> list[Model]:
        """The models that are summed with the prior."""
        return [part for part in (self.gnn, self.linear, *self.others) if part is not None]

    @property
    def network(self) -> Model:
        """The network, or else the first part, or else the hybrid itself."""
        return next(iter(self.parts), self)

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Set up all parts and count the interactions of every item."""
        super().setup(train, inductive=inductive, generator=generator)
        device = self.device
        for part in self.parts:
            part.setup(train, inductive=inductive, generator=generator)
        self.to(device)
        self.count(train)

    def count(self, train: sp.csr_array, recent: sp.csr_array | None = None) -> None:
        """Store the number of users and items, and the popularity of the items.

        ``recent`` has the same interactions, weighted by `popularity_half_life`.
        """
        self.n_users, self.n_items = train.shape
        popularity, _ = log_popularity(train, self.device)
        self.store("popularity", popularity)
        if recent is not None:
            self.store("recent_popularity", log_popularity(recent, self.device)[0])

    def restore(self, train: sp.csr_array) -> None:
        """Recompute the final vectors, which are not stored."""
        for part in self.parts:
            if part is not self.gnn:
                part.restore(train)
        if self.gnn is not None:
            self.cache_embeddings(Graph.from_csr(train, self.gnn.device))

    def replace_interactions(self, train: sp.csr_array) -> None:
        """Replace the interactions that parts store."""
        for part in self.parts:
            part.replace_interactions(train)

    @torch.no_grad()
    def cache_embeddings(self, graph: Graph) -> None:
        """Compute the network's vectors by message passing over the whole graph."""
        if self.gnn is not None:
            self.gnn.cache_embeddings(graph)

    @property
    def table(self) -> Tensor:
        """Item vectors of length |e|^norm, ``[items, d]``."""
        return self._network_scores().table

    def _network_scores(self) -> NetworkScores:
        """What the network's scores are computed from; cached until its vectors change."""
        assert self.gnn is not None
        if self._scaled is None or self._scaled[0] is not self.gnn.item_vectors:
            vectors = self.gnn.item_vectors
            length = vectors.norm(dim=1, keepdim=True).clamp(min=1e-12)
            self._scaled = vectors, NetworkScores(vectors * length.pow(self.norm - 1))
        return self._scaled[1]

    def unshard(self) -> None:
        """Collect the columns of the network's parameters."""
        if self.gnn is not None:
            self.gnn.unshard()
        super().unshard()

    def check_inductive(self) -> None:
        """Raise if one of the parts cannot score unseen users."""
        for part in self.parts:
            part.check_inductive()

    def part_scores(
        self, history: sp.csr_array, users: npt.NDArray[np.int64]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Scores of each part, ``[B, items]``, and their standard deviations, ``[B, 1]``."""
        for part in self.parts:
            if part is self.gnn:
                yield self._network_scores()(self.gnn.vectors_of(history, users))
            else:
                scores = part.scores(history, users)
                yield scores, deviation(scores)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """The sum of the parts and the prior."""
        return self._scores_and_deviations(history, users)[0]

    def _scores_and_deviations(
        self, history: sp.csr_array, users: npt.NDArray[np.int64]
    ) -> tuple[Tensor, list[Tensor]]:
        """The sum of the parts and the prior, and the deviation of each part, ``[B, 1]``."""
        prior, recent, *weights = self.blend_of(history, users)
        total: Tensor | None = None
        stds = []
        for weight, (scores, std) in zip(weights, self.part_scores(history, users), strict=True):
            stds.append(std)
            if total is None:
                total = scores.mul_(weight / std).addcmul_(prior, self.popularity)
            else:
                total.addcmul_(weight / std, scores)
        if total is None:
            total = prior * self.popularity
        if bool(recent.any()):
            total.addcmul_(recent, self.recent_popularity)
        return total, stds

    def blend_of(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> list[Tensor]:
        """Weights of popularity, recent popularity and the parts for each user, ``[B, 1]`` each."""
        length, out = liked_items(history), np.empty((len(users), 2 + len(self.parts)), np.float32)
        for is_new, blend in ((False, self.blend), (True, self.new_blend or self.blend)):
            rows = np.asarray(blend or self.typical_blend(), dtype=np.float32)  # [groups, 3 + n]
            group = np.searchsorted(rows[:, 0], length, side="right") - 1
            chosen = rows[np.maximum(group, 0), 1:]
            out[(users < 0) == is_new] = chosen[(users < 0) == is_new]
        return list(torch.split(torch.from_numpy(out).to(self.popularity.device), 1, dim=1))

    def typical_blend(self) -> Rows:
        """The blend to use without validation data."""
        kinds = {id(self.gnn): "network", id(self.linear): "linear"}
        prior, weights = typical_weights([kinds.get(id(part), "other") for part in self.parts])
        return ((0.0, prior, 0.0, *weights),)

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Contributions of history items; the rest is popularity and the user's vector."""
        return self.scores_and_explainer(history, user)[1](items)

    @torch.no_grad()
    def scores_and_explainer(self, history: sp.csr_array, user: int) -> tuple[Tensor, Explainer]:
        """Scores for one user, and a function that explains them with the same deviations."""
        row = np.array([user], dtype=np.int64)
        scores, stds = self._scores_and_deviations(history, row)
        return scores, partial(self._shares, history, user, stds)

    @torch.no_grad()
    def _shares(
        self, history: sp.csr_array, user: int, stds: list[Tensor], items: Tensor
    ) -> Tensor:
        """Contributions of the history through all parts, each divided by the part's deviation."""
        _, _, *weights = self.blend_of(history, np.array([user]))
        total = torch.zeros(len(items), history.nnz, device=self.popularity.device)
        for part, weight, std in zip(self.parts, weights, stds, strict=True):
            scale = weight / std
            if part is self.gnn:
                length = self.gnn.item_vectors[items].norm(dim=1).clamp(min=1e-12)
                scale = scale[0] * (self.table[items].norm(dim=1) / length).unsqueeze(1)
            total += part.explain(history, user, items) * scale
        return total

    def popularity_part(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """prior · log popularity, all-time and recent."""
        prior, recent, *_ = self.blend_of(history, np.array([user]))
        out = self.popularity[items] * prior[0]
        if bool(recent.any()):
            out += self.recent_popularity[items] * recent[0]
        return out

    @torch.no_grad()
    def similar_to(self, item: int) -> Tensor:
        """Cosines of item vectors and weights of the linear part, each standardised."""
        _, _, *weights = self.blend_of(sp.csr_array((1, self.n_items)), np.zeros(1, np.int64))
        total: Tensor | None = None
        for part, weight in zip(self.parts, weights, strict=True):
            if part in (self.gnn, self.linear) or part.explains:
                found = torch.nan_to_num(part.similar_to(item), neginf=0.0).unsqueeze(0)
                found = standardise_(found) * weight.to(found)
                total = found if total is None else total + found
        if total is None:
            raise ItemfoldError("no part of this hybrid can compare items")
        return total[0]


def typical_weights(parts: Sequence[str]) -> tuple[float, tuple[float, ...]]:
    """Weights of popularity and of each part without validation data."""
    if "network" not in parts:
        only_first = tuple(float(place == 0) for place in range(len(parts)))
        return 0.0 if parts else TYPICAL_PRIOR, only_first
    typical = {"network": 1.0, "linear": TYPICAL_WEIGHT}
    return TYPICAL_PRIOR, tuple(typical.get(part, 0.0) for part in parts)


def liked_items(history: sp.csr_array) -> npt.NDArray[np.int64]:
    """Number of items in each history without dislikes, ``[B]``."""
    length: npt.NDArray[np.int64] = np.diff(history.indptr).astype(np.int64)
    disliked = history.data < 0
    if disliked.any():
        length -= np.bincount(row_of_entry(history)[disliked], minlength=len(length))
    return length
