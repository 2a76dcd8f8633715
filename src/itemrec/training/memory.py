"""Models that cannot fit into memory are rejected before they are allocated."""

from __future__ import annotations

import torch

from itemrec import ranks
from itemrec.data.split import Split
from itemrec.environment import memory_of
from itemrec.errors import ItemrecError
from itemrec.models.base import Kind, Model

COPIES = 4  # of each weight in training: itself, its gradient and Adam's two moments


def check_memory(model: Model, split: Split, device: torch.device) -> None:
    """Raise if the embeddings of a model need more memory than there is.

    This is a lower bound: a model below it may still be too large.
    """
    dim = model.settings.get("dim")
    if not isinstance(dim, int):
        return
    rows = split.n_items + (split.n_users if split.protocol == "transductive" else 0)
    copies = 1 if model.kind is Kind.CLOSED_FORM else COPIES
    needed, available = 4 * copies * rows * dim // ranks.size(), memory_of(device)
    if needed > available:
        where = "the GPU" if device.type == "cuda" else "this machine"
        raise ItemrecError(
            f"'dim' must be smaller: {rows:,} rows of {dim:,} numbers need at least "
            f"{needed / 2**30:,.0f} GiB in training; {where} has {available / 2**30:,.0f} GiB"
        )
