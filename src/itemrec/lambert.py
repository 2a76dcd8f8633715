"""Lambert's W, the inverse of w·eʷ, for tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

STEPS = 8  # Halley's method triples the digits each step


def lambert_w(x: Tensor) -> Tensor:
    """The principal branch: the w ≥ −1 with ``w·eʷ = x``, for x ≥ −1/e (smaller x count as −1/e).

    >>> lambert_w(torch.tensor([0.0, math.e])).tolist()
    [0.0, 1.0]
    """
    wide = x.double().clamp(min=-1 / math.e)
    root = torch.sqrt((2 * (math.e * wide + 1)).clamp(min=0))  # 0 at the branch point
    near = -1 + root - root.square() / 3 + root**3 * (11 / 72)  # its series there
    log = torch.log(wide.clamp(min=math.e))
    far = log - torch.log(log)  # the asymptote
    w = torch.where(wide < 0.5, near, torch.where(wide > math.e, far, torch.log1p(wide)))
    for _ in range(STEPS):
        exp = torch.exp(w)
        excess = w * exp - wide
        slope = exp * (w + 1) - (w + 2) * excess / (2 * w + 2).clamp(min=1e-12)
        step = excess / slope
        w = torch.where(slope.abs() > 1e-12, w - step, w)  # at w = −1 the series is exact
    return w.clamp(min=-1).to(x.dtype)
