"""Adam without the compiler of torch, whose import takes more than a second."""

from __future__ import annotations

import inspect

import torch
from torch import optim


class Adam(optim.Adam):
    """`torch.optim.Adam` with the same steps and state, without the wrappers for `torch.compile`.

    torch wraps these methods to exclude them from compilation, and the first call of a wrapped
    method imports the compiler.
    """

    add_param_group = inspect.unwrap(optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(optim.Adam.zero_grad)
    state_dict = inspect.unwrap(optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(optim.Adam.step))
