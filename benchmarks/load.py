"""Load on a service from a process of its own: connections that stay open and ask again and again.

Prints JSON: statuses, seconds of each answer, and how requests failed. With --rate, requests are
sent by the clock, whether or not earlier ones are answered; a connection has one at a time.
"""

from __future__ import annotations

import argparse
import heapq
import json
import re
import selectors
import socket
import sys
import time
from collections import Counter
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
    json.dump(Load(options).run(), sys.stdout)


class Load:
    """Connections, and what became of their requests; plain sockets, to leave the cores alone."""

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
        self.sent = 0
        self.waiting = selectors.DefaultSelector()

    def run(self) -> dict[str, object]:
        """Ask until time is over, then read the last answers."""
        began = time.perf_counter()
        end, rate = began + self.options.seconds, self.options.rate
        number = self.options.connections
        pause = number / rate if rate else 0.0
        due = [(began + pause * place / number, place) for place in range(number)]
        sockets: dict[int, socket.socket] = {}
        while True:
            now = time.perf_counter()
            while due and due[0][0] <= now:
                at, place = heapq.heappop(due)
                if now < end and self.sent < self.options.requests:
                    self.ask(sockets, place, max(at + pause, now) if rate else 0.0)
            if not (due or self.waiting.get_map()):
                break
            timeout = min(0.5, max(0.0, due[0][0] - now)) if due else 0.5
            for key, _ in self.waiting.select(timeout):
                if self.read(sockets, key.data):
                    heapq.heappush(due, (key.data.next_at, key.data.place))
        return {
            "statuses": self.statuses,
            "failures": self.failures,
            "seconds": sorted(self.seconds),
            "elapsed": time.perf_counter() - began,
        }

    def ask(self, sockets: dict[int, socket.socket], place: int, next_at: float) -> None:
        """Send a request over the connection of this place, or over a new one."""
        if place not in sockets:
            try:
                sockets[place] = socket.create_connection(self.place, timeout=30)
            except OSError:  # nothing was accepted
                self.failures["refused"] += 1
                return
        self.sent += 1
        message = self.messages[self.sent % len(self.messages)]
        request = Asked(place, time.perf_counter(), next_at)
        with suppress(OSError):  # which reading will find as well
            sockets[place].sendall(message)
        self.waiting.register(sockets[place], selectors.EVENT_READ, request)

    def read(self, sockets: dict[int, socket.socket], request: Asked) -> bool:
        """Read a part of an answer; returns whether that was the last of it."""
        connection = sockets[request.place]
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
            self.seconds.append(time.perf_counter() - request.sent_at)
            self.statuses[head.split()[1].decode()] += 1
        else:
            self.failures["closed without an answer"] += 1
        if not part or b"connection: close" in head.lower():
            sockets.pop(request.place).close()
        return True


@dataclass
class Asked:
    """A request that was sent."""

    place: int
    sent_at: float
    next_at: float
    answer: bytes = b""


if __name__ == "__main__":
    main()
