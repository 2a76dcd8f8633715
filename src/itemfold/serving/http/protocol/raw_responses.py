"""Whole responses for requests that do not reach the application."""

from __future__ import annotations

import json

from itemfold.serving.http.admission.work_queue import RETRY_SECONDS, busy


def raw_response(status: str, sentence: str, *headers: str) -> bytes:
    """A complete response with an error."""
    body = json.dumps({"error": sentence}, separators=(",", ":"))
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", "Cache-Control: no-store"]
    lines += ["X-Content-Type-Options: nosniff", f"Content-Length: {len(body)}", *headers, "", body]
    return "\r\n".join(lines).encode()


UNAVAILABLE, RETRY = "503 Service Unavailable", f"Retry-After: {RETRY_SECONDS}"
BUSY = raw_response(UNAVAILABLE, busy().detail, RETRY)
TOO_MANY = raw_response(
    UNAVAILABLE, "too many connections: try again later", RETRY, "Connection: close"
)
