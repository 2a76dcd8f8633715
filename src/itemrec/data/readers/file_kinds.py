"""The format of a file by its name, and patterns that name several files."""

import re
from pathlib import Path

from itemrec.errors import ItemrecError


def kind_of(path: Path) -> str:
    """The suffix that determines a file's format, ignoring case and compression.

    >>> kind_of(Path("Plays.CSV")), kind_of(Path("plays.csv.gz"))
    ('.csv', '.csv')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def is_pattern(path: Path) -> bool:
    """Whether a path names several files, as plays/*.parquet does, and no file of that name.

    >>> is_pattern(Path("plays/*.parquet")), is_pattern(Path("plays.parquet"))
    (True, False)
    """
    return bool(re.search(r"[*?\[]", path.name)) and not path.exists()


def matching_files(path: Path) -> list[Path] | None:
    """The files of a pattern, sorted; None if the path is not a pattern."""
    if not is_pattern(path):
        return None
    if kind_of(path) != ".parquet":
        raise ItemrecError(f"{path}: a pattern must end in .parquet, to name parquet files")
    found = sorted(file for file in path.parent.glob(path.name) if file.is_file())
    if not found:
        raise ItemrecError(f"{path}: no file matches this pattern")
    return found
