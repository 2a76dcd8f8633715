"""Message passing with noise after every layer; the gradient ignores the noise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold import ranks
from itemfold.graph.graph import Graph
from itemfold.graph.propagation import first_messages, normalised_sum, propagation_step
from itemfold.ops.columns import drawn
from itemfold.ops.segment import fused


def noisy_passes(
    graph: Graph,
    x: Tensor,
    depth: int,
    noise: Sequence[float],
    generator: torch.Generator,
    width: int | None = None,
) -> list[list[Tensor]]:
    """``h⁰ = x … hᴸ`` of one pass per ε in ``noise``, where ``hˡ⁺¹ = disturb(Â hˡ, ε)``.

    All passes start from the same ``Â x``. The noise depends on a vector only through its signs,
    which have no slope: every pass has the gradient of the layers without noise, and one backward
    pass serves all of them, by Horner's rule ``y ← g_l + Â y`` with ``g_l`` summed over the passes.
    ``width`` is the length of a vector if ``x`` may hold only the columns of this rank.
    """
    width = width or x.shape[1]
    flat = _NoisyPasses.apply(x, graph, depth, noise, generator, width)  # type: ignore[no-untyped-call]
    return [[x, *flat[at : at + depth]] for at in range(0, len(flat), depth)]


def disturb(x: Tensor, epsilon: float, generator: torch.Generator, width: int) -> Tensor:
    """Move every row by ``epsilon``, away from zero in each coordinate; in place.

    ``x + ε · sign(x) ⊙ n/|n|`` with ``n ~ U(0, 1)ᵈ``.
    """

    def draw(rows: int) -> Tensor:
        return torch.rand(rows, width, generator=generator, device=x.device, dtype=x.dtype)

    if fused(x) and ranks.size() == 1:
        from itemfold.ops.triton.noise import add_noise

        return add_noise(x, draw(len(x)), epsilon)
    own = ranks.own_columns(width)
    noise = drawn(len(x), width, own, lambda rows: F.normalize(draw(rows), dim=1))
    return x.addcmul_(torch.sign(x), noise, value=epsilon)


class _NoisyPasses(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        graph: Graph,
        depth: int,
        noise: Sequence[float],
        generator: torch.Generator,
        width: int,
    ) -> tuple[Tensor, ...]:
        ctx.graph, ctx.depth = graph, depth
        first, out = normalised_sum(graph, x), list[Tensor]()
        for epsilon in noise:
            messages = first.clone()
            for at in range(depth):
                messages = normalised_sum(graph, messages) if at else messages
                out.append(disturb(messages, epsilon, generator, width) if epsilon else messages)
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        layer_grads = [reduce(torch.add, grads[at :: ctx.depth]) for at in range(ctx.depth)]
        out, messages = layer_grads[-1], first_messages(ctx.graph, None, layer_grads[-1])
        for below in reversed((None, *layer_grads[:-1])):  # the gradient of the layer below
            out, messages = propagation_step(
                ctx.graph, None, messages, below, sends=below is not None
            )
        return out, None, None, None, None, None
