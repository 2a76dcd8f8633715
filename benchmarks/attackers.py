"""Attackers of a service in a separate process: connections that make it wait, parse or hold.

Prints `ready` when they are connected, and keeps at it until SIGTERM: a connection that the service
closes is opened again at once. `headers` and `bodies` arrive a byte at a time, `chunks` are a
million chunks of one byte, `unread` asks for lists and never reads them, `silent` says nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

KINDS = ("silent", "headers", "bodies", "chunks", "unread")
PAUSE_S = 1.0  # between two bytes of a slow connection
FLOOD = b"1\r\n[\r\n" * 10_000  # chunks, as many as are sent at a time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="host:port")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--key", default="", help="an API key that the attacker knows")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    host, _, port = options.address.rpartition(":")
    attack = Attack((host, int(port)), options.kind, options.key)
    for _ in range(options.connections):
        attack.connect()
    print("ready", flush=True)
    while True:
        attack.turn()


class Attack:
    """Connections of one kind."""

    def __init__(self, place: tuple[str, int], kind: str, key: str) -> None:
        self.place, self.kind = place, kind
        self.key = f"Authorization: Bearer {key}\r\n" if key else ""
        self.selector = selectors.DefaultSelector()
        self.lost = 0

    def connect(self) -> None:
        """Open a connection."""
        connection = socket.socket()
        if self.kind == "unread":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(OSError):
            connection.settimeout(5)
            connection.connect(self.place)
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, [self.parts(), 0.0])
            return
        connection.close()
        self.lost += 1

    def parts(self) -> Iterator[bytes]:
        """What a connection sends, part by part; an empty part is a pause."""
        start = f"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n{self.key}"
        start += "Content-Type: application/json\r\n"
        if self.kind == "headers":
            for letter in f"{start}X-Slow: {'a' * 10_000}":
                yield letter.encode()
                yield b""
        elif self.kind == "bodies":
            yield f"{start}Content-Length: 100000\r\n\r\n".encode()
            while True:
                yield b"["
                yield b""
        elif self.kind == "chunks":
            yield f"{start}Transfer-Encoding: chunked\r\n\r\n".encode()
            while True:
                yield FLOOD
        elif self.kind == "unread":
            body = json.dumps({"history": list(range(1, 40)), "k": 1000})
            ask = f"{start}Content-Length: {len(body)}\r\n\r\n{body}".encode()
            while True:
                yield ask
                yield b""
        while True:
            yield b""

    def turn(self) -> None:
        """Let every connection send its next part; open those again that were closed."""
        closed, now = 0, time.monotonic()
        for key in list(self.selector.get_map().values()):
            parts, due = key.data
            if now < due or self.is_closed(key.fileobj):
                closed += now >= due
                continue
            try:
                part = next(parts)
                if part:
                    key.fileobj.send(part)  # type: ignore[union-attr]
                else:
                    key.data[1] = now + PAUSE_S
            except BlockingIOError:
                key.data[1] = now + 0.01
            except OSError:
                self.close(key.fileobj)
                closed += 1
        for _ in range(closed + self.lost):
            self.lost = max(0, self.lost - 1)
            self.connect()
        time.sleep(0.02)

    def is_closed(self, connection: object) -> bool:
        """Close a connection that the service has closed, and return whether it had."""
        if self.kind == "unread":
            return False
        try:
            closed = not connection.recv(2**16)  # type: ignore[attr-defined]
        except BlockingIOError:
            closed = False
        except OSError:
            closed = True
        if closed:
            self.close(connection)
        return closed

    def close(self, connection: object) -> None:
        """Forget a connection."""
        self.selector.unregister(connection)  # type: ignore[arg-type]
        connection.close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
