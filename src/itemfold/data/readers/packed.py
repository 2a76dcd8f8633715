"""Decompression of files by their first bytes, and detection of the text encoding."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from itemfold.errors import ItemfoldError

UTF8, LATIN1, WINDOWS = "utf-8-sig", "latin-1", "cp1252"
NAMES = {LATIN1: "Latin-1", WINDOWS: "Windows-1252"}  # encodings that are guesses
PACKED = {  # what the bytes of a packed file begin with
    b"\x1f\x8b": ".gz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
    b"BZh": ".bz2",
    b"\xfd7zXZ\x00": ".xz",
}
SUFFIXES = tuple(PACKED.values())
OTHERS = {  # tables of other programs
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
    b"\x93NUMPY": "a NumPy array",
    b"\x80\x04": "a pickle, which could execute code",
    b"\x80\x05": "a pickle, which could execute code",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"%PDF": "a PDF file",
}
WINDOWS_BYTES = re.compile(rb"[\x80-\x9f]")  # letters in Windows-1252, no signs in Latin-1
BLOCK = 2**22  # bytes that are decoded at once
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


def plain_suffix(path: Path) -> str:
    """The suffix of a file in lower case, without that of its compression.

    >>> plain_suffix(Path("Plays.CSV")), plain_suffix(Path("plays.csv.gz"))
    ('.csv', '.csv')
    """
    name = path.name.lower()
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return Path(name).suffix


def packing_of(path: Path) -> str:
    """The compression of a file: ".gz", ".zst", ".zip", ".bz2", ".xz", or "" if it is not."""
    with path.open("rb") as file:
        head = file.read(16)
    found = next((name for magic, name in PACKED.items() if head.startswith(magic)), "")
    named = path.suffix.lower()
    if named in SUFFIXES and found != named and head:
        raise ItemfoldError(f"{path}: is not a {named} file; give it the suffix of its content")
    for magic, what in OTHERS.items():
        if head.startswith(magic):
            raise ItemfoldError(f"{path}: is {what}; save the table as .csv or .parquet")
    return found


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed."""
    packing = packing_of(path)
    try:
        with _opened(path, packing) as file:
            yield file
    except DAMAGED as error:
        if not packing or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise ItemfoldError(f"{path}: the {packing} file is damaged ({error})") from error


@contextmanager
def _opened(path: Path, packing: str) -> Iterator[IO[bytes]]:
    if packing == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_member(path, archive)) as member:
            yield member
        return
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstd}
    with openers.get(packing, open)(path, "rb") as file:
        yield file


def _member(path: Path, archive: zipfile.ZipFile) -> str:
    """The only file of an archive."""
    listed = archive.namelist()
    if "[Content_Types].xml" in listed:
        raise ItemfoldError(f"{path}: is an Excel workbook; save the sheet as .csv")
    files = [
        name
        for name in listed
        if not name.endswith("/")
        and not name.startswith("__MACOSX")
        and not Path(name).name.startswith((".", "__MACOSX"))
    ]
    if len(files) != 1:
        some = ", ".join(files[:8]) + (", …" if len(files) > 8 else "")
        raise ItemfoldError(
            f"{path}: expected one file in the archive, found {len(files)} ({some}); extract it, "
            "and pass its folder or the file with the interactions"
        )
    return files[0]


def _zstd(path: Path, mode: str) -> Any:
    """Open a Zstandard file with the first library that is installed."""
    for name in ("compression.zstd", "backports.zstd", "zstandard"):
        try:
            return import_module(name).open(path, mode)
        except ImportError:
            continue
    try:
        import pyarrow as pa
    except ImportError:
        raise ItemfoldError(
            f"{path}: .zst files need the package zstandard: pip install zstandard"
        ) from None
    return pa.input_stream(str(path), compression="zstd")


def read_bytes(path: Path, limit: int = -1) -> bytes:
    """The first bytes of a file, decompressed; by default all."""
    with open_bytes(path) as file:
        return bytes(file.read(limit))


def encoding_of(head: bytes) -> str:
    """The encoding of a text that begins with these bytes; Latin-1 if it is not Unicode.

    >>> encoding_of("naïve".encode()), encoding_of("naïve".encode("latin-1"))
    ('utf-8-sig', 'latin-1')
    >>> encoding_of("naïve".encode("utf-16"))
    'utf-16'
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    pairs = len(head) // 2
    if pairs > 4:  # UTF-16 without a mark: every other byte of plain text is 0
        for encoding, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[0::2])):
            if zeros.count(0) > 0.7 * pairs:
                return encoding
    try:
        codecs.getincrementaldecoder(UTF8)().decode(head)
    except UnicodeDecodeError:
        return _single_byte(head)
    return UTF8


def _single_byte(data: bytes) -> str:
    """Windows-1252 if its curly quotes or its euro sign occur, otherwise Latin-1."""
    try:
        return WINDOWS if data.decode(WINDOWS) != data.decode(LATIN1) else LATIN1
    except UnicodeDecodeError:
        return LATIN1


def checked_encoding(path: Path, encoding: str) -> str:
    """The encoding of a whole file, given that of its beginning."""
    if encoding not in (UTF8, LATIN1, WINDOWS):
        return encoding
    if encoding == UTF8 and _is_all(path, "utf-8"):
        return UTF8
    with open_bytes(path) as file:
        has_more = any(WINDOWS_BYTES.search(block) for block in iter(lambda: file.read(BLOCK), b""))
    return WINDOWS if has_more and _is_all(path, WINDOWS) else LATIN1


def _is_all(path: Path, encoding: str) -> bool:
    """Whether a whole file can be decoded."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        with open_bytes(path) as file:
            while block := file.read(BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def decoded(data: bytes) -> tuple[str, str]:
    """A whole text, and its encoding."""
    encoding = encoding_of(data)
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError:  # it ends within a character
        return data.decode(found := _single_byte(data)), found


def encoding_note(encoding: str) -> tuple[str, ...]:
    """A note on an encoding that is a guess."""
    if encoding not in NAMES:
        return ()
    return (f"The file is not UTF-8 and was read as {NAMES[encoding]}.",)
