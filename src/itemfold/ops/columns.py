"""Tables whose columns are divided among ranks: sums of products, unit rows, whole tables.

With some columns of the user and the item vectors, a rank computes a part of every product; the sum
over the ranks is the score. With one rank every function is the plain operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold import ranks
from itemfold.ops.pair_scores import squared_lengths

ROWS = 16384  # rows drawn at a time
EXACT = 16  # torch draws normal numbers in groups of this size


def sum_over_ranks(part: Tensor) -> Tensor:
    """The sum of a product's parts, which is overwritten; its gradient is that of every part.

    Every rank computes the same from the same sum, so the gradient needs no exchange.
    """
    if ranks.size() == 1:
        return part
    out: Tensor = _Sum.apply(part)  # type: ignore[no-untyped-call]
    return out


def sum_own_rows(part: Tensor) -> Tensor:
    """Own rows of the sum of a product's parts, ``[B, n] → [b, n]``.

    The loss of a batch is the mean over its rows, so each rank computes that of its own rows. The
    gradient of all rows comes from all ranks.
    """
    if ranks.size() == 1:
        return part
    out: Tensor = _SumOwnRows.apply(part)  # type: ignore[no-untyped-call]
    return out


def whole_rows(part: Tensor, wanted: list[slice]) -> Tensor:
    """All columns of this rank's rows, ``[B, d/k] → [b, d]``, to multiply them.

    ``wanted`` are the rows of each rank, which may overlap. If a rank has fewer columns than
    another, zeros take their place, which changes no product.
    """
    if ranks.size() == 1:
        return part[wanted[0]]
    missing = ranks.largest(part.shape[1]) - part.shape[1]
    part = F.pad(part, (0, missing)) if missing else part
    out: Tensor = _WholeRows.apply(part, wanted)  # type: ignore[no-untyped-call]
    return out


def unit_rows(table: Tensor) -> Tensor:
    """Rows of length one, ``[..., d]``; the length is that of all columns."""
    if ranks.size() == 1:
        return F.normalize(table, dim=-1)
    flat = table.reshape(-1, table.shape[-1])
    squares: Tensor = _SumBothWays.apply(squared_lengths(flat))  # type: ignore[no-untyped-call]
    length = squares.sqrt().clamp(min=1e-12)
    return (flat / length.unsqueeze(1)).view(table.shape)


def drawn(n: int, width: int, columns: slice, draw: Callable[[int], Tensor]) -> Tensor:
    """Some columns of a random table; ``draw`` gives its next rows, ``[rows, width]``.

    The rows are drawn block by block: a rank never holds the whole table, and its columns are those
    that one draw of all rows would have given.
    """
    if columns == slice(0, width):
        return draw(n)
    starts = list(range(0, max(n - EXACT, 1), ROWS))
    counts = [b - a for a, b in zip(starts, [*starts[1:], n], strict=True)]
    return torch.cat([draw(count)[:, columns] for count in counts])


def whole(part: Tensor, width: int) -> Tensor:
    """All columns of a table of which every rank has its own; all ranks call it together.

    The part may be several tables side by side, as concatenated layers are; so is the result.
    """
    own = ranks.own_columns(width)
    parts = part.reshape(*part.shape[:-1], -1, own.stop - own.start)
    out = part.new_empty(*parts.shape[:-1], width)
    for source, columns in enumerate(ranks.column_slices(width)):
        piece = parts.new_empty(*parts.shape[:-1], columns.stop - columns.start)
        if source == ranks.rank():
            piece.copy_(parts.detach())
        ranks.broadcast(piece, source)
        out[..., columns] = piece
    return out.flatten(-2)


def whole_on_first(part: Tensor, width: int) -> Tensor:
    """`whole` in the memory of the first rank alone; the other ranks return their part."""
    if not ranks.is_first():
        ranks.send_to_first(part)
        return part
    out = torch.empty(len(part), width, dtype=part.dtype)
    for source, columns in enumerate(ranks.column_slices(width)):
        shape = (len(part), columns.stop - columns.start)
        out[:, columns] = ranks.receive(shape, part.dtype, source) if source else part.detach()
    return out


def map_tables(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """The same dictionaries and lists with a function applied to every table, ``[n, d]``."""
    if isinstance(tree, Tensor):
        return function(tree) if tree.dim() == 2 else tree
    if isinstance(tree, dict):
        return {key: map_tables(value, function) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_tables(value, function) for value in tree]
    return tree


def own_part(table: Tensor) -> Tensor:
    """This rank's columns of a whole table, in memory of their own."""
    part = table[:, ranks.own_columns(table.shape[1])]
    return part.clone(memory_format=torch.contiguous_format)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        return ranks.add_up(part.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _SumOwnRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        ctx.count = len(part)
        return ranks.add_up_rows(part.detach().contiguous())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ranks.all_rows(grad, ctx.count)


class _WholeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, wanted: list[slice]) -> Tensor:
        ctx.wanted, ctx.count = wanted, len(part)
        lengths = [rows.stop - rows.start for rows in wanted]
        own = [lengths[ranks.rank()]] * ranks.size()
        found = ranks.swap(torch.cat([part.detach()[rows] for rows in wanted]), lengths, own)
        return torch.cat(torch.split(found, own), dim=1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        lengths = [rows.stop - rows.start for rows in ctx.wanted]
        parts = torch.cat(grad.chunk(ranks.size(), dim=1))
        found = ranks.swap(parts, [len(grad)] * ranks.size(), lengths)
        out = found.new_zeros(ctx.count, found.shape[1])
        for rows, part in zip(ctx.wanted, torch.split(found, lengths), strict=True):
            out[rows] += part
        return out, None


class _SumBothWays(_Sum):
    """A sum that every rank uses for columns of its own: its gradient is summed as well."""

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return ranks.add_up(grad.clone(memory_format=torch.contiguous_format))
