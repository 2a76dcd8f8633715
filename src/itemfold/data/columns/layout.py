"""The layout of a table: the columns that were read, and others that look useful."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from itemfold.data.columns.column_guess import (
    Sample,
    are_events,
    are_weights,
    spare_flags,
    spare_time,
    spare_weights,
    untyped,
)


@dataclass(frozen=True)
class Layout:
    """The columns of a table that were read, and others that look useful.

    Attributes:
        columns: For each role, the name of its column.
        header: Whether the names are those of the table; otherwise they are positions.
        weights: Columns that look like weights and are not used.
        times: Columns that look like times, if several do and so none is used.
        flags: Columns of 0 and 1 that say what a user did, and are not used.
        events: Columns of kinds of events, such as view and purchase.

    Examples:
        >>> layout = Layout({"user": "customer", "item": "product name"})
        >>> layout.options
        "--user-col customer --item-col 'product name'"
    """

    columns: Mapping[str, str]
    header: bool = True
    weights: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The options of the command line that read the same columns."""
        named = (f"--{role}-col {quote(name)}" for role, name in self.columns.items())
        return " ".join([*([] if self.header else ["--no-header"]), *named])


def layout_of(
    columns: Sequence[str], at: Mapping[str, int], sample: Sample, *, header: bool = True
) -> Layout:
    """The layout of a table whose roles have these positions."""
    names = [untyped(column) for column in columns]
    used = set(at.values())
    spare = [j for j in range(len(names)) if j not in used]

    def named(positions: Sequence[int]) -> tuple[str, ...]:
        return tuple(names[j] for j in positions)

    return Layout(
        columns={role: names[j] for role, j in at.items() if j < len(names)},
        header=header,
        weights=named(
            spare_weights(names, used, sample)
            if header
            else [j for j in spare if are_weights(sample(j))]
        ),
        times=named(spare_time(names, used, sample) if header and "time" not in at else []),
        flags=named(spare_flags(names, used, sample) if header else []),
        events=named([j for j in spare if are_events(sample(j))]),
    )
