"""Split strategies: functions from `Interactions` to a `Split`, listed in `SPLITS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from itemfold.data.csr import (
    as_sorted,
    from_parts,
    pick_share,
    take_columns,
    take_entries,
)
from itemfold.data.interactions import Interactions
from itemfold.data.items.item_features import titles_and_genres
from itemfold.data.splitting.default_strategy import prefers_time
from itemfold.data.splitting.folds import check_fold, fold_entries, fold_first
from itemfold.data.splitting.repeats import check_repeats
from itemfold.data.splitting.split import HeldOut, Protocol, Split
from itemfold.data.splitting.split_parts import (
    ROUNDINGS,
    TEST,
    TRAIN,
    VALID,
    check_share,
    finished_split,
    held_out_part,
    item_columns,
    no_user_left,
    no_users,
    seeded,
    sorted_matrix,
    transductive_split,
)
from itemfold.data.splitting.time_splits import (
    leave_last_out,
    split_by_time,
    split_window,
    time_problem,
    validate_on_latest,
)
from itemfold.data.splitting.user_splits import split_given_users
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of


def split_interactions(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.2,
    unseen_items: Literal["keep", "drop"] = "keep",
    rounding: Literal["random", "nearest"] = "random",
    folds: int | None = None,
    fold: int | None = None,
) -> Split:
    """Transductive: hold out a fraction of every user's interactions.

    The test part is the data's own test file if it has one (`held_out`), else the fraction `test`
    of each user's items; at least one item stays in training. The validation part is the fraction
    `valid` of each user's remaining *training* interactions. The number of items is rounded up or
    down at random, so that users with few items are represented in proportion.

    Args:
        data: Interactions, as returned by `load` or `read`.
        seed: Seed of the random draws.
        valid: Fraction of a user's training interactions for validation, in [0, 1).
        test: Fraction of a user's interactions for test, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.
        rounding: Round a user's number of held-out items at "random", without bias, or to the
            "nearest" integer, which leaves out users with few items.
        folds: Number of random folds, instead of the fraction `test`: with the same seed, every
            interaction is tested in exactly one of them; the only one of a user is in none.
        fold: Which one, from 1.

    Returns:
        A split of the transductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: A fraction is out of range, or nothing would be left for training or for
            test.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_interactions(data, seed=0, test=0.2)
        >>> split.train.nnz + split.valid.target.nnz + split.test.target.nnz
        900
    """
    rng, dither = seeded(seed), _dithers(rounding)
    matrix, order = sorted_matrix(data)
    part = np.zeros(matrix.nnz, np.int8)
    given = data.held_out is not None
    if data.held_out is not None:
        part[data.held_out[order]] = TEST
        tested = data.users[data.held_out]
        if len(tested) and not np.isin(tested, data.users[~data.held_out]).any():
            raise ItemfoldError(
                f"no test user of {data.name!r} has a training interaction; to test new users, "
                "give what is shown of them in a part of its own: test_shown beside test_hidden"
            )
    elif made := check_fold(folds, fold):
        part[fold_entries(matrix, *made, rng)] = TEST
    else:
        check_share("test", test, low=0)
        part[pick_share(matrix, test, rng, leave=1, dither=dither)] = TEST
    rest, valid = part == TRAIN, check_share("valid", valid)
    chosen = pick_share(take_entries(matrix, rest), valid, rng, leave=1, dither=dither)
    part[np.flatnonzero(rest)[chosen]] = VALID
    settings = {"strategy": "interactions", "seed": seed, "valid": valid}
    settings |= {"test": "given" if given else test, "unseen_items": unseen_items}
    settings |= {"rounding": rounding}
    settings |= {} if folds is None or given else {"folds": folds, "fold": fold}
    return transductive_split(data, matrix, part, settings)


def split_users(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.1,
    fold_in: float = 0.8,
    unseen_items: Literal["keep", "drop"] = "drop",
    rounding: Literal["random", "nearest"] = "random",
    folds: int | None = None,
    fold: int | None = None,
) -> Split:
    """Inductive: hold out whole users.

    A model sees the fraction `fold_in` of a held-out user's items and must find the rest; each of
    the two parts has at least one item. Data that comes split by users (`read_user_split`) keeps
    its own test users, its own validation users if it has any, and all its items.

    Args:
        data: Interactions, as returned by `load` or `read`.
        seed: Seed of the random draws.
        valid: Fraction of the users for validation, in [0, 1).
        test: Fraction of the users for test, in (0, 1).
        fold_in: Fraction of a held-out user's items that the model is shown, in (0, 1).
        unseen_items: "keep" or "drop" items without a training interaction.
        rounding: How the number of items that the model is shown is rounded, as in
            `split_interactions`.
        folds: Number of random folds, instead of the fraction `test`: with the same seed, every
            user is tested in exactly one of them.
        fold: Which one, from 1.

    Returns:
        A split of the inductive protocol, already checked for leaks.

    Raises:
        ItemfoldError: A fraction is out of range, or no users would be left for training or for
            test.

    Examples:
        >>> import itemfold as ir
        >>> data = ir.load("synthetic:users=60,items=80,interactions=900")
        >>> split = ir.split_users(data, seed=0, valid=0.1, test=0.2)
        >>> split.n_users, len(split.valid), len(split.test)
        (42, 6, 12)
    """
    check_share("test", test, low=0)
    check_share("valid", valid)
    check_share("fold_in", fold_in, low=0)
    if valid + test >= 1:
        raise ItemfoldError(f"'valid' and 'test' must leave training users, got {valid} and {test}")
    rng, dither = seeded(seed), _dithers(rounding)
    matrix, _ = sorted_matrix(data)
    if data.user_parts is not None:
        return split_given_users(data, seed=seed, valid=valid, fold_in=fold_in, rounding=rounding)
    order = rng.permutation(data.n_users)
    n_test, n_valid = (round(share * data.n_users) for share in (test, valid))
    if made := check_fold(folds, fold):
        order, n_test = fold_first(order, *made)
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
        shown = pick_share(whole, fold_in, rng, least=1, leave=1, dither=dither)
        ids = data.user_ids.external(rows)
        history, target = take_entries(whole, shown), take_entries(whole, ~shown)
        return held_out_part(history, target, np.full(len(rows), -1, np.int64), ids, name, notes)

    test_part, valid_part = held(test_rows, "test"), held(valid_rows, "validation")
    settings = {"strategy": "users", "seed": seed, "valid": valid, "test": test, "fold_in": fold_in}
    settings |= {"unseen_items": unseen_items, "rounding": rounding}
    settings |= {} if folds is None else {"folds": folds, "fold": fold}
    user_ids = data.user_ids.take(train_rows)
    parts = (train, valid_part, test_part)
    return finished_split(data, "inductive", parts, user_ids, columns, settings, notes)


def split_items(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.1,
    test: float = 0.1,
    rounding: Literal["random", "nearest"] = "random",
) -> Split:
    """Hold out whole items, which a model must recommend by their features alone.

    Held-out items have no column in training or validation, so their interactions cannot reach the
    graph, the sampler, model selection or the feature map. Test users are known users, with all
    their other items as history.

    Args:
        data: Interactions with `item_features`, titles or genres, as returned by `load` or `read`.
        seed: Seed of the random draws.
        valid: Fraction of a user's remaining interactions for validation, in [0, 1).
        test: Fraction of the items that are held out, in (0, 1).
        rounding: How the number of a user's validation items is rounded, as in
            `split_interactions`.

    Returns:
        A split whose `new_items` are the held-out items, already checked for leaks.

    Raises:
        ItemfoldError: A fraction is out of range, items have no features, or a part would be empty.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_items(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> split.n_items, len(split.new_items), split.test.target.shape[1]
        (72, 8, 80)
    """
    rng, dither = seeded(seed), _dithers(rounding)
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
    chosen = pick_share(rest, check_share("valid", valid), rng, leave=1, dither=dither)
    train, held = take_entries(rest, ~chosen), take_entries(rest, chosen)
    notes = [f"New items, held out with all their {target.nnz:,} interactions: {n_new:,}."]
    users = np.arange(data.n_users, dtype=np.int64)
    ids, width = data.user_ids.external(users), data.n_items
    valid_part = held_out_part(train, held, users, ids, "validation", notes) if held.nnz else None
    wide = (from_parts(rest.indices, rest.indptr, width, rest.data),
            from_parts(target.indices + len(known), target.indptr, width, target.data))  # fmt: skip
    test_part = held_out_part(*wide, users, ids, "test", notes, past=True)
    settings = {"strategy": "items", "seed": seed, "valid": valid, "test": test}
    settings["rounding"] = rounding
    data = replace(data, features=features)
    parts, new_ids = (train, valid_part, test_part), data.item_ids.take(new)
    return finished_split(
        data, "transductive", parts, data.user_ids, known, settings, notes, new_ids
    )


def keep_all(
    data: Interactions,
    *,
    seed: int = 0,
    valid: float = 0.0,
    protocol: Protocol = "transductive",
    valid_by: Literal["time", "random"] | None = None,
    rounding: Literal["random", "nearest"] = "random",
    repeats: bool = False,
) -> Split:
    """Hold out no test part, to train a final model.

    Without `valid`, take the number of epochs from an evaluated run. With it, settings are selected
    on the validation part, and the refit then trains on all data.

    Args:
        data: Interactions, as returned by `load` or `read`.
        seed: Seed of a random validation part.
        valid: Fraction of the interactions for validation, in [0, 1); transductive only.
        protocol: "transductive", or "inductive" to train no vectors of users.
        valid_by: Validate on the latest interactions, with new users folded in ("time"), or on some
            of each user's ("random"); default: "time" for data that is split by time
            unless a strategy is chosen.
        rounding: How the number of a user's validation items is rounded, as in
            `split_interactions`.
        repeats: Lists of the final model keep items that a user has seen, as in `split_by_time`.

    Returns:
        A split with all other interactions in the training part and an empty test part.

    Raises:
        ItemfoldError: `protocol` is neither "transductive" nor "inductive", no user has enough
            interactions for the validation part, or the data has no times to validate by.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.keep_all(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> split.train.nnz, split.valid, len(split.test)
        (900, None, 0)
    """
    one_of("protocol", protocol, ("transductive", "inductive"))
    if valid_by is None:
        is_timed = prefers_time(data) and valid and not time_problem(data, valid, test=0)
        valid_by = "time" if is_timed else "random"
    one_of("valid_by", valid_by, ("time", "random"))
    rng, dither = seeded(seed), _dithers(rounding)
    settings: dict[str, Any] = {"strategy": "all", "seed": seed, "protocol": protocol}
    settings |= {"repeats": True} if check_repeats(repeats, data) else {}
    if repeats and valid and valid_by != "time":
        raise ItemfoldError("'repeats' needs times: 'valid_by' must be time if 'valid' is not 0")
    if check_share("valid", valid):
        settings |= {"valid": valid, "valid_by": valid_by, "rounding": rounding}
    if valid and protocol == "inductive":
        raise ItemfoldError(
            f"'valid' must be 0 in the inductive protocol, which never refits, got {valid}"
        )
    if valid and valid_by == "time":
        return validate_on_latest(data, valid, settings)
    matrix = as_sorted(sorted_matrix(data)[0])
    users = np.arange(data.n_users, dtype=np.int64)
    columns, notes, train, held = np.arange(data.n_items), list[str](), matrix, None
    if valid:
        chosen = pick_share(matrix, valid, rng, leave=1, dither=dither)
        train, target = take_entries(matrix, ~chosen), take_entries(matrix, chosen)
        ids = data.user_ids.external(users)
        held = held_out_part(train, target, users, ids, "validation", notes)
        if held is None:
            raise no_user_left(data, "validation")
    parts = (train, held, no_users(data, columns))
    return finished_split(data, protocol, parts, data.user_ids, columns, settings, notes)


def _dithers(rounding: str) -> bool:
    one_of("rounding", rounding, ROUNDINGS)
    return rounding == "random"


SPLITS: dict[str, Callable[..., Split]] = {
    "interactions": split_interactions,
    "users": split_users,
    "time": split_by_time,
    "last": leave_last_out,
    "rolling": split_window,
    "items": split_items,
    "all": keep_all,
}
