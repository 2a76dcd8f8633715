"""What every model is: a scorer of histories; and what a message-passing model adds to it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemrec.batches import Batch
from itemrec.errors import ItemrecError
from itemrec.graph import Adjacency, Graph, fold_adjacency
from itemrec.scoring import squared_lengths

Pooling = Literal["auto", "mean", "sum", "concat"]


class Model(nn.Module):
    """A scorer: users come as histories, and by their training row where they have one.

    The constructor takes settings only, and its signature is the configuration schema. `setup`
    meets the training data and allocates; afterwards either `fit` solves a closed form or the
    training loop asks for gradients. A subclass that holds everything it needs to score in
    parameters and buffers is saved and loaded without further code.
    """

    paper: ClassVar[str] = ""
    year: ClassVar[int] = 0
    inductive: ClassVar[bool] = True
    why_not_inductive: ClassVar[str] = ""
    explains: ClassVar[bool] = False
    closed_form: ClassVar[bool] = False
    capturable: ClassVar[bool] = True  # a step may be replayed as a CUDA graph
    usual_loss: ClassVar[str] = "item-ndcg"  # what it is trained with unless told otherwise
    usual: ClassVar[Mapping[str, Any]] = MappingProxyType({})  # and with which `TrainConfig`
    own_objective: ClassVar[bool] = False  # `extra_loss` is the whole objective: no list loss
    whole_users: ClassVar[bool] = False  # a batch must be of users, each once
    settings: dict[str, Any] = {}  # noqa: RUF012 - replaced by each constructor, never changed
    n_users: int
    n_items: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Remember every constructor's arguments as the model's settings."""
        super().__init_subclass__(**kwargs)
        if "__init__" not in cls.__dict__:
            return
        original = cls.__init__
        signature = inspect.signature(original)

        def remembering(self: Model, *args: Any, **given: Any) -> None:
            if "settings" not in self.__dict__:  # the outermost constructor is the model's own
                bound = signature.bind(self, *args, **given)
                bound.apply_defaults()
                self.settings = dict(list(bound.arguments.items())[1:])
                for name, parameter in signature.parameters.items():
                    if parameter.kind is parameter.VAR_POSITIONAL:
                        raise ItemrecError(
                            f"{cls.__name__}: settings need names, '*{name}' has none"
                        )
                    if parameter.kind is parameter.VAR_KEYWORD:
                        self.settings |= self.settings.pop(name)
            original(self, *args, **given)

        remembering.__signature__ = signature  # type: ignore[attr-defined]
        cls.__init__ = remembering  # type: ignore[assignment]

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate for this training matrix; ``inductive`` means: users get no parameters."""
        self.n_users, self.n_items = train.shape

    def fit(self, train: sp.csr_array) -> None:
        """Solve a closed form; only called where `closed_form` is true."""
        raise ItemrecError(f"{type(self).__name__} has no closed form")

    def freeze(self, graph: Graph) -> None:
        """Store whatever scoring needs, so that it no longer needs the graph."""

    def extra_loss(
        self,
        graph: Graph,
        batch: Batch,
        encoded: tuple[Tensor, Tensor] | None,
        generator: torch.Generator,
    ) -> Tensor | None:
        """A term of the model's own, added to the list loss; all of it with `own_objective`."""
        return None

    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Called before each epoch, for models that redraw something."""

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Scores of all items for each user, ``[B, items]``; ``users`` is −1 where unknown."""
        raise ItemrecError(f"{type(self).__name__} cannot score")

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Share of each history item in each score ``[len(items), len(history)]``; they add up."""
        raise ItemrecError(f"{type(self).__name__} gives no exact explanations")

    def check_inductive(self) -> None:
        """Refuse the inductive protocol by name where the model cannot score unseen users."""
        if not self.inductive:
            raise ItemrecError(
                f"{type(self).__name__} cannot be used in the inductive protocol: "
                f"{self.why_not_inductive}"
            )

    def check_users(self, users: npt.NDArray[np.int64]) -> None:
        """Refuse unseen users by name where the model cannot score them."""
        if not self.inductive and bool((users < 0).any()):
            raise ItemrecError(
                f"{type(self).__name__} cannot score an unseen user: {self.why_not_inductive}"
            )

    def groups(self, lr: float) -> list[dict[str, Any]]:
        """The optimizer's groups of parameters, each with its learning rate."""
        return [{"params": list(self.parameters()), "lr": lr}]

    @property
    def device(self) -> torch.device:
        """Where the model's tensors live."""
        for tensor in (*self.parameters(), *self.buffers()):
            return tensor.device
        return torch.device("cpu")

    def store(self, name: str, tensor: Tensor) -> None:
        """Register or replace a buffer that scoring needs."""
        if name in self._buffers:
            self._buffers[name] = tensor
        else:
            self.register_buffer(name, tensor)


class EmbeddingModel(Model):
    """A model whose scores are products of a user and an item vector.

    `encode` gives the vectors for training; `freeze` stores them for scoring.
    """

    user_vectors: Tensor
    item_vectors: Tensor

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """User and item vectors ``[users, d], [items, d]``, differentiable."""
        raise ItemrecError(f"{type(self).__name__} has no encoder")

    def encode_step(
        self, graph: Graph, generator: torch.Generator, hops: bool = True
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """`encode` for a training step: with whatever noise or dropout the model trains with.

        The third part are the item vectors of each layer; `pool` makes the final ones of them.
        Without ``hops`` nobody will look at it, and it may be empty.
        """
        users, items = self.encode(graph)
        return users, items, [items]

    def pool(self, layers: list[Tensor]) -> Tensor:
        """One vector a node out of its vectors at all depths; without layers there is but one."""
        return layers[0]

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared length of every user's and item's own parameters, for the L2 term."""
        raise ItemrecError(f"{type(self).__name__} has no L2 term; set 'l2' to 0")

    @torch.no_grad()
    def freeze(self, graph: Graph) -> None:
        """Store final vectors: copies, since an encoder may return its parameters themselves."""
        users, items = self.encode(graph)
        self.store("user_vectors", users.detach().clone(memory_format=torch.contiguous_format))
        self.store("item_vectors", items.detach().clone(memory_format=torch.contiguous_format))

    def fold_in(self, history: sp.csr_array) -> Tensor:
        """Vectors of users known by their history alone, ``[B, d]``."""
        raise ItemrecError(
            f"{type(self).__name__} cannot score an unseen user: {self.why_not_inductive}"
        )

    def vectors_of(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Vectors of known users by row, of the others by their history, ``[B, d]``."""
        self.check_users(users)
        known = users >= 0
        if known.all():
            return self.user_vectors[torch.from_numpy(users).to(self.device)]
        if not known.any():
            return self.fold_in(history)
        out = self.fold_in(history)
        rows = torch.from_numpy(np.flatnonzero(known)).to(self.device)
        out[rows] = self.user_vectors[torch.from_numpy(users[known]).to(self.device)]
        return out

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Products with every item vector."""
        return self.vectors_of(history, users) @ self.item_vectors.T


class GNN(EmbeddingModel):
    """Message passing over the interaction graph; a subclass gives one `layer`.

    ``h⁰`` are free vectors of the items and, in the transductive protocol, of the users; in the
    inductive protocol users start from zero and are what their items tell them. The final vector
    pools ``h⁰ … hᴸ``. A new user is folded in by running the same layers for that user alone
    against the stored item vectors of each layer: no training graph, no training.

    ``layers`` is 3 in the transductive protocol and 2 in the inductive one unless given (chosen on
    validation, see LOG.md).
    """

    spread: ClassVar[float] = 0.1  # standard deviation of h⁰ before training
    depth: int

    def __init__(self, dim: int = 64, layers: int | None = None, pooling: Pooling = "auto") -> None:
        super().__init__()
        for name, value in (("dim", dim), ("layers", layers)):
            if value is not None and value < 1:
                raise ItemrecError(f"'{name}' must be a positive integer, got {value}")
        if pooling not in ("auto", "mean", "sum", "concat"):
            raise ItemrecError(f"'pooling' must be auto, mean, sum or concat, got {pooling!r}")
        self.dim, self.asked_layers, self.pooling = dim, layers, pooling
        self.pool_by: str = pooling

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Free item vectors, and free user vectors in the transductive protocol."""
        super().setup(train, inductive=inductive, generator=generator)
        self.depth = self.asked_layers or (2 if inductive else 3)
        if self.pooling == "auto":
            self.pool_by = self.automatic_pooling(inductive)
        self.item_embedding = nn.Parameter(
            torch.randn(self.n_items, self.dim, generator=generator) * self.spread
        )
        self.user_embedding = (
            None
            if inductive
            else nn.Parameter(
                torch.randn(self.n_users, self.dim, generator=generator) * self.spread
            )
        )
        self.make_layers(generator)

    def automatic_pooling(self, inductive: bool) -> str:
        """The paper pools by sum, except for LightGCN in the transductive protocol."""
        return "sum"

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate the layers' own weights, if there are any."""

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """One step: what listeners (``own``) become after hearing ``source``."""
        raise ItemrecError(f"{type(self).__name__} has no layer")

    def base(self, graph: Graph) -> Tensor:
        """``h⁰`` of all nodes, ``[nodes, d]``; users without parameters start from zero."""
        own = () if self.user_embedding is None else (self.user_embedding,)
        known = sum(len(part) for part in own)
        nothing = self.item_embedding.new_zeros(graph.n_users - known, self.dim)
        return torch.cat([*own, nothing, self.item_embedding])

    def layers(self, graph: Graph) -> list[Tensor]:
        """``h⁰ … hᴸ`` of all nodes."""
        out = [self.base(graph)]
        for depth in range(self.depth):
            out.append(self.layer(depth, graph, out[-1], out[-1]))
        return out

    def pool(self, layers: list[Tensor]) -> Tensor:
        """One vector a node out of its vectors at all depths."""
        if self.pool_by == "concat":
            return torch.cat(layers, dim=-1)
        total = layers[0]
        for layer in layers[1:]:
            total = total + layer
        return total / len(layers) if self.pool_by == "mean" else total

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Message passing, then pooling."""
        users, items = halves(graph, self.pool(self.layers(graph)))
        return users, items

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """`layers` with the noise or dropout of a training step, where a model has any."""
        return self.layers(graph)

    def encode_step(
        self, graph: Graph, generator: torch.Generator, hops: bool = True
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """`training_layers`, then pooling."""
        layers = self.training_layers(graph, generator)
        users, items = halves(graph, self.pool(layers))
        return users, items, [layer[graph.n_users :] for layer in layers]

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared lengths at layer 0; users without parameters have length 0."""
        items = squared_lengths(self.item_embedding)
        if self.user_embedding is None:
            return items.new_zeros(self.n_users), items
        return squared_lengths(self.user_embedding), items

    @torch.no_grad()
    def freeze(self, graph: Graph) -> None:
        """Store final vectors, and what folding in needs: item vectors of each layer, degrees."""
        layers = self.layers(graph)
        pooled = self.pool(layers)
        self.store("user_vectors", pooled[: graph.n_users].contiguous())
        self.store("item_vectors", pooled[graph.n_users :].contiguous())
        self.store("item_degree", graph.item_degree.clone())
        self.store_fold([layer[graph.n_users :] for layer in layers[:-1]])

    item_degree: Tensor
    fold_layers: Tensor

    def store_fold(self, item_layers: list[Tensor]) -> None:
        """Keep the item vectors that new users will listen to, ``[L, items, d]``."""
        self.store("fold_layers", torch.stack(item_layers))

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """The layers once more, for these users alone against stored item vectors."""
        adjacency = fold_adjacency(history, self.item_degree)
        own = self.item_vectors.new_zeros(history.shape[0], self.dim)
        out = [own]
        for depth in range(self.depth):
            own = self.layer(depth, adjacency, self.fold_layers[depth], own)
            out.append(own)
        return self.pool(out)


def halves(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Users and items of all nodes; a split's gradient is one copy, that of two slices four."""
    users, items = torch.split(nodes, [graph.n_users, graph.n_items])
    return users, items
