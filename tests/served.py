"""A service for tests: in this process, or as a process of its own."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from fastapi.testclient import TestClient

import itemfold as ir
from itemfold.serving.http import ServedRuns, ServiceSettings, create_app

DATA = ir.load("synthetic:users=120,items=90,interactions=1800")


def open_client(recommender: ir.Recommender, **settings) -> TestClient:
    """A client of a service in this process."""
    app = create_app(ServedRuns({"run": recommender}), ServiceSettings(**settings))
    return TestClient(app, base_url="http://localhost")


class Service:
    """`itemfold serve` as a process of its own, at a free port.

    `constants` is a statement that the process runs first.
    """

    def __init__(self, *options: str | Path, workers: int = 1, constants: str = "") -> None:
        code = "from itemfold.cli import app"
        code += f"; {constants}" if constants else ""
        command = [sys.executable, "-c", f"{code}; app.main()", "serve", *map(str, options)]
        command += ["--port", "0", "--workers", str(workers)]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        assert self.process.stdout
        sentence = self.process.stdout.readline()
        assert sentence, self.log_text()
        self.address = re.search(r"http://\S+", sentence)[0]
        where = urlsplit(self.address)
        self.place = (where.hostname, where.port)

    def log_text(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def log(self) -> list[dict]:
        """The lines of the log."""
        return [json.loads(line) for line in self.log_text().splitlines()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._log.close()
