"""Requests generated from the OpenAPI document get only answers that it describes."""

import importlib.util
import re
import subprocess
import sys

import pytest
from served import Service


@pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason="pip install schemathesis"
)
@pytest.mark.parametrize(
    ("each", "least"), [(25, 250), pytest.param(600, 5000, marks=pytest.mark.slow)]
)
def test_every_answer_is_described_by_the_document(folder, tmp_path, each, least):
    with Service(folder, "--feedback", tmp_path / "feedback", "--no-access-log") as service:
        command = [sys.executable, "-c", "from schemathesis.cli import schemathesis as s; s()"]
        command += ["run", f"{service.address}/openapi.json", "--url", service.address]
        # a request may have the right form and ask for what the model does not know: 422
        command += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        command += ["--phases", "examples,coverage,fuzzing", "-n", str(each), "--seed", "1"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, cwd=tmp_path)
        assert done.returncode == 0, done.stdout
        (generated,) = re.findall(r"([\d,]+) generated, \1 passed", done.stdout)
        assert int(generated.replace(",", "")) >= least
        assert not service.log()
