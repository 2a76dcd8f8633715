import math

import numpy as np
import scipy.special
import torch

from itemrec.models.adap_tau import lambert_w


def test_lambert_w_agrees_with_scipy() -> None:
    x = np.concatenate([[0.0], -1 / math.e + np.logspace(-12, 1, 200), np.logspace(-6, 6, 200)])
    expected = scipy.special.lambertw(x).real
    np.testing.assert_allclose(lambert_w(torch.from_numpy(x)), expected, rtol=1e-6, atol=1e-7)
    w = lambert_w(torch.from_numpy(x))
    np.testing.assert_allclose(w * torch.exp(w), x, rtol=1e-12, atol=1e-14)
    assert lambert_w(torch.tensor([-1 / math.e, -5.0], dtype=torch.float64)).tolist() == [-1, -1]
