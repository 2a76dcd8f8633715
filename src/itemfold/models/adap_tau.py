"""Adap-τ: a cosine softmax on LightGCN with adaptive temperatures.

Chen et al., "Adap-τ: Adaptively Modulating Embedding Magnitude for Recommendation", WWW 2023. With
cosines c, the other positives of a batch as negatives, and D the interactions of users U and items
I:

    L = mean_(u,p) −c_up/τ₀ + log Σ_j e^{c_uj/τ_u}
    1/τ₀ = ln(|U||I| / 2|D|) / (mean c over D − mean c over U×I)
    1/τ_u = 1/τ₀ · exp(−W(max(−1/e, (L_u − L̄)/β)))            W: Lambert's

A user with the mean loss has τ₀; a user with a higher loss L_u has a higher temperature, one with a
lower loss a lower one, at least τ₀/e. L_u is u's loss at temperature 1. All L_u are computed at the
start of each epoch from the current weights, with the items of newly drawn interactions as
negatives (the distribution of the batches): no state is kept between epochs, so a resumed run
equals an uninterrupted one. The difference of means is at least 0.1, since before training it may
be close to 0.

The model has its own objective: no list loss, no sampler, message dropout at every depth (the
temperatures are computed without it, as in the authors' code), and a separate L2 term on the
batch's vectors at every depth. Ranking uses plain products, as in the authors' LightGCN. The
temperatures are used in training only, so users without parameters need no special handling.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.base import Kind
from itemfold.models.gnn import Pooling
from itemfold.models.linear_gnn import LinearGNN
from itemfold.models.random_values import drop_values
from itemfold.ops.pair_scores import squared_lengths, take_rows
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import OwnInBatch
from itemfold.validation import at_least_zero, positive, share_below_one

DRAWN = 2048  # interactions whose items are the negatives in a user's loss
LEAST_GAP = 0.1


class AdapTau(LinearGNN):
    """Cosine softmax on LightGCN with adaptive temperatures (WWW 2023).

    It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean,
            or the sum in the inductive protocol.
        beta: How much a user's loss changes its temperature, β.
        l2: Strength of the L2 penalty on the vectors of a batch at every depth.
        dropout: Fraction of each layer's output that is dropped in training.
    """

    paper = "Adap-τ: Adaptively Modulating Embedding Magnitude for Recommendation"
    year = 2023
    weighs = ()  # temperatures depend on the number of interactions
    default_training = MappingProxyType({"batch_by": "interactions", "lr": 1e-3})
    init_std = 0.01  # the authors' initial scale
    kind = Kind.OWN_OBJECTIVE

    general: Tensor  # 1/τ₀, scalar
    personal: Tensor  # 1/τ_u [users]

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        beta: float = 1.5,
        l2: float = 0.1,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(dim, layers, pooling)
        positive(beta=beta)
        at_least_zero(l2=l2)
        share_below_one(dropout=dropout)
        self.beta, self.l2, self.dropout = beta, l2, dropout
        self.negatives = OwnInBatch()

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate vectors and temperatures."""
        super().setup(train, inductive=inductive, generator=generator)
        start = 10.0  # τ = 0.1 until the first epoch starts
        self.register_buffer("general", torch.tensor(start), persistent=False)
        self.register_buffer("personal", torch.full((self.n_users,), start), persistent=False)

    @torch.no_grad()
    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Update the temperatures in place, since a recorded step may read them."""
        users, items = (F.normalize(x, dim=1) for x in self.encode(graph))
        general, personal = temperatures(graph, users, items, self.beta, generator)
        self.general.copy_(general)
        self.personal.copy_(personal)

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """The layers with message dropout."""
        out = [self.base(graph)]
        for depth in range(self.depth):
            full = self.layer(depth, graph, out[-1], out[-1])
            out.append(drop_values(full, self.dropout, generator))
        return out

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The softmax over the batch's positives, and the L2 term."""
        layers = self.training_layers(graph, generator)
        pooled, n_users = F.normalize(self.pool(layers), dim=1), graph.n_users
        user_vectors = take_rows(pooled, batch.users)  # [B, d]
        positives = batch.positives.reshape(-1)  # [M], M = B·P
        positive_vectors = take_rows(pooled, n_users + positives)
        cosine = user_vectors @ positive_vectors.T  # [B, M]
        masked = ~self.negatives(graph, batch)
        least = torch.finfo(cosine.dtype).min  # finite: a user may have no negatives
        tempered = (cosine * self.personal[batch.users].unsqueeze(1)).masked_fill(masked, least)
        negative_term = torch.where(masked.all(1), 0.0, tempered.logsumexp(1))  # [B]
        by_list = positive_vectors.view(*batch.mask.shape, -1)  # [B, P, d]
        pos = (user_vectors.unsqueeze(1) * by_list).sum(2)  # [B, P]
        value = masked_mean(negative_term.unsqueeze(1) - pos * self.general, batch.mask)
        lengths = torch.stack([squared_lengths(x) for x in layers]).sum(0)  # over all depths
        norms = lengths[batch.users].unsqueeze(1) + lengths[n_users + batch.positives]  # [B, P]
        return value + self.l2 * masked_mean(norms, batch.mask) / 2


def temperatures(
    graph: Graph, users: Tensor, items: Tensor, beta: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """1/τ₀ and 1/τ_u ``[users]`` for vectors of length 1."""
    general = inverse_general(graph, users, items)
    half = len(graph.col) // 2
    draw = torch.rand(DRAWN, generator=generator, device=users.device, dtype=torch.float64)
    drawn = graph.col[(draw * half).long()].long() - graph.n_users
    known = graph.degree[: graph.n_users] > 0
    losses = torch.logsumexp(users @ items[drawn].T, 1) - mean_positive(graph, users, items)
    mean = torch.where(known, losses, 0.0).sum() / known.sum().clamp(min=1)
    return general, general * personal_factor(losses, mean, beta, known)


def personal_factor(losses: Tensor, mean: Tensor, beta: float, known: Tensor) -> Tensor:
    """τ₀/τ_u = exp(−W((L_u − L̄)/β)), W's argument at least −1/e; 1 for users without a loss."""
    return torch.where(known, torch.exp(-lambert_w((losses - mean) / beta)), 1.0)


def inverse_general(graph: Graph, users: Tensor, items: Tensor) -> Tensor:
    """1/τ₀, at which half of the probability mass at the mean cosines is on the positives."""
    half = len(graph.col) // 2
    degree = graph.degree[: graph.n_users]
    positive = (mean_positive(graph, users, items) * degree).sum() / half
    gap = (positive - users.mean(0) @ items.mean(0)).clamp(min=LEAST_GAP)
    # at least 0.1, for a nearly full matrix
    odds = max(math.log(graph.n_users * graph.n_items / (2 * half)), 0.1)
    return odds / gap


def mean_positive(graph: Graph, users: Tensor, items: Tensor) -> Tensor:
    """Mean cosine of each user with its training items ``[users]``, 0 without any."""
    total = neighbour_sum(graph, torch.cat([torch.zeros_like(users), items]))[: len(users)]
    return (users * total).sum(1) / graph.degree[: len(users)].clamp(min=1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the entries in the mask, 0 without any."""
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)


STEPS = 8  # each step of Halley's method triples the digits


def lambert_w(x: Tensor) -> Tensor:
    """The principal branch: the w ≥ −1 with ``w·eʷ = x``, for x ≥ −1/e (smaller x count as −1/e).

    >>> lambert_w(torch.tensor([0.0, math.e])).tolist()
    [0.0, 1.0]
    """
    wide = x.double().clamp(min=-1 / math.e)
    root = torch.sqrt((2 * (math.e * wide + 1)).clamp(min=0))  # 0 at the branch point
    near = -1 + root - root.square() / 3 + root**3 * (11 / 72)  # the series at the branch point
    log = torch.log(wide.clamp(min=math.e))
    far = log - torch.log(log)  # the asymptote
    w = torch.where(wide < 0.5, near, torch.where(wide > math.e, far, torch.log1p(wide)))
    for _ in range(STEPS):
        exp = torch.exp(w)
        excess = w * exp - wide
        slope = exp * (w + 1) - (w + 2) * excess / (2 * w + 2).clamp(min=1e-12)
        step = excess / slope
        w = torch.where(slope.abs() > 1e-12, w - step, w)  # at w = −1 the series is exact
    return w.clamp(min=-1).to(x.dtype)
