"""Titles of items from a pandas or polars frame."""

from typing import Any

from itemfold.data.columns import KNOWN_NAMES, plain_name
from itemfold.errors import ItemfoldError


def titles_of_frame(frame: Any) -> dict[Any, str]:
    """The title of each item id, from a frame with an item and a title column."""
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    columns = list(frame.columns)
    plain = [plain_name(str(column)) for column in columns]

    def values(*names: str) -> list[Any] | None:
        found = next((columns[plain.index(name)] for name in names if name in plain), None)
        return None if found is None else frame[found].to_list()

    ids, titles = values(*KNOWN_NAMES["item"], "id"), values("title", "name", "movietitle")
    if ids is None or titles is None:
        raise ItemfoldError(
            "'titles' must have an item column and a title column; columns found: "
            f"{', '.join(map(str, columns))}"
        )
    pairs = zip(ids, titles, strict=True)
    return {item: str(title) for item, title in pairs if title is not None and title == title}
