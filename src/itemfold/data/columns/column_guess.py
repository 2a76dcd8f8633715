"""Detection of user, item, rating, time and title columns.

Columns are matched by their names and, if the names are ambiguous, by their values.
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from itemfold.data.columns.column_words import (
    ACTIONS,
    FINAL_WORDS,
    GROUPS,
    ID_ENDINGS,
    KNOWN_NAMES,
    NAME_ENDINGS,
    NOT_TIME,
    OPINIONS,
    TIME_WORDS,
    WEIGHT_WORDS,
    WORDS,
)
from itemfold.data.columns.dates import date_seconds

TYPED = re.compile(r":(token|float)(_seq)?\b")  # RecBole writes user_id:token
ENDINGS = {"time": ("timestamp", "datetime"), "title": (), "genre": ()}
LISTED = 20  # columns in an error
MOST_KINDS = 12  # of events in a column
EPOCH = 631_152_000.0  # seconds of 1990; smaller numbers are no times since 1970

Sample = Callable[[int], Sequence[Any]]  # position of a column → some of its values


def untyped(name: str) -> str:
    """A column's name without RecBole's type suffix."""
    return name.split(":")[0].strip()


def listed_columns(names: Sequence[str]) -> str:
    """Column names formatted for an error message.

    >>> listed_columns(["user", ""]), listed_columns([str(n) for n in range(1, 100)])[-21:]
    ('user', '19, 20, … (99 in all)')
    """
    some = ", ".join(filter(None, names[:LISTED]))
    return f"{some}, … ({len(names)} in all)" if len(names) > LISTED else some or "none"


def plain_name(name: str) -> str:
    """A column name in the form of `KNOWN_NAMES`."""
    return re.sub(r"[_\-\s.]", "", without_accents(name.strip().lower()))


def without_accents(text: str) -> str:
    """A text with plain letters.

    >>> without_accents("Puntuación")
    'Puntuacion'
    """
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def words_of(name: str) -> list[str]:
    """The words of a column's name.

    >>> words_of("clickArticle_ID"), words_of("trackname"), words_of("Película")
    (['click', 'article', 'id'], ['track', 'name'], ['pelicula'])
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", without_accents(name).strip().lstrip("#"))
    words = [word.lower() for word in re.split(r"[_\-\s./:]+", spaced) if word]
    out: list[str] = []
    for word in words:
        for ending in (*ID_ENDINGS, *NAME_ENDINGS):
            stem = word.removesuffix(ending)
            if stem != word and any(stem in known for known in (*WORDS.values(), GROUPS)):
                out += [stem, ending]
                break
        else:
            out.append(word)
    return out


def candidates(names: Sequence[str], role: str) -> list[int]:
    """The columns whose names match a role best; several if the match is ambiguous.

    A known name goes before one that ends with a known name (clicked_article_id), that before an id
    (anime_id), an id before a bare word (clicked anime), and that before a name (anime_name).

    >>> candidates(["Customer_ID", "Product Name", "product_key"], "item")
    [2]
    """
    plain = [plain_name(name) for name in names]
    if known := [plain.index(name) for name in KNOWN_NAMES[role] if name in plain]:
        return known[:1]
    known_endings = {*ENDINGS.get(role, KNOWN_NAMES[role])}
    endings = [j for j, name in enumerate(names) if _endings(name) & known_endings]
    if len(endings) == 1:
        return endings
    grades = [_grade(words_of(name), role) for name in names]
    best = max(grades, default=0)
    return [j for j, grade in enumerate(grades) if grade == best] if best else []


def _endings(name: str) -> set[str]:
    """The last words of a name, joined: click_article_id ends with articleid and id."""
    words = [word for word in re.split(r"[_\-\s]+", name.strip()) if word]
    return {plain_name("".join(words[start:])) for start in range(1, len(words))}


def _grade(words: list[str], role: str) -> int:
    """How well the words of a name match a role; 0 is no match."""
    if not words:
        return 0
    if role in FINAL_WORDS:
        return int(words[-1] in FINAL_WORDS[role])
    if role not in WORDS:
        return 0
    is_id, is_name = words[-1] in ID_ENDINGS, words[-1] in NAME_ENDINGS
    core = words[:-1] if is_id or is_name else words
    if not core:
        return 0
    if core[-1] in WORDS[role]:
        return 4 if is_id else 2 if is_name else 3
    is_group = core[-1] in GROUPS and (is_id or len(words) == 1)
    return int(role == "user" and is_group)


def names_columns(fields: Sequence[str]) -> bool:
    """Whether a row has names of a user and an item column, or a name typical of a header.

    >>> names_columns(["customer", "product"]), names_columns(["ann", "movie"])
    (True, False)
    """
    if any(TYPED.search(field) for field in fields):
        return True
    names = [untyped(field) for field in fields]
    plain = [plain_name(name) for name in names]
    known = {*KNOWN_NAMES["user"], *KNOWN_NAMES["item"], "id"}
    if plain[0] in known or any(
        name in known and len(name) > 2 and name.endswith("id") for name in plain
    ):
        return True
    found = [j for role in ("user", "item") for j in candidates(names, role)[:1]]
    return len(set(found)) == 2


def spare_time(names: Sequence[str], used: Iterable[int], sample: Sample) -> list[int]:
    """The columns that look like times by their names and values."""
    taken = set(used)
    return [
        j
        for j, words in enumerate(map(words_of, names))
        if j not in taken
        and words
        and (words[-1] in TIME_WORDS or words[0] in ("date", "time"))
        and not NOT_TIME & set(words)
        and are_times(sample(j))
    ]


def spare_weights(names: Sequence[str], used: Iterable[int], sample: Sample) -> list[int]:
    """The columns that look like weights by their names and values, such as hours or plays."""
    taken = set(used)
    return [
        j
        for j, words in enumerate(map(words_of, names))
        if j not in taken and WEIGHT_WORDS & set(words[-2:]) and are_weights(sample(j))
    ]


def spare_flags(names: Sequence[str], used: Iterable[int], sample: Sample) -> list[int]:
    """The columns of yes and no that say by their names what a user did, such as is_click."""
    taken = set(used)
    return [
        j
        for j, words in enumerate(map(words_of, names))
        if j not in taken and ACTIONS & set(words) and _are_flags(sample(j))
    ]


def are_events(values: Sequence[Any]) -> bool:
    """Whether values are a few kinds of events.

    >>> are_events(["view", "purchase", "view"]), are_events(["view", "lake", "view"])
    (True, False)
    """
    kinds = _distinct(values)
    return len(kinds) <= MOST_KINDS and len(kinds & ACTIONS) > 1


# --- columns without names -----------------------------------------------------------------------


def roles_by_content(n_columns: int, sample: Sample) -> dict[str, int]:
    """The roles of columns without names: ids in the order user, item, then a rating and a time.

    >>> rows = [["ann", "2024-01-31", "x", "4"], ["bob", "2024-02-01", "y", "5"]]
    >>> roles_by_content(4, lambda j: [row[j] for row in rows])
    {'user': 0, 'item': 2, 'time': 1, 'rating': 3}
    """
    values = [sample(j) for j in range(n_columns)]
    times = [
        j for j in range(n_columns) if are_times(values[j]) and (j > 1 or _are_dates(values[j]))
    ]
    ids = [j for j in range(n_columns) if j not in times and not _are_fractions(values[j])]
    if len(ids) < 2:
        return {}
    found = {"user": ids[0], "item": ids[1]}
    if times:
        found["time"] = times[0]
    rest = (j for j in range(n_columns) if j not in (*ids[:2], *times))
    rating = next((j for j in rest if _are_ratings(values[j])), None)
    return found if rating is None else {**found, "rating": rating}


def is_number(value: Any) -> bool:
    """Whether a value is a number or the text of one.

    >>> is_number("4,5"), is_number(" 12 "), is_number("1e3"), is_number("nan")
    (True, True, True, False)
    """
    if isinstance(value, str):
        return re.fullmatch(r"\s*[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?\s*", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def is_date(value: Any) -> bool:
    """Whether a value is a date or the text of one, such as 2024-01-31 or 1/31/2024."""
    if isinstance(value, dt.date):
        return True
    if not isinstance(value, str):
        return False
    if re.match(r"\s*(19|20)\d\d-[01]\d-[0-3]\d([T ]|\s*$)", value):
        return True
    try:
        date_seconds(value, day_first=False)
    except ValueError:
        return False
    return True


def _present(values: Sequence[Any]) -> list[Any]:
    return [v for v in values if v is not None and v == v and (not isinstance(v, str) or v.strip())]


def _distinct(values: Sequence[Any]) -> set[str]:
    """The distinct values as texts in lower case, without missing ones."""
    return {str(value).strip().lower() for value in _present(values)}


def numbers_of(values: Sequence[Any]) -> list[float] | None:
    """The values as numbers, without missing ones; None if some are not numbers."""
    some = _present(values)
    if not some or not all(map(is_number, some)):
        return None
    return [float(str(value).strip().replace(",", ".")) for value in some]


def are_times(values: Sequence[Any]) -> bool:
    """Whether values are dates, or seconds (or smaller units) since 1970 after 1990.

    >>> are_times(["20240131", "20240201"]), are_times(["20240131", "20240140"])
    (True, False)
    """
    if _are_dates(values):
        return True
    numbers = numbers_of(values)
    return numbers is not None and (min(numbers) >= EPOCH or all(map(_is_day_number, numbers)))


def _is_day_number(number: float) -> bool:
    """Whether a number is a date such as 20240131."""
    year, rest = divmod(number, 10_000)
    month, day = divmod(rest, 100)
    is_day = 1900 <= year <= 2100 and 1 <= month <= 12 and 1 <= day <= 31
    return is_day and number.is_integer()


def _are_dates(values: Sequence[Any]) -> bool:
    some = _present(values)
    return bool(some) and all(map(is_date, some))


def are_weights(values: Sequence[Any]) -> bool:
    """Whether values are positive numbers and not all the same."""
    numbers = numbers_of(values)
    return numbers is not None and min(numbers) > 0 and len(set(numbers)) > 1


def _are_flags(values: Sequence[Any]) -> bool:
    """Whether values are 0 and 1, or a yes and a no in words."""
    found = _distinct(values)
    return len(found) == 2 and found <= {"0", "1", "0.0", "1.0", *OPINIONS}


def _are_fractions(values: Sequence[Any]) -> bool:
    numbers = numbers_of(values)
    return numbers is not None and any(not number.is_integer() for number in numbers)


def _are_ratings(values: Sequence[Any]) -> bool:
    """Whether values are on a scale up to 10, or up to 100 in steps of 5; plays and hours are not.

    >>> _are_ratings(["0.5", "4"]), _are_ratings(["70", "100"]), _are_ratings(["12", "3"])
    (True, True, False)
    """
    numbers = numbers_of(values)
    if numbers is None or min(numbers) < -10 or (len(numbers) > 1 and len(set(numbers)) == 1):
        return False
    return max(numbers) <= 10 or (max(numbers) <= 100 and all(n % 5 == 0 for n in numbers))
