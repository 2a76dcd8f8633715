"""`read_user_split`: interactions from tables of training users and of shown and hidden items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from itemfold.data.columns.choice import Names
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.interactions import Interactions
from itemfold.data.merging import to_interactions
from itemfold.data.readers.files import RowRules, read_path
from itemfold.data.sources import read_memory
from itemfold.data.splitting.user_parts import UserPart, check_complete, join_tables
from itemfold.data.weights import Weighting
from itemfold.errors import ItemfoldError


def read_user_split(
    train: Any,
    shown: Any,
    hidden: Any,
    valid_shown: Any = None,
    valid_hidden: Any = None,
    *,
    user: str | int | None = None,
    item: str | int | None = None,
    name: str = "data",
) -> Interactions:
    """Read data that is split by users, with shown and hidden items of held-out users.

    `split_users` then holds out exactly these users. Without a validation part it draws validation
    users from the training users. A folder of files is read by `read` and `load`: `train`,
    `test_shown` and `test_hidden` (or `shown` and `hidden`), and optionally `valid_shown` and
    `valid_hidden`, each .csv, .tsv, .inter (also .gz), .parquet, or .txt with a line for each user.
    The names of Mult-VAE's `pro_sg` (`validation_tr`, `validation_te`, `test_tr`, `test_te`) and of
    the RLAE paper (`valid_in`, `valid`, `test_in`, `test`) are known, too.

    Args:
        train: The full histories of the training users: a file, a pandas or polars frame, an Arrow
            table or a DuckDB relation.
        shown: Items of the test users that a model sees, likewise.
        hidden: Items of the same users that it must find.
        valid_shown: Shown items of the validation users, or None.
        valid_hidden: Hidden items of the validation users, or None.
        user: Name of the user column in every table; default: a common name such as "user_id".
        item: The item column, likewise.
        name: Name of the data in results.

    Returns:
        The interactions, with the part of each in `user_parts`.

    Raises:
        ItemfoldError: A table cannot be read, a user is in more than one of training, validation
            and test, has hidden but no shown items, or a hidden item is also shown.

    Examples:
        >>> import polars as pl
        >>> import itemfold as ir
        >>> def table(**likes):
        ...     rows = [(user, item) for user, items in likes.items() for item in items]
        ...     return pl.DataFrame(rows, schema=["user", "item"], orient="row")
        >>> data = ir.read_user_split(
        ...     table(ann="xyz", bob="xy", cid="yz", dan="xz"), table(eve="x"), table(eve="y")
        ... )
        >>> split = ir.split_users(data, valid=0)
        >>> split.n_users, split.test.ids.tolist(), split.settings["test"]
        (4, ['eve'], 'given')
    """
    sources = {"train": train, "shown": shown, "hidden": hidden}
    sources |= {"valid_shown": valid_shown, "valid_hidden": valid_hidden}
    parts = {
        "train": UserPart.TRAIN,
        "shown": UserPart.TEST_SHOWN,
        "hidden": UserPart.TEST_HIDDEN,
        "valid_shown": UserPart.VALID_SHOWN,
        "valid_hidden": UserPart.VALID_HIDDEN,
    }
    given = {parts[key]: key for key, source in sources.items() if source is not None}
    places = {part: f"'{key}'" for key, part in parts.items()}
    check_complete(given, places)
    names = {"user": user, "item": item}
    tables = {part: _read(sources[key], names, key) for part, key in sorted(given.items())}
    joined = join_tables(tables, {part: places[part] for part in tables})
    return to_interactions(joined, None, name, {}, Weighting())


def _read(source: Any, names: Names, key: str) -> RawTable:
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.is_dir():
            raise ItemfoldError(f"'{key}' must be a file or a table, got the folder {path}")
        return read_path(path, RowRules(names))[0]
    table = read_memory(source, names, f"'{key}'")
    if table is None:
        raise ItemfoldError(
            f"'{key}' must be a file, a pandas or polars frame, an Arrow table or a DuckDB "
            f"relation, got {type(source).__name__}"
        )
    return table
