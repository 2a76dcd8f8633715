"""What a model can do: score unseen users, explain its scores, use weights of interactions."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from itemfold.errors import ItemfoldError


class Capabilities:
    """A class that declares what its instances can do; `Model` explains the attributes."""

    inductive: ClassVar[bool] = True
    why_not_inductive: ClassVar[str] = ""
    explains: bool = False
    weighs: tuple[str, ...] = ()

    def check_inductive(self) -> None:
        """Raise if the model cannot score unseen users, as the inductive protocol requires.

        Raises:
            ItemfoldError: It cannot; the message gives the reason.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.MF().check_inductive()
            Traceback (most recent call last):
            itemfold.errors.ItemfoldError: MF cannot be used in the inductive protocol: every ...
        """
        if not self.inductive:
            raise ItemfoldError(
                f"{type(self).__name__} cannot be used in the inductive protocol: "
                f"{self.why_not_inductive}"
            )

    def check_users(self, users: npt.NDArray[np.int64]) -> None:
        """Raise if there are unseen users and the model cannot score them.

        Args:
            users: Training row of each user, −1 if unknown.

        Raises:
            ItemfoldError: There is an unseen user; the message gives the reason.

        Examples:
            >>> import numpy as np
            >>> import itemfold as ir
            >>> ir.models.LightGCN().check_users(np.array([0, -1]))  # no problem
        """
        if not self.inductive and bool((users < 0).any()):
            raise ItemfoldError(
                f"{type(self).__name__} cannot score an unseen user: {self.why_not_inductive}; "
                "give a user of the training data, or train a model that folds users in"
            )

    def check_weights(self) -> None:
        """Raise if the model cannot use weights of interactions.

        Raises:
            ItemfoldError: It cannot.

        Examples:
            >>> import itemfold as ir
            >>> ir.models.EASE().check_weights()  # no problem
            >>> ir.models.MultVAE().check_weights()
            Traceback (most recent call last):
            itemfold.errors.ItemfoldError: MultVAE cannot use weights: leave out 'weight', ...
        """
        if not self.weighs:
            raise ItemfoldError(
                f"{type(self).__name__} cannot use weights: leave out 'weight', 'half_life' and "
                "'duplicates' (--weight-col, --half-life, --duplicates), or choose another model, "
                "such as hybrid, lightgcn, rlae, ease or ials"
            )
