"""The tutorial notebook runs from top to bottom, and the site shows it with its outputs."""

import pytest
from doc_blocks import ROOT, load_script
from notebooks import load, run

PATH = ROOT / "docs" / "tutorial" / "tutorial.ipynb"


def stored(cell: dict) -> str:
    return "".join(line for output in cell["outputs"] for line in output["text"])


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        return run(load(PATH))


def test_every_cell_runs_and_prints_where_the_stored_notebook_has_an_output(outputs):
    cells = [cell for cell in load(PATH)["cells"] if cell["cell_type"] == "code"]
    assert [bool(text) for text in outputs] == [bool(stored(cell)) for cell in cells]
    assert outputs[-1].strip() == "True"  # the loaded recommender gives the same list


def test_what_does_not_depend_on_training_time_is_as_stored(outputs):
    cells = [cell for cell in load(PATH)["cells"] if cell["cell_type"] == "code"]
    assert outputs[0] == stored(cells[0])


def test_the_notebook_is_valid_and_tidy():
    notebook = load(PATH)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert set(cell) == {
                *("cell_type", "execution_count", "id", "metadata", "outputs", "source")
            }
        assert "/home" not in "".join(cell["source"])


@pytest.mark.docs
def test_the_page_shows_text_code_and_outputs():
    page = load_script("hooks").tutorial()
    for cell in load(PATH)["cells"]:
        text = "".join(cell["source"])
        assert text.splitlines()[-1] in page
        if cell["cell_type"] == "code":
            assert f"```python\n{text}\n```" in page
            assert stored(cell).strip() in page
