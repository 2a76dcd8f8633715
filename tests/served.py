"""A service for tests: in this process, or as a process of its own."""

import re
import subprocess
import sys
from pathlib import Path

from fastapi.testclient import TestClient

import itemrec as ir
from itemrec.serving.http import Runs, ServiceSettings, create_app

DATA = ir.load("synthetic:users=120,items=90,interactions=1800")


def open_client(recommender: ir.Recommender, **settings) -> TestClient:
    app = create_app(Runs({"run": recommender}), ServiceSettings(**settings))
    return TestClient(app, base_url="http://localhost")


class Service:
    """`itemrec serve` as a process of its own, at a free port."""

    def __init__(self, folder: Path, *options: str, patience: int = 10) -> None:
        code = "from itemrec.cli import app; from itemrec.serving.http import server"
        code += f"; server.SHUTDOWN_SECONDS = {patience}"
        command = [sys.executable, "-c", f"{code}; app.main()", "serve", str(folder), "--port", "0"]
        command += ["--workers", "1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        sentence = self.process.stdout.readline()
        self.address = re.search(r"http://\S+", sentence)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
