"""The bar of notebooks: one HTML line that is shown, replaced and removed again."""

import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

import itemfold as ir
from itemfold.training import progress


class Page:
    """What a notebook shows: one text for each display, in their order."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    def display(self, html: str, display_id: bool) -> Any:
        assert display_id
        self.lines.append([html])
        return SimpleNamespace(update=self.lines[-1].append)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Page:
    """A stand-in for the part of IPython that the bar uses."""
    page = Page()
    shell = SimpleNamespace(kernel=object())
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    shown = SimpleNamespace(HTML=str, display=page.display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shown)
    monkeypatch.setattr(progress, "REDRAW_SECONDS", 0.0)
    return page


def test_steps_are_counted_and_the_bar_is_removed(page: Page) -> None:
    assert list(progress.track(range(3), "a < b", show=True)) == [0, 1, 2]
    (line,) = page.lines
    assert len(line) == 5  # shown, three changes, removed
    assert 'a &lt; b <progress value="0" max="3">' in line[0]
    assert "2/3" in line[2]
    assert line[-1] == ""


def test_an_interrupted_iteration_removes_the_bar(page: Page) -> None:
    steps = progress.track((n for n in (1, 2)), "some", show=True)
    next(steps)
    steps.close()
    assert page.lines[0][-1] == ""
    assert "max" not in page.lines[0][0]  # the number is not known


@pytest.mark.parametrize(("total", "shown"), [(None, "2 0:00"), (2, "2/2 0:00")])
def test_a_terminal_shows_the_number_of_steps_only_if_it_is_known(
    total: int | None, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert list(progress.track((c for c in "ab"), "some", show=True, total=total)) == ["a", "b"]
    text = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", capsys.readouterr().err)
    assert shown in text
    assert "None" not in text
    assert ("left" in text) == (total is not None)


def test_training_shows_epochs_and_validation(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
    ir.train(split, ir.models.LightGCN(dim=8), epochs=4, eval_every=2, progress=True)
    text = "\n".join(page.lines[0])
    assert "selecting on validation" in text
    assert "4/4 epochs" in text
    assert "best ndcg@20" in text
    assert any("refitting" in "\n".join(line) for line in page.lines)
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_unless_it_is_wanted(page: Page) -> None:
    assert list(progress.track(range(3), "steps", show=False)) == [0, 1, 2]
    assert page.lines == []


def test_a_terminal_session_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not progress.in_notebook()
    bare = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", bare)
    assert not progress.in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not progress.in_notebook()
