"""Download data sets: fetch, verify, then move into the cache in one step."""

import hashlib
import shutil
import tempfile
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

from itemfold.errors import ItemfoldError

TIMEOUT = 30.0  # seconds without a byte

T = TypeVar("T")


@dataclass(frozen=True)
class Remote:
    """A file to download."""

    name: str
    urls: tuple[str, ...]  # tried in this order
    md5: str | None = None  # of the content without carriage returns
    members: tuple[str, ...] = ()  # files to extract from a zip


def download(
    name: str, files: tuple[Remote, ...], cache: Path, accept: Callable[[Path], T], advice: str
) -> T:
    """Fetch the files of a data set into ``cache/NAME``; a failure leaves nothing behind.

    ``accept`` reads and verifies the folder before it is renamed; ``advice`` ends every error.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        for old in cache.glob(f".{name}-*"):  # left by downloads that were killed
            if time.time() - old.stat().st_mtime > 86_400:
                shutil.rmtree(old, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=cache))
    except OSError as error:
        raise ItemfoldError(f"'{name}' cannot be stored ({error}): {advice}") from error
    try:
        with download_bar() as progress:
            for file in files:
                _fetch(file, temporary, partial(progress, f"{name}/{file.name}"))
        data = accept(temporary)
        temporary.chmod(0o755)  # mkdtemp creates folders that only the owner can read
        try:
            temporary.rename(cache / name)
        except OSError:  # another process was first, or an incomplete folder is in the way
            for path in sorted(temporary.iterdir()):  # the file whose presence is checked goes last
                path.replace(cache / name / path.name)
        return data
    except ItemfoldError as error:
        problem = str(error).replace(str(temporary), "the download")
        raise ItemfoldError(f"{problem}; {advice}") from error
    except (OSError, HTTPException, zipfile.BadZipFile, KeyError) as error:
        reason = str(error).strip() or type(error).__name__
        raise ItemfoldError(
            f"'{name}' is not on this machine and could not be downloaded ({reason}): {advice}"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _fetch(file: Remote, folder: Path, progress: Callable[[int, int | None], None]) -> None:
    """Download a file from the first URL that works, verify it, and unpack it."""
    for n, url in enumerate(file.urls):
        try:
            _stream(url, folder / file.name, progress)
            break
        except (OSError, HTTPException):
            if n + 1 == len(file.urls):
                raise
    if file.md5 is not None:
        text = (folder / file.name).read_bytes().replace(b"\r", b"")
        found = hashlib.md5(text, usedforsecurity=False).hexdigest()
        if found != file.md5:
            raise OSError(f"{file.name} has the md5 {found}, expected {file.md5}")
    if file.members:
        with zipfile.ZipFile(folder / file.name) as archive:
            inside = {Path(entry).name: entry for entry in archive.namelist()}
            for member in file.members:
                (folder / member).write_bytes(archive.read(inside[member]))
        (folder / file.name).unlink()


def _stream(url: str, target: Path, progress: Callable[[int, int | None], None]) -> None:
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response, target.open("wb") as out:
        length = response.headers.get("Content-Length")
        total = int(length) if length else None
        done = 0
        while block := response.read(1 << 16):
            out.write(block)
            done += len(block)
            progress(done, total)
    if total is not None and done != total:  # a dropped connection reads like an end of file
        raise OSError(f"the connection to {url} was lost after {done:,} of {total:,} bytes")


@contextmanager
def download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar: a function of a file's name, its bytes so far and its total bytes."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    tasks: dict[str, Any] = {}
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )

    def update(name: str, done: int, total: int | None) -> None:
        if name not in tasks:
            tasks[name] = bar.add_task(name, total=None)
        bar.update(tasks[name], completed=done, total=total)

    with bar:
        yield update
