"""Training steps as CUDA graphs: recorded once and replayed without launch overhead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Step = Callable[[Tensor], Tensor]
WARM_UP = 3  # eager steps before recording, which allocate every workspace


def captured(
    step: Step,
    keys: Tensor,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    also: Sequence[Tensor] = (),
) -> Step:
    """The step as a CUDA graph that is launched as a whole.

    Weights, optimizer state, generator and the tensors in ``also`` are restored after warm-up and
    recording. A step that cannot be recorded, because it synchronises or changes shapes, is
    returned unchanged with a warning.
    """
    before = _Snapshot(optimizer, generator, also)
    static = keys.clone()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())  # for copies that the step reads
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    try:
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                step(static)
        torch.cuda.current_stream().wait_stream(stream)
        before.restore()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            value = step(static)
    except RuntimeError as error:
        warnings.warn(f"training runs without a CUDA graph: {error}", stacklevel=2)
        torch.cuda.synchronize()
        before.restore()
        return step
    before.restore()

    def replay(keys: Tensor, alive: Step = step) -> Tensor:
        # `alive` keeps the tensors that the graph reads from being freed
        static.copy_(keys)
        graph.replay()
        return value.clone()

    return replay


class _Snapshot:
    """A copy of weights, optimizer state and generator, to undo the warm-up steps."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        also: Sequence[Tensor],
    ) -> None:
        self.also = [(tensor, tensor.clone()) for tensor in also]
        self.optimizer, self.generator = optimizer, generator
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.weights = [p.detach().clone() for p in self.parameters]
        self.state = {
            p: {k: v.clone() for k, v in optimizer.state[p].items()}
            for p in self.parameters
            if p in optimizer.state
        }
        self.random = generator.get_state()

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, value in self.also:
            tensor.copy_(value)
        for parameter, weight in zip(self.parameters, self.weights, strict=True):
            parameter.copy_(weight)
            for name, value in self.optimizer.state[parameter].items():
                if parameter in self.state:
                    value.copy_(self.state[parameter][name])
                else:
                    value.zero_()  # the initial state of Adam
        self.generator.set_state(self.random)
