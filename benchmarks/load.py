"""Load on a service from a separate process: persistent connections that send many requests.

Prints `ready` when it is connected. At the end, or at SIGTERM, it reads the last responses and
prints JSON: statuses, seconds of each response, how requests failed, how long it was sending and
when it sent the last, and how many were answered with 200 while it was sending. With --rate,
requests are sent at fixed times, whether or not earlier ones are answered; a connection has one at
a time.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import selectors
import signal
import socket
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", help="host:port")
    parser.add_argument("bodies", type=Path, help="a file with one JSON body per line")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--requests", type=int, default=10**9, help="stop after this many")
    parser.add_argument("--rate", type=float, help="requests a second, all connections together")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = Load(options)
    signal.signal(signal.SIGTERM, lambda *_: load.stop())
    json.dump(load.run(), sys.stdout)


class Load:
    """Connections and the outcomes of their requests; plain sockets, which use little CPU time."""

    def __init__(self, options: argparse.Namespace) -> None:
        host, _, port = options.address.rpartition(":")
        self.place, self.options = (host, int(port)), options
        lines = options.bodies.read_bytes().splitlines()
        head = "POST /v1/recommend HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n"
        start = head.format(options.address).encode()
        self.messages = [start + b"Content-Length: %d\r\n\r\n" % len(b) + b for b in lines]
        self.statuses: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.sockets: dict[int, socket.socket] = {}
        self.sent, self.last_sent, self.is_over, self.good = 0, 0.0, False, 0
        self.waiting = selectors.DefaultSelector()

    def stop(self) -> None:
        """Send nothing more."""
        self.is_over = True

    def run(self) -> dict[str, object]:
        """Send requests until time is over, then read the last responses."""
        idle = deque(p for p in range(self.options.connections) if self.connect(p))
        print("ready", flush=True)
        began = time.monotonic()
        while True:
            now = time.monotonic()
            late = now >= began + self.options.seconds or self.sent >= self.options.requests
            self.is_over = self.is_over or late
            while idle and not self.is_over and self.due(began) <= now:
                self.ask(idle.popleft())
                self.is_over = self.is_over or self.sent >= self.options.requests
            if not self.waiting.get_map() and (self.is_over or not idle):
                break
            pause = self.due(began) - now if idle and not self.is_over else 0.5
            for key, _ in self.waiting.select(min(0.5, max(0.0, pause))):
                if self.read(key.data):
                    idle.append(key.data.place)
        return {
            "statuses": self.statuses,
            "failures": self.failures,
            "seconds": sorted(self.seconds),
            "sent": self.sent,
            "sending": self.last_sent - began,
            "last_sent": self.last_sent,
            "good": self.good,
        }

    def due(self, began: float) -> float:
        """When the next request is to be sent."""
        return began + self.sent / self.options.rate if self.options.rate else 0.0

    def connect(self, place: int) -> bool:
        """Open a connection; returns whether that was possible."""
        try:
            self.sockets[place] = socket.create_connection(self.place, timeout=30)
            self.sockets[place].setblocking(False)
        except OSError:  # nothing was accepted
            self.failures["refused"] += 1
            return False
        return True

    def ask(self, place: int) -> None:
        """Send a request over this connection, or over a new one if it is closed."""
        if place in self.sockets and is_closed(self.sockets[place]):  # it was idle for too long
            self.sockets.pop(place).close()
        if place not in self.sockets and not self.connect(place):
            return
        self.sent += 1
        message = self.messages[self.sent % len(self.messages)]
        self.last_sent = time.monotonic()
        request = Asked(place, self.last_sent)
        with suppress(OSError):  # which reading will find as well
            self.sockets[place].sendall(message)
        self.waiting.register(self.sockets[place], selectors.EVENT_READ, request)

    def read(self, request: Asked) -> bool:
        """Read a part of a response; returns whether it is complete."""
        connection = self.sockets[request.place]
        try:
            part = connection.recv(2**16)
        except OSError:
            part = b""
        request.answer += part
        head, _, body = request.answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if part and not (length and len(body) >= int(length[1])):
            return False
        self.waiting.unregister(connection)
        if part:
            self.seconds.append(time.monotonic() - request.sent_at)
            status = head.split()[1].decode()
            self.statuses[status] += 1
            self.good += status == "200" and not self.is_over
        else:
            self.failures["closed without an answer"] += 1
        if not part or b"connection: close" in head.lower():
            self.sockets.pop(request.place).close()
        return True


def is_closed(connection: socket.socket) -> bool:
    """Whether the service has closed an idle connection."""
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


@dataclass
class Asked:
    """A request that was sent."""

    place: int
    sent_at: float
    answer: bytes = b""


if __name__ == "__main__":
    main()
