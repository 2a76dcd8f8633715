"""Split strategies: functions from `Interactions` to a `Split`, listed in `SPLITS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Literal

import numpy as np
import numpy.typing as npt

from itemfold.data.csr import (
    as_sorted,
    from_parts,
    pick_share,
    scatter_rows,
    take_columns,
    take_entries,
)
from itemfold.data.interactions import Interactions
from itemfold.data.item_features import titles_and_genres
from itemfold.data.split import HeldOut, Protocol, Split
from itemfold.data.split_parts import (
    TEST,
    TRAIN,
    VALID,
    check_share,
    finished_split,
    held_out_part,
    item_columns,
    seeded,
    sorted_matrix,
    transductive_split,
)
from itemfold.data.time_splits import leave_last_out, split_by_time, split_window
from itemfold.data.user_splits import split_given_users
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of


def split_interactions(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.2,
    unseen_items: Literal["keep", "drop"] = "keep",
) -> Split:
    """Transductive: hold out a share of every user's interactions.

    The test part is the data's own test file if it has one (`held_out`), else the share `test` of
    each user's items, rounded; at least one item stays in training. The validation part is the
    share `valid` of each user's remaining *training* interactions.

    Args:
        data: What `load` or `read` returns.
        seed: Seed of the random draws.
        valid: Share of a user's training interactions for validation, in [0, 1).
        test: Share of a user's interactions for test, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: A share is out of range, or nothing would be left for training or for test.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_interactions(data, seed=0, test=0.2)
        >>> split.train.nnz + split.valid.target.nnz + split.test.target.nnz
        900
    """
    rng = seeded(seed)
    matrix, order = sorted_matrix(data)
    part = np.zeros(matrix.nnz, np.int8)
    given = data.held_out is not None
    if data.held_out is not None:
        part[data.held_out[order]] = TEST
    else:
        part[pick_share(matrix, check_share("test", test, low=0), rng, leave=1)] = TEST
    rest = part == TRAIN
    chosen = pick_share(take_entries(matrix, rest), check_share("valid", valid), rng, leave=1)
    part[np.flatnonzero(rest)[chosen]] = VALID
    settings = {"strategy": "interactions", "seed": seed, "valid": valid}
    settings |= {"test": "given" if given else test, "unseen_items": unseen_items}
    return transductive_split(data, matrix, part, settings)


def split_users(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.1,
    fold_in: float = 0.8,
    unseen_items: Literal["keep", "drop"] = "drop",
) -> Split:
    """Inductive: hold out whole users.

    A model sees the share `fold_in` of a held-out user's items and must find the rest; each of the
    two parts has at least one item. Data that comes split by users (`read_user_split`) keeps its
    own test users, its own validation users if it has any, and all its items.

    Args:
        data: What `load` or `read` returns.
        seed: Seed of the random draws.
        valid: Share of the users for validation, in [0, 1).
        test: Share of the users for test, in (0, 1).
        fold_in: Share of a held-out user's items that the model is shown, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.

    Returns:
        A split of the inductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: A share is out of range, or no users would be left for training or for test.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_users(data, seed=0, valid=0.1, test=0.2)
        >>> split.n_users, len(split.valid), len(split.test)
        (42, 6, 12)
    """
    check_share("test", test, low=0), check_share("valid", valid)
    check_share("fold_in", fold_in, low=0)
    if valid + test >= 1:
        raise ItemfoldError(f"'valid' and 'test' must leave training users, got {valid} and {test}")
    rng = seeded(seed)
    matrix, _ = sorted_matrix(data)
    if data.user_parts is not None:
        return split_given_users(data, seed=seed, valid=valid, fold_in=fold_in)
    order = rng.permutation(data.n_users)
    n_test, n_valid = (round(share * data.n_users) for share in (test, valid))
    groups = np.split(order, [n_test, n_test + n_valid])
    test_rows, valid_rows, train_rows = (np.sort(g).astype(np.int64) for g in groups)
    train = as_sorted(matrix[train_rows])
    if not train.nnz or not n_test:
        raise ItemfoldError(
            f"'test' must hold out at least one of the {data.n_users} users and leave "
            f"training interactions, got {test}"
        )
    columns, notes = item_columns(train, unseen_items)
    matrix, train = take_columns(matrix, columns), take_columns(train, columns)

    def held(rows: npt.NDArray[np.int64], name: str) -> HeldOut | None:
        whole = as_sorted(matrix[rows])
        shown = pick_share(whole, fold_in, rng, least=1, leave=1)
        ids = data.user_ids.external(rows)
        history, target = take_entries(whole, shown), take_entries(whole, ~shown)
        return held_out_part(history, target, np.full(len(rows), -1, np.int64), ids, name, notes)

    test_part, valid_part = held(test_rows, "test"), held(valid_rows, "validation")
    settings = {"strategy": "users", "seed": seed, "valid": valid, "test": test, "fold_in": fold_in}
    settings |= {"unseen_items": unseen_items}
    user_ids = data.user_ids.take(train_rows)
    parts = (train, valid_part, test_part)
    return finished_split(data, "inductive", parts, user_ids, columns, settings, notes)


def split_items(
    data: Interactions, *, seed: int = 0, valid: float = 0.1, test: float = 0.1
) -> Split:
    """Hold out whole items, which a model must recommend by their features alone.

    Held-out items have no column in training or validation, so their interactions cannot reach the
    graph, the sampler, model selection or the feature map. Test users are known users, with all
    their other items as history.

    Args:
        data: What `load` or `read` returns, with `item_features`, titles or genres.
        seed: Seed of the random draws.
        valid: Share of a user's remaining interactions for validation, in [0, 1).
        test: Share of the items that are held out, in (0, 1).

    Returns:
        A split whose `new_items` are the held-out items, already checked for leaks.

    Raises:
        ItemfoldError: A share is out of range, items have no features, or a part would be empty.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_items(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> split.n_items, len(split.new_items), split.test.target.shape[1]
        (72, 8, 80)
    """
    rng = seeded(seed)
    matrix, _ = sorted_matrix(data)
    features = data.features or titles_and_genres(data.item_ids, data.titles, data.genres)
    if features is None:
        raise ItemfoldError(
            f"split_items needs item features, and {data.name!r} has none; pass item_features or "
            "--item-features"
        )
    n_new = round(check_share("test", test, low=0) * data.n_items)
    order = rng.permutation(data.n_items)
    new, known = np.sort(order[:n_new]), np.sort(order[n_new:])
    if not n_new or not len(known):
        raise ItemfoldError(f"'test' must hold out some of the {data.n_items} items, got {test}")
    target, rest = take_columns(matrix, new), take_columns(matrix, known)
    chosen = pick_share(rest, check_share("valid", valid), rng, leave=1)
    train, held = take_entries(rest, ~chosen), take_entries(rest, chosen)
    notes = [f"New items, held out with all their {target.nnz:,} interactions: {n_new:,}."]
    users = np.arange(data.n_users, dtype=np.int64)
    ids, width = data.user_ids.external(users), data.n_items
    valid_part = held_out_part(train, held, users, ids, "validation", notes) if held.nnz else None
    wide = (from_parts(rest.indices, rest.indptr, width, rest.data),
            from_parts(target.indices + len(known), target.indptr, width, target.data))  # fmt: skip
    test_part = held_out_part(*wide, users, ids, "test", notes, past=True)
    settings = {"strategy": "items", "seed": seed, "valid": valid, "test": test}
    data = replace(data, features=features)
    parts, new_ids = (train, valid_part, test_part), data.item_ids.take(new)
    return finished_split(
        data, "transductive", parts, data.user_ids, known, settings, notes, new_ids
    )


def keep_all(
    data: Interactions, *, seed: int = 0, valid: float = 0.0, protocol: Protocol = "transductive"
) -> Split:
    """Hold nothing out for test, to train a final model.

    Without `valid`, take the number of epochs from a run that was evaluated. With it, settings are
    chosen on the validation part, and the refit then trains on everything.

    Args:
        data: What `load` or `read` returns.
        seed: Seed of the validation part.
        valid: Share of a user's interactions for validation, in [0, 1); transductive only.
        protocol: "transductive", or "inductive" to train no vectors of users.

    Returns:
        A split with all other interactions in the training part and an empty test part.

    Raises:
        ItemfoldError: `protocol` is neither "transductive" nor "inductive", or no user has enough
            interactions for the validation part.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.keep_all(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> split.train.nnz, split.valid, len(split.test)
        (900, None, 0)
    """
    if protocol not in ("transductive", "inductive"):
        raise ItemfoldError(f"'protocol' must be transductive or inductive, got {protocol!r}")
    rng = seeded(seed)
    matrix = as_sorted(sorted_matrix(data)[0])
    empty, users = as_sorted(matrix[:0]), np.arange(data.n_users, dtype=np.int64)
    test = HeldOut(empty, empty, users[:0], data.user_ids.ids[:0])
    settings = {"strategy": "all", "seed": seed, "protocol": protocol}
    columns, notes, train, held = np.arange(data.n_items), list[str](), matrix, None
    if check_share("valid", valid):
        if protocol == "inductive":
            raise ItemfoldError(
                f"'valid' must be 0 in the inductive protocol, which never refits, got {valid}"
            )
        settings["valid"] = valid
        chosen = pick_share(matrix, valid, rng, leave=1)
        train, target = take_entries(matrix, ~chosen), take_entries(matrix, chosen)
        ids = data.user_ids.external(users)
        held = held_out_part(train, target, users, ids, "validation", notes)
        if held is None:
            raise ItemfoldError(f"the split of {data.name!r} leaves no user with a validation item")
    return finished_split(
        data, protocol, (train, held, test), data.user_ids, columns, settings, notes
    )


def cold_start(
    split: Split, keep: float = 0.1, seed: int = 0, exclude: Literal["kept", "all"] = "kept"
) -> Split:
    """Keep the share `keep` of each user's training items, at least one; test targets stay.

    In the transductive protocol validation targets are thinned by the same share, so that a refit
    uses no more than that share either. No model learns from the removed items. With
    ``exclude="kept"`` they are ranked at test time, as for a user who is really new; they fill the
    lists, since they suit the user but are not targets. With ``exclude="all"`` they are not ranked,
    as when a public split is thinned and evaluated against its own training file. The ITEM paper
    does not say which it used; its figures are closer to those of "all".

    Args:
        split: Any split that has not been thinned.
        keep: Share of a user's training items, in (0, 1].
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
        raise ItemfoldError(f"'keep' must be a share in (0, 1], got {keep!r}")
    if "cold_start" in split.settings:
        raise ItemfoldError("'split' must not be thinned already; call cold_start once")
    one_of("exclude", exclude, ("kept", "all"))
    if split.new_items is not None:
        raise ItemfoldError("'split' must not hold out whole items: cold_start thins users")
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
    how = {"keep": keep, "seed": seed, "exclude": exclude}
    return replace(
        split,
        train=train,
        valid=valid,
        test=test,
        settings=split.settings | {"cold_start": how},
        notes=(
            *notes,
            f"Cold start: {train.nnz:,} of {split.train.nnz:,} training interactions kept.",
        ),
    )


SPLITS: dict[str, Callable[..., Split]] = {
    "interactions": split_interactions,
    "users": split_users,
    "time": split_by_time,
    "last": leave_last_out,
    "rolling": split_window,
    "items": split_items,
    "all": keep_all,
}
