"""Pages can be read on a code host: generated parts are committed, and no stub is visible."""

import html
import json
import re
from pathlib import Path

import pytest
from doc_blocks import ROOT, load_script

from itemfold.cli.tables.catalogue import SHORT
from itemfold.models import MODELS

PAGES = sorted((ROOT / "docs").rglob("*.md"))
MEASURED = ROOT / "src/itemfold/experiments/measured.json"
COMMITTED, HOOKS = load_script("committed"), load_script("hooks")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT / "docs").as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_generated_parts_of_a_page_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    current = COMMITTED.committed(page, text, HOOKS.MADE)
    assert text == current, "run: python tools/docs/committed.py"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_stub_is_visible_on_a_code_host(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    visible = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    assert not re.findall(r"^:::.*|^--8<--.*", visible, flags=re.MULTILINE)
    parts = re.findall(r"<!-- (?:made|api|picture|code):", text)
    assert len(parts) - text.count("<!-- made: tutorial -->") == text.count("<!-- end -->")


def test_the_picture_of_models_has_the_measured_figures() -> None:
    picture = (ROOT / "docs/img/screen-models.svg").read_text(encoding="utf-8")
    texts = re.findall(r">([^<>]*)</text>", html.unescape(picture).replace("\xa0", " "))
    drawn = {line[0]: line[1:] for text in texts if (line := text.split())}
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))
    for name in MODELS:
        found = measured.get(name, {})
        figures = [f"{100 * found[data]['ndcg@20']:.2f}" for data in SHORT if data in found]
        assert [word for word in drawn[name] if "." in word] == figures, "run tools/docs/screens.py"


def test_the_site_gets_the_stubs_instead_of_their_text() -> None:
    page = ROOT / "docs" / "reference" / "api" / "training.md"
    site = COMMITTED.for_site(page.read_text(encoding="utf-8"))
    assert re.search(r"^::: itemfold\.train$", site, flags=re.MULTILINE)
    assert "<!-- api" not in site
    assert '<a id="itemfold.train">' not in site
    losses = (ROOT / "docs" / "explanation" / "losses.md").read_text(encoding="utf-8")
    assert '\n--8<-- "docs/img/slopes.svg"\n' in COMMITTED.for_site(losses)


def test_links_to_the_reference_have_a_target_on_a_code_host() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for link, anchor in re.findall(r"\]\(([\w./-]+\.md)#(itemfold[\w.]+)\)", text):
            target = (page.parent / link).read_text(encoding="utf-8")
            owner = anchor.rpartition(".")[0]  # a method is listed with its class
            has = any(f'<a id="{name}"></a>' in target for name in (anchor, owner))
            assert has, (page.name, link, anchor)


def test_a_docstring_becomes_markdown() -> None:
    doc = """Does it.

Args:
    one: The first,
        continued.
    **rest: More.

Returns:
    A thing.

Examples:
    >>> 1 + 1
    2
"""
    assert COMMITTED.markdown(doc) == [
        *(
            "Does it.",
            "",
            "**Args**",
            "",
            "- `one`: The first,",
            "  continued.",
            "- `**rest`: More.",
        ),
        *("", "**Returns**", "", "A thing.", "", "```pycon", ">>> 1 + 1", "2", "```", ""),
    ]
