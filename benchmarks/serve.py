"""`itemrec serve` over HTTP: 20 items for a history of 50, next to the same call in Python.

One client keeps a connection open and waits for each response; then eight send requests at once.
Clients, and the calls in Python that take turns with theirs, run on the same cores as the service.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import Verdicts, begin, parser

import numpy as np
from fold_in import TOP, histories, untrained

from itemrec.serving.recommender import Recommender

CLIENTS = 8


def main() -> None:
    arguments = parser(__doc__, "yelp2018")
    arguments.set_defaults(threads=1)
    options = arguments.parse_args()
    split = begin(options)
    run = untrained(split)
    recommender = Recommender.from_run(run)
    asked = list(histories(split, 50 if options.quick else 1000))
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder) / "run")
        command = [sys.executable, "-m", "itemrec", "serve", f"{folder}/run", "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
            try:
                assert service.stdout
                address = urlsplit(re.findall(r"http://\S+", service.stdout.readline())[0]).netloc
                measure(address, recommender, asked)
            finally:
                service.terminate()


def measure(address: str, recommender: Recommender, questions: list[list[Any]]) -> None:
    asked, called = [], []
    with Client(address) as client:
        for history in questions[:20]:  # warm up
            assert client.ask(history) == python(recommender, history)
        for history in questions:
            start = time.perf_counter()
            client.ask(history)
            asked.append(time.perf_counter() - start)
            start = time.perf_counter()
            python(recommender, history)
            called.append(time.perf_counter() - start)
    p50, p99 = (1e3 * float(np.percentile(asked, q)) for q in (50, 99))
    print(f"{len(asked)} calls, one at a time: median {p50:.2f} ms, 99th percentile {p99:.2f} ms")
    print(f"the same in Python: median {1e3 * np.median(called):.2f} ms")
    start = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda part: many(address, part), np.array_split(questions, CLIENTS)))
    print(f"{CLIENTS} clients at once: {len(questions) / (time.perf_counter() - start):.0f}/s")
    verdicts = Verdicts()
    verdicts.also("serve_p99_ms", p99, 20.0)
    verdicts.last("serve_over_python", float(np.median(asked) / np.median(called)), 3.0)


def python(recommender: Recommender, history: list[Any]) -> list[Any]:
    return [pick.item for pick in recommender.recommend(history=history, k=TOP)]


def many(address: str, questions: Any) -> None:
    with Client(address) as client:
        for history in questions:
            client.ask(history.tolist())


class Client:
    """A connection that stays open."""

    def __init__(self, address: str) -> None:
        self.connection = http.client.HTTPConnection(address)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, history: list[Any]) -> list[Any]:
        """The items recommended to this history."""
        body = json.dumps({"history": history, "k": TOP})
        self.connection.request("POST", "/recommend", body, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status == 200, content
        return [pick["item"] for pick in content["items"]]


if __name__ == "__main__":
    main()
