"""Adam without torch's compiler: the same steps and state, and a quicker start."""

import subprocess
import sys

import torch

from itemfold.training.adam import Adam

TRAIN = """
import sys
import itemfold as ir
split = ir.split_interactions(ir.load("synthetic:users=40,items=40,interactions=400"))
ir.train(split, ir.models.LightGCN(dim=4), epochs=1, device="cpu")
print(*(name for name in ("torch._dynamo", "scipy.stats", "sympy") if name in sys.modules))
"""


def descended(kind: type[torch.optim.Adam], again: bool) -> tuple[list[torch.Tensor], dict]:
    """Weights and state after some steps, in the middle of which the state may be loaded again."""
    generator = torch.Generator().manual_seed(0)
    weights = [torch.nn.Parameter(torch.randn(5, 3, generator=generator)) for _ in range(2)]
    groups = [{"params": [weights[0]], "lr": 0.1}, {"params": [weights[1]], "lr": 0.01}]
    optimizer = kind(groups, fused=True)
    for step in range(6):
        optimizer.zero_grad(set_to_none=True)
        sum((weight**2).sum() for weight in weights).backward()
        optimizer.step()
        if again and step == 2:
            state, optimizer = optimizer.state_dict(), kind(groups, fused=True)
            optimizer.load_state_dict(state)
    return weights, optimizer.state_dict()


def test_steps_and_state_are_those_of_torch() -> None:
    for again in (False, True):
        (ours, own), (theirs, their) = (descended(kind, again) for kind in (Adam, torch.optim.Adam))
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
        assert own["param_groups"] == their["param_groups"]
        for number, state in their["state"].items():
            assert all(torch.equal(own["state"][number][key], state[key]) for key in state)


def test_training_imports_neither_the_compiler_nor_statistics() -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
