"""Whether a gain on validation counts, or is only luck."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from itemfold.data.splitting.split import HeldOut

FEW = 200  # users, with fewer of which the best of many is often only lucky

UserValues = npt.NDArray[np.float64]


def standard_error(gain: UserValues) -> float:
    """Of the mean of users' differences."""
    return float(gain.std() / np.sqrt(max(len(gain), 1)))


def is_clear(gain: UserValues) -> bool:
    """Whether users' differences are above zero beyond noise, with few users by twice as much."""
    return bool(gain.mean() > (2 if len(gain) < FEW else 1) * standard_error(gain))


def has_few(valid: HeldOut | None) -> bool:
    """Whether few users validate, all of them new: then what is typical stays, unless it is bad."""
    return valid is not None and 0 < len(valid) < FEW and bool((valid.users < 0).all())
