"""The lists of one training step: users and their positives."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Lists to be ranked. A row without a real positive is padding and is ignored."""

    users: Tensor  # int64 [B]
    positives: Tensor  # int64 [B, P]
    mask: Tensor  # bool [B, P], True where a positive is real
    distinct_users: bool = True  # False if a user may be in several rows

    def real_rows(self, like: Tensor) -> Tensor:
        """Which rows are not padding, bool in the shape of ``like`` [B, n]."""
        return self.mask.any(1, keepdim=True).expand_as(like)
