"""Titles of items from a pandas or polars frame."""

from typing import Any

from itemfold.data.items.item_files import title_columns


def titles_of_frame(
    frame: Any, item: str | None = None, title: str | None = None
) -> dict[Any, str]:
    """The title of each item id, from a frame; the two columns are named or guessed."""
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    columns = list(frame.columns)
    at = title_columns("'titles'", [str(column) for column in columns], [], item, title)
    pairs = zip(*(frame[columns[at[role]]].to_list() for role in ("item", "title")), strict=True)
    return {key: str(text) for key, text in pairs if text is not None and text == text}
