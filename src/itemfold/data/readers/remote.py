"""Files at addresses such as s3://bucket/plays.parquet, copied with fsspec before they are read."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from itemfold.data.readers.frames import first_line
from itemfold.errors import ItemfoldError

PACKAGES = {  # protocol → package that fsspec needs for it
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "http": "aiohttp",
    "https": "aiohttp",
}


def is_address(source: Any) -> bool:
    """Whether a source is an address and not a path.

    >>> is_address("s3://bucket/plays.parquet"), is_address("synthetic:users=60")
    (True, False)
    """
    return isinstance(source, str) and re.match(r"[a-z][a-z0-9+.-]*://", source) is not None


@contextmanager
def local_copy(address: str) -> Iterator[Path]:
    """A temporary copy of the file, folder or pattern at an address."""
    protocol = address.partition("://")[0]
    try:
        import fsspec
    except ImportError:
        raise ItemfoldError(
            f"{address}: addresses need the package fsspec: pip install fsspec "
            f"{PACKAGES.get(protocol, '')}".rstrip()
        ) from None
    with tempfile.TemporaryDirectory(prefix="itemfold-") as folder:
        try:
            files, root = fsspec.core.url_to_fs(address)
            path = _copied(files, root.rstrip("/"), Path(folder))
        except ImportError:
            package = PACKAGES.get(protocol, "of this protocol")
            raise ItemfoldError(
                f"{address}: {protocol}:// needs the package {package}: pip install {package}"
            ) from None
        except FileNotFoundError:
            raise ItemfoldError(f"{address}: no such file or folder") from None
        except Exception as error:  # each storage raises its own types
            raise ItemfoldError(f"{address}: cannot be read ({first_line(error)})") from error
        yield path


def _copied(files: Any, root: str, folder: Path) -> Path:
    """Copy the target of an address into a folder; returns its path there."""
    place = folder / (root.rpartition("/")[2] or "data")
    if re.search(r"[*?\[]", place.name):
        found = files.glob(root)
        if not found:
            raise FileNotFoundError(root)
        for one in found:
            files.get_file(one, str(folder / one.rpartition("/")[2]))
    elif files.isdir(root):
        place.mkdir()
        for one in files.ls(root, detail=False):
            if files.isfile(one):
                files.get_file(one, str(place / one.rpartition("/")[2]))
    else:
        files.get_file(root, str(place))
    return place
