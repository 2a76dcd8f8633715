"""The site as `make docs` builds it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from doc_blocks import ROOT

from itemfold.cli.app import app

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: a warning is an error."""
    if built := os.environ.get("ITEMFOLD_SITE"):  # `.ci/run` has just built it
        return Path(built).resolve()
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_command_and_option_stands_on_the_commands_page(site):
    page = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        assert f'id="itemfold-{name}"' in page
        for option in command.params:
            for spelling in option.opts if option.param_type_name == "option" else ():
                assert f"<code>{spelling}</code>" in page, (name, spelling)


def test_no_marker_and_no_formula_is_left_as_it_was_written(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "<!-- made:" not in text, path
        assert "arithmatex" not in text, path
        assert "--8&lt;--" not in text, path
    losses = (site / "explanation" / "losses.html").read_text(encoding="utf-8")
    assert losses.count('display="block"') >= 9


def test_the_site_fetches_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe|source)[^>]*src="(?:https?:)?//', text), path
        assert not re.findall(r'<link[^>]*rel="(?:stylesheet|preconnect)"[^>]*href="http', text)
