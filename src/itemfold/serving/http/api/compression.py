"""Compression of responses, for clients that accept it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from starlette.datastructures import Headers

MIN_BYTES = 1024  # less is not worth the time
LEVEL = 1  # 7 MB of lists take 60 ms; the best level takes ten times as long for a tenth less


def accepts_gzip(headers: Headers) -> bool:
    """Whether a client accepts gzip.

    >>> accepts_gzip(Headers({"accept-encoding": "br, gzip;q=0.5"}))
    True
    >>> accepts_gzip(Headers({"accept-encoding": "gzip;q=0, identity"}))
    False
    """
    for part in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = part.replace(" ", "").partition(";q=")
        if name in ("gzip", "*"):
            return weight.strip("0.") != "" if weight else True
    return False


def pack(parts: Iterable[bytes], *, gzip: bool) -> tuple[bytes, dict[str, str]]:
    """The content of a response, compressed if it is large enough, and its headers.

    >>> content, headers = pack([b"a" * 5000], gzip=True)
    >>> len(content) < 100, headers["Content-Encoding"]
    (True, 'gzip')
    """
    content, headers = b"".join(parts), {"Vary": "Accept-Encoding"}
    if not gzip or len(content) < MIN_BYTES:
        return content, headers
    # a fixed header without a time stamp: the same answer has the same bytes
    packer = zlib.compressobj(LEVEL, wbits=31)
    return packer.compress(content) + packer.flush(), headers | {"Content-Encoding": "gzip"}
