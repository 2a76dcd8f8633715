"""Whether a gain on validation is larger than noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from itemfold.data.splitting.split import HeldOut

FEW_USERS = 200  # with fewer validation users, the best of many options is often only lucky

UserValues = npt.NDArray[np.float64]


def standard_error(gain: UserValues) -> float:
    """The standard error of the mean of a difference by user."""
    return float(gain.std() / np.sqrt(max(len(gain), 1)))


def is_clear(gain: UserValues) -> bool:
    """Whether the mean gain exceeds its standard error, or twice that with few users."""
    return bool(gain.mean() > (2 if len(gain) < FEW_USERS else 1) * standard_error(gain))


def has_few_users(valid: HeldOut | None) -> bool:
    """Whether only few users validate, all of them new."""
    return valid is not None and 0 < len(valid) < FEW_USERS and bool((valid.users < 0).all())
