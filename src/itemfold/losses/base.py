"""What all list losses share: their interface (`Loss`), bound settings, masks, means over users.

No loss reads *values* of tensors on the host, so a GPU never waits and a step can be captured as a
CUDA graph.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, overload

import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.validation import (
    at_least_zero,
    is_number,
    one_of,
    positive,
    positive_integer,
    schema,
    typed,
)


class LazyScores(Protocol):
    """Negatives whose scores are never stored, such as the whole catalogue streamed in blocks.

    The `item_*` losses take such an object in place of the tensor `neg`. They only need the
    smooth number of negatives above each positive.

    Examples:
        >>> import torch
        >>> from itemfold.losses import item_log
        >>> class NoNegatives:
        ...     def count_above(self, pos, tau):
        ...         return torch.zeros_like(pos)
        >>> float(item_log(torch.ones(1, 2), NoNegatives()))  # log₂(1 + 0)
        0.0
    """

    def count_above(self, pos: Tensor, tau: float) -> Tensor:
        """Smooth number of negatives above each positive, `Σ_j σ((s_j − s_p)/τ)`.

        Args:
            pos: Scores of positives, `[B, P]`.
            tau: Temperature τ of the sigmoid.

        Returns:
            A count for each positive, `[B, P]`; differentiable.
        """
        ...


Scores: TypeAlias = Tensor | LazyScores


def _cutoffs(name: str, value: Any) -> None:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or not value or any(type(k) is not int or k < 1 for k in value):
        raise ItemfoldError(f"'{name}' must be a list of positive integers, got {value!r}")


def _cosine(name: str, value: Any) -> None:
    if not is_number(value) or not -1 <= value <= 1:
        raise ItemfoldError(f"'{name}' must be a number between -1 and 1, got {value!r}")


def _positive(name: str, value: Any) -> None:
    positive(**{name: value})


def _at_least_zero(name: str, value: Any) -> None:
    at_least_zero(**{name: value})


def _share(name: str, value: Any) -> None:
    if not is_number(value) or not 0 < value <= 1:
        raise ItemfoldError(f"'{name}' must be a number above 0 and at most 1, got {value!r}")


# Checks beyond the type of a setting's default, by the setting's name.
RULES: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("tau", "tau_k", "tau_quantile", "scale", "t2", "gap"), _positive),
    **dict.fromkeys(("weight", "hardness", "gamma"), _at_least_zero),
    **dict.fromkeys(("alpha", "beta"), _share),
    **dict.fromkeys(("iterations", "k"), positive_integer),
    "ks": _cutoffs,
    "margin": _cosine,
    "activation": lambda name, value: one_of(name, value, ("tanh", "atan", "relu")),
}


# Inputs beyond scores and masks that training provides, by the name of a loss's argument.
INPUTS = (
    "log_expected",
    "own",
    "own_mask",
    "popularity_logit",
    "user_vectors",
    "item_vectors",
)


class Loss(Protocol):
    """A plain function of scores and masks, `loss(pos, neg, pos_mask, neg_mask, *, settings)`.

    Called with settings only, it binds them: `item_ndcg(tau=0.5)` is
    `functools.partial(item_ndcg, tau=0.5)`.

    - `pos`: scores of P positives of each of B users, `[B, P]`.
    - `neg`: scores of N negatives of each user, `[B, N]`, or `[1, N]` if all users share them. The
      `item_*` losses also take a stream of them (`LazyScores`), without `neg_mask`.
    - `pos_mask`: True where an entry is real, False where it is padding, bool `[B, P]`; by default
      all are real. The values of padding never matter.
    - `neg_mask`: the same for the negatives, bool `[B, N]`.

    A keyword-only argument without a default is one more input, which training provides by its
    name: `log_expected` for `sampled_softmax`, `own` and `own_mask` for `sl_at_k`,
    `popularity_logit` for `bc`, `user_vectors` and `item_vectors` for `direct_au`.

    The result is the mean over the users that have a positive; 0, still differentiable, if there is
    none.

    Raises:
        ItemfoldError: A setting is invalid, a mask is not boolean, or `neg` is a stream that the
            loss cannot take.

    Examples:
        >>> import torch
        >>> from itemfold.losses import softmax
        >>> softmax(tau=0.2).keywords  # settings only: bound, for use in training
        {'tau': 0.2}
        >>> scores = torch.tensor([[1.0]]), torch.tensor([[0.0]])
        >>> round(float(softmax(*scores, tau=0.2)), 4)
        0.0067
    """

    __name__: str

    @overload
    def __call__(
        self,
        pos: Tensor,
        neg: Scores,
        pos_mask: Tensor | None = None,
        neg_mask: Tensor | None = None,
        **settings: float | str | Sequence[int] | Tensor,
    ) -> Tensor: ...

    @overload
    def __call__(self, **settings: float | str | Sequence[int]) -> functools.partial[Tensor]: ...


def bindable(function: Callable[..., Tensor]) -> Loss:
    """Make a loss check its settings, and bind them when it is called with settings only.

    A setting must have the type of its default and pass the check in `RULES` if there is one for
    its name. Without this decorator, bind settings with `functools.partial`.

    Args:
        function: A loss `(pos, neg, pos_mask=None, neg_mask=None, *, settings)`.

    Returns:
        The loss, which can also be called with settings only.

    Raises:
        ItemfoldError: When called with an unknown setting, an invalid value, or neither scores nor
            settings.

    Examples:
        >>> from itemfold.losses import bindable
        >>> @bindable
        ... def squared(pos, neg, pos_mask=None, neg_mask=None, *, margin=0.5):
        ...     return (margin - pos).square().mean() + neg.square().mean()
        >>> squared(margin=0.9).keywords
        {'margin': 0.9}
        >>> squared(gap=0.9)
        Traceback (most recent call last):
        itemfold.errors.ItemfoldError: 'gap' is not a setting of squared: choose from margin
    """
    parameters = inspect.signature(function).parameters.values()
    settings_of = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is not p.empty]
    defaults = {p.name: p.default for p in settings_of}
    inputs = {p.name for p in parameters} - set(defaults)

    def check(name: str, value: Any) -> None:
        if name not in defaults:
            choices = f"choose from {', '.join(defaults)}" if defaults else "it has none"
            raise ItemfoldError(f"'{name}' is not a setting of {function.__name__}: {choices}")
        if name in RULES:
            RULES[name](name, value)
        else:
            typed(defaults[name], value, name)

    @functools.wraps(function)
    def loss(*args: Any, **kwargs: Any) -> Any:
        settings = kwargs.keys() - inputs
        for name in settings:
            check(name, kwargs[name])
        if args or inputs & kwargs.keys():
            return function(*args, **kwargs)
        if not settings:
            how = f", or bind {', '.join(defaults)}" if defaults else ""
            raise ItemfoldError(
                f"{function.__name__} needs the scores of positives and negatives; to train with "
                f"it, pass the function itself{how}"
            )
        return functools.partial(loss, **kwargs)

    loss.bindable = True  # type: ignore[attr-defined]
    return loss


def bind(loss: Callable[..., Tensor], settings: Mapping[str, Any]) -> Callable[..., Tensor]:
    """A loss with these settings; without any, the loss itself.

    Args:
        loss: A loss, decorated with `bindable` or not.
        settings: Values by name. A `bindable` loss checks them at once.

    Returns:
        A `functools.partial`, or `loss` if there is nothing to bind.

    Raises:
        ItemfoldError: A setting is unknown or invalid.

    Examples:
        >>> from itemfold.losses import bind, item_ndcg
        >>> bind(item_ndcg, {"tau": 0.5}).keywords
        {'tau': 0.5}
        >>> bind(item_ndcg, {}) is item_ndcg
        True
    """
    if not settings:
        return loss
    checked = getattr(loss, "bindable", False)
    out: Any = loss(**settings) if checked else functools.partial(loss, **settings)
    return out  # type: ignore[no-any-return]


def unbind(loss: Callable[..., Tensor]) -> tuple[Callable[..., Tensor], dict[str, Any]]:
    """A loss and its settings: those bound to it, and the defaults of the others.

    Args:
        loss: A loss, bound or not.

    Returns:
        The function and all its settings.

    Examples:
        >>> from itemfold.losses import bsl, unbind
        >>> function, settings = unbind(bsl(tau=0.2))
        >>> function is bsl, settings
        (True, {'tau': 0.2, 't2': 1.0})
    """
    if isinstance(loss, functools.partial):
        function, settings = unbind(loss.func)
        return function, {**settings, **loss.keywords}
    return loss, schema(loss)


def extra_inputs(loss: Callable[..., Tensor]) -> tuple[str, ...]:
    """The inputs of a loss beyond scores and masks: keyword-only arguments without a default.

    Args:
        loss: A loss, bound or not.

    Returns:
        Their names.

    Examples:
        >>> from itemfold.losses import extra_inputs, sl_at_k, softmax
        >>> extra_inputs(sl_at_k(k=10)), extra_inputs(softmax)
        (('own', 'own_mask'), ())
    """
    function, bound = unbind(loss)
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    return tuple(name for name in needed if name not in bound)


def apply_mask(
    scores: Tensor, mask: Tensor | None, name: str, fill: float
) -> tuple[Tensor, Tensor]:
    """Scores with `fill` in the padding, and the mask; both [B, n].

    Padding is overwritten first, since even a zero gradient times a NaN in the padding is NaN.
    """
    if not isinstance(scores, Tensor):
        raise ItemfoldError(
            "'negatives' must be sampled for this loss: only item-ndcg, item-ap, item-recall and "
            "item-log sum over the whole catalogue"
        )
    scores = widened(scores)
    check_mask(mask, name)
    if mask is None:
        return scores, torch.ones_like(scores, dtype=torch.bool)
    scores = torch.where(mask, scores, fill)  # broadcasts [1, N] scores to a [B, N] mask
    return scores, mask.expand_as(scores)


def widened(scores: Tensor) -> Tensor:
    """Scores in at least single precision: a count of 200 is not exact in bfloat16's eight bits."""
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def check_mask(mask: Tensor | None, name: str) -> None:
    """Reject masks of numbers."""
    if mask is not None and mask.dtype != torch.bool:
        raise ItemfoldError(f"'{name}_mask' must be a boolean tensor, got {mask.dtype}")


def mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real entries of the last dimension, 0 where there are none."""
    return torch.where(mask, values, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


def mean_over_users(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the real positives of each user, then over the users that have one."""
    return mean(mean(values, mask), mask.any(-1))
