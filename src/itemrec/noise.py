"""Message passing with noise after every layer, and a gradient that knows nothing of the noise."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.bags import fused
from itemrec.graph import Graph
from itemrec.propagate import normalised_sum, step, tell


def noisy_layers(
    graph: Graph, x: Tensor, depth: int, epsilon: float, generator: torch.Generator
) -> list[Tensor]:
    """``h⁰ = x … hᴸ``, where ``hˡ⁺¹ = disturb(Â hˡ)``; each ``[nodes, d]``.

    Noise depends on a vector by its signs alone, which have no slope. So the gradient is that of
    the layers without noise, by Horner's rule: ``y ← g_l + Â y`` for gradients ``g_l`` of layers.
    """
    return [x, *_NoisyLayers.apply(x, graph, depth, epsilon, generator)]  # type: ignore[no-untyped-call]


def disturb(x: Tensor, epsilon: float, generator: torch.Generator) -> Tensor:
    """Move every row by ``epsilon``, away from zero in each coordinate; in place.

    ``x + ε · sign(x) ⊙ n/|n|`` with ``n ~ U(0, 1)ᵈ``.
    """
    noise = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    if fused(x):
        from itemrec.noise_kernel import add_noise

        return add_noise(x, noise, epsilon)
    return x.addcmul_(torch.sign(x), F.normalize(noise, dim=1), value=epsilon)


class _NoisyLayers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        graph: Graph,
        depth: int,
        epsilon: float,
        generator: torch.Generator,
    ) -> tuple[Tensor, ...]:
        ctx.graph = graph
        out = [x]
        for _ in range(depth):
            out.append(disturb(normalised_sum(graph, out[-1]), epsilon, generator))
        return tuple(out[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        out, told = grads[-1], tell(ctx.graph, None, grads[-1])
        for below in reversed((None, *grads[:-1])):  # what the layer below is asked for itself
            out, told = step(ctx.graph, None, told, below, tells=below is not None)
        return out, None, None, None, None
