"""Adam without the compiler of torch, whose import takes more than a second."""

from __future__ import annotations

import inspect

import torch
from torch import optim


class Adam(optim.Adam):
    """`torch.optim.Adam` for training that is not compiled: the same steps and the same state.

    torch wraps these methods so that its compiler leaves them alone, and the first call imports it.
    """

    add_param_group = inspect.unwrap(optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(optim.Adam.zero_grad)
    state_dict = inspect.unwrap(optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(optim.Adam.step))
