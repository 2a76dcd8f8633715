"""The pages of the site: commands, Python and examples run as they stand, and the site builds."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from doc_blocks import ROOT, blocks, commands, load_script, run_command, write_plays
from small import random_matrix, seeded
from test_architecture import GROUND, LAYERS

import itemfold as ir
from itemfold import extensions
from itemfold.data.datasets import DATASETS

DOCS = ROOT / "docs"
TEXTS = {
    path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md"))
}

SMALL = "synthetic:users=60,items=80"


def write_sessions(folder: Path) -> None:
    """What docs/examples/own_dataset.py reads."""
    sessions = [
        {"who": f"user{n % 20}", "tracks": [f"track{(n % 40 * 7 + m) % 30}" for m in range(5)]}
        for n in range(60)
    ]
    lines = "\n".join(map(json.dumps, sessions))
    (folder / "sessions.jsonl").write_text(lines, encoding="utf-8")


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with the files the pages speak of; what an example registers is forgotten."""
    tables = (ir.losses.LOSSES, ir.models.MODELS, ir.negatives.NEGATIVES, DATASETS)
    before = [dict(table) for table in tables]
    shutil.copytree(DOCS / "examples", tmp_path / "docs" / "examples")
    write_plays(tmp_path)
    write_sessions(tmp_path)
    (tmp_path / "example.toml").write_text(blocks(TEXTS["reference/files.md"], "toml")[0])
    (tmp_path / "mine.toml").write_text(blocks(TEXTS["how-to/experiments.md"], "toml")[0])
    (tmp_path / "new.csv").write_text(blocks(TEXTS["how-to/new-items.md"], "csv")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(extensions.VARIABLE, "")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(extensions.PREFIX)]:
        del sys.modules[name]
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if commands(text)])
def test_every_command_of_a_page_works_as_written(page, workplace):
    for words in commands(TEXTS[page]):
        run_command(words)


@pytest.mark.parametrize("page", [name for name, text in TEXTS.items() if blocks(text, "python")])
def test_the_python_of_a_page_works_as_written(page, workplace):
    names: dict[str, object] = {}
    for number, code in enumerate(blocks(TEXTS[page], "python")):
        exec(compile(code, f"{page}, block {number}", "exec"), names)


def test_every_example_is_shown_on_the_page():
    for path in (DOCS / "examples").glob("*.py"):
        assert path.read_text(encoding="utf-8").strip() in TEXTS["how-to/extend.md"], path.name


# --- examples ------------------------------------------------------------------------------------


def example(name: str) -> dict[str, object]:
    """What a file under docs/examples defines; it registers itself."""
    return runpy.run_path(str(DOCS / "examples" / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("own_loss", "--loss own-loss --set loss.gap=0.5"),
        ("own_encoder", "--model own-encoder --set model.keep=0.2 --protocol inductive"),
        ("own_sampler", "--negatives own-sampler --set negatives.share=0.1"),
    ],
)
def test_an_example_trains_from_the_command_line_and_its_run_recommends(name, options, workplace):
    example(name)
    run_command(["itemfold", "train", SMALL, *options.split(), "--epochs", "2", "--out", "run"])
    section, setting, value = re.search(r"--set (\w+)\.(\w+)=(\S+)", options).groups()
    assert ir.Run.load("run").config[section][setting] == float(value)
    run_command(["itemfold", "recommend", "run", "--history", "3,5,8", "-k", "4"])


def test_the_own_loss_is_the_mean_hinge_and_ignores_padding(workplace):
    loss = example("own_loss")["own_loss"]
    pos, neg = torch.tensor([[1.0, 9.0]]), torch.tensor([[0.5, -3.0, 9.0]])
    real = torch.tensor([[True, False]]), torch.tensor([[True, True, False]])
    assert loss(pos, neg, *real, gap=1.0).item() == pytest.approx((0.5 + 0) / 2)


def test_the_own_encoder_folds_a_training_history_in_as_the_rule_says(workplace):
    model = example("own_encoder")["OwnEncoder"](dim=4, layers=1, keep=0.25)
    matrix = random_matrix(6, 5, 0.5)
    model.setup(matrix, inductive=True, generator=seeded())
    model.cache_embeddings(ir.models.base.Graph.from_csr(matrix))
    user = matrix[[0]]
    mean = model.item_embedding[user.indices].mean(0)  # users start from zero: h⁰ = 0
    torch.testing.assert_close(model.fold_in(user)[0], 0.75 * mean)


def test_the_own_sampler_draws_no_positive_and_all_that_is_asked_for(workplace):
    sampler = example("own_sampler")["OwnSampler"]
    matrix = random_matrix(10, 12, 0.4)
    for share in (0.0, 0.3, 1.0):
        mixed = sampler(share=share)
        mixed.prepare(matrix)
        users = torch.arange(9)
        drawn = mixed(users, 40, seeded())
        assert drawn.shape == (9, 40)
        assert not matrix.toarray()[users[:, None], drawn].any()


def test_the_own_data_set_reads_every_pair_once(workplace):
    data = example("own_dataset")["read_sessions"]()
    sessions = map(json.loads, Path("sessions.jsonl").read_text().splitlines())
    rows = [(session["who"], track) for session in sessions for track in session["tracks"]]
    users, items = data.user_ids.external(data.users), data.item_ids.external(data.items)
    assert set(zip(users, items, strict=True)) == set(rows)
    assert data.duplicates == len(rows) - len(set(rows)) > 0


# --- pictures and tables -------------------------------------------------------------------------


def test_the_plots_show_what_the_page_says_of_the_losses():
    plots = load_script("plots")
    losses = ir.losses

    def kept(loss, rank: int) -> float:  # of the slope at rank 5
        return plots.slope_at_rank(loss, rank) / plots.slope_at_rank(loss, 5)

    assert kept(losses.item_ndcg(tau=0.1), 500) < 0.1
    assert kept(losses.item_log(tau=0.1), 500) > 0.3
    assert kept(losses.softmax(tau=0.3), 500) == pytest.approx(1, abs=0.05)
    assert kept(losses.bpr, 500) > 2
    assert plots.slope_at_rank(losses.item_recall(tau=0.1, tau_k=1.0), 40) < 1e-6


def test_the_picture_of_the_protocols_is_the_one_the_script_draws():
    drawn = load_script("plots").protocols()
    assert drawn == (DOCS / "img" / "protocols.svg").read_text(encoding="utf-8")


def test_every_loss_has_a_section_with_a_plot():
    page = TEXTS["explanation/losses.md"]
    for name in ir.losses.LOSSES:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"(../img/slope-{name}.svg)" in section, name
        assert "$$" in section, name


def test_the_architecture_page_lists_the_layers_in_their_order():
    page = TEXTS["explanation/architecture.md"]
    named = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert named == [layer for layer in LAYERS if layer != GROUND]
