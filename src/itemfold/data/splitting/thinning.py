"""`cold_start`: a split of which users have fewer training interactions."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Literal

from itemfold.data.csr import as_sorted, pick_share, scatter_rows, take_entries
from itemfold.data.splitting.split import Split
from itemfold.data.splitting.split_parts import held_out_part, seeded
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of


def cold_start(
    split: Split, keep: float = 0.1, seed: int = 0, exclude: Literal["kept", "all"] = "kept"
) -> Split:
    """Keep the fraction `keep` of each user's training items, at least one; test targets stay.

    In the transductive protocol validation targets are thinned by the same fraction, so that a
    refit uses no more than that fraction either. No model learns from the removed items. With
    ``exclude="kept"`` they are ranked at test time, as for a user who is really new; they fill the
    lists, since they suit the user but are not targets. With ``exclude="all"`` they are not ranked,
    as when a public split is thinned and evaluated against its own training file. The ITEM paper
    does not say which it used; its figures are closer to those of "all".

    Args:
        split: Any split that has not been thinned.
        keep: Fraction of a user's training items, in (0, 1].
        seed: Seed of the random draws.
        exclude: Which training items are not ranked: those that were "kept", or "all" that the
            user had before thinning.

    Returns:
        A split with fewer training interactions and the same test targets.

    Raises:
        ItemfoldError: `keep` is out of range, `exclude` is unknown, or the split has already been
            thinned.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> cold = ir.cold_start(split, keep=0.2)
        >>> cold.train.nnz < split.train.nnz / 4, cold.test.target.nnz == split.test.target.nnz
        (True, True)
    """
    if not isinstance(keep, Real) or not 0 < keep <= 1:
        raise ItemfoldError(f"'keep' must be a fraction in (0, 1], got {keep!r}")
    if "cold_start" in split.settings:
        raise ItemfoldError("'split' must not be thinned already; call cold_start once")
    one_of("exclude", exclude, ("kept", "all"))
    if split.new_items is not None:
        raise ItemfoldError("'split' must not hold out whole items: cold_start thins users")
    if split.protocol == "transductive" and (split.is_new("valid").any() or split.is_new().any()):
        raise ItemfoldError(
            "'split' must not fold in new users, which cold_start cannot thin; leave them out with "
            'new_users="drop"'
        )
    rng = seeded(seed)
    train = take_entries(split.train, pick_share(split.train, keep, rng, least=1))
    valid, test, notes = split.valid, split.test, list(split.notes)
    if split.protocol == "transductive":
        known = train
        if valid is not None:
            # Random rounding keeps the share unbiased where a user has few targets.
            target = take_entries(valid.target, pick_share(valid.target, keep, rng, dither=True))
            history = as_sorted(train[valid.users])
            valid = held_out_part(history, target, valid.users, valid.ids, "validation", notes)
        if valid is not None:
            known = as_sorted(train + scatter_rows(valid.target, valid.users, split.n_users))
        test = replace(test, history=as_sorted(known[test.users]))
        if exclude == "all":
            test = replace(test, excluded=split.test.history)
            if valid is not None:
                valid = replace(valid, excluded=as_sorted(split.train[valid.users]))
    how, times = {"keep": keep, "seed": seed, "exclude": exclude}, split.times
    if times is not None:
        parts = [(train, split.user_ids), (test.history, test.ids)]
        parts += [] if valid is None else [(m, valid.ids) for m in (valid.history, valid.target)]
        times = times.only(parts)
    return replace(
        split,
        times=times,
        train=train,
        valid=valid,
        test=test,
        settings=split.settings | {"cold_start": how},
        notes=(
            *notes,
            f"Cold start: {train.nnz:,} of {split.train.nnz:,} training interactions kept.",
        ),
    )
