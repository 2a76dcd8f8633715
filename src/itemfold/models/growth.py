"""Initial vectors of new users and items for a trained model; the known ones keep theirs.

The vector of a new user is predicted from the messages of its items, by a ridge regression that is
fitted on known users; then the vectors of new items from those of all users. A node without a known
neighbour starts from a random vector as long as those of known nodes.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.models.embedding_model import EmbeddingModel

RIDGE = 1e-3  # of the regression, relative to the mean squared message


def grown_weights(
    old: EmbeddingModel, train: sp.csr_array, generator: torch.Generator
) -> dict[str, Tensor]:
    """Initial weights for a model of the users and items of ``train``, from a trained one.

    Args:
        old: The trained model; its users and items are the first ones of ``train``.
        train: Old and new interactions.
        generator: Random generator of the vectors without neighbours.
    """
    out = {name: weight.detach().clone() for name, weight in old.named_parameters()}
    normal = _normalised(train)
    users, items = old.user_vectors, old.item_vectors
    for name in old.user_tables:
        if name in out:
            out[name] = _grown(out[name], normal, items, generator)
    if len(users) < normal.shape[0]:  # the new users, predicted from the messages of known items
        users = torch.cat([users, _predicted(_messages(normal, items), users)[len(users) :]])
    for name in old.item_tables:
        out[name] = _grown(out[name], sp.csr_array(normal.T), users, generator)
    return out


def check_growth(model: object, name: str) -> None:
    """Raise if a model does not support new users and items."""
    if not isinstance(model, EmbeddingModel) or not model.item_tables:
        raise ItemfoldError(
            f"{name} cannot be updated: train it again on all data with 'itemfold train', or use "
            "the default model, which can be updated"
        )


def _normalised(train: sp.csr_array) -> sp.csr_array:
    """``D^-1/2 X D^-1/2``."""
    degrees = np.diff(train.indptr), np.bincount(train.indices, minlength=train.shape[1])
    left, right = (sp.diags_array(1 / np.sqrt(np.maximum(d, 1.0))) for d in degrees)
    return sp.csr_array(left @ train @ right).astype(np.float32)


def _messages(adjacency: sp.csr_array, vectors: Tensor) -> Tensor:
    """The sums over the neighbours that have vectors, the first ones."""
    known = adjacency[:, : len(vectors)]
    found = sp.csr_array(known) @ vectors.detach().cpu().numpy()
    return torch.from_numpy(np.asarray(found, dtype=np.float32)).to(vectors.device)


def _grown(
    table: Tensor, adjacency: sp.csr_array, sources: Tensor, generator: torch.Generator
) -> Tensor:
    """A table with a row for each row of the adjacency; the old rows are unchanged."""
    n_old, n_new = len(table), adjacency.shape[0]
    if n_old == n_new:
        return table
    messages = _messages(adjacency, sources)
    new = _predicted(messages, table)[n_old:]
    alone = messages[n_old:].abs().sum(1) == 0
    scale = float(table.pow(2).mean().sqrt())
    drawn = torch.randn(new.shape, generator=generator).to(new) * scale
    return torch.cat([table, torch.where(alone.unsqueeze(1), drawn, new)])


def _predicted(messages: Tensor, known: Tensor) -> Tensor:
    """The known vectors as a linear function of the messages to them, for all messages."""
    sources, targets = messages[: len(known)].double(), known.double()
    gram = sources.T @ sources
    ridge = RIDGE * float(gram.diagonal().mean()) + math.ulp(1.0)
    gram.diagonal().add_(ridge)
    fitted = torch.linalg.solve(gram, sources.T @ targets)
    out: Tensor = (messages.double() @ fitted).to(known)
    return out
