"""The demo trains every system in both protocols, compares them, and can be continued."""

import io
import re
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.cli.demo import PROTOCOLS, SYSTEMS, run_demo
from itemfold.cli.tables.layout import program

TINY = "synthetic:users=100,items=80,interactions=1500"


def printed_by_demo(out) -> str:
    file = io.StringIO()
    run_demo(out, data=TINY, console=Console(file=file, width=120), epochs=4, eval_every=2)
    return file.getvalue()


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a demo, and what it printed."""
    out = tmp_path_factory.mktemp("shown") / "demo"
    return out, printed_by_demo(out)


def test_demo_on_a_small_data_set(shown):
    out, text = shown
    for protocol in PROTOCOLS:
        for system in SYSTEMS:
            run = ir.Run.load(out / f"{protocol}-{system}")
            assert run.protocol == protocol
            assert f"{run.metrics['test']['ndcg@20']:.4f}" in text
    page = (out / "report.html").read_text()
    assert "Users never seen in training" in page
    titles = {title for title in ir.load(TINY).titles.tolist() if title in text}
    assert len(titles) >= 8  # a history, recommendations and reasons by title
    for part in ("p (t)", "report.html", "95 %: interval of the mean", "1 of 8", "8 of 8"):
        assert part in text
    ((_, history),) = re.findall(
        r"recommend (\S+)/inductive-hybrid --history (\S+) --explain", text
    )
    recommender = ir.Recommender.load(out / "inductive-hybrid")
    assert recommender.recommend(history=history.split(",")).unknown == ()
    assert (
        text.splitlines()[-1] == "train on your own file: itemfold train FILE.csv --out runs/mine"
    )


def test_the_last_row_is_the_default_with_settings_that_it_chose_itself(shown):
    assert list(SYSTEMS)[-1] == "hybrid"
    out, text = shown
    assert text.count("The hybrid, the default of `itemfold train`, is ") == 2
    default = ir.train(ir.split_users(ir.load(TINY)), epochs=1)
    for protocol in PROTOCOLS:
        run = ir.Run.load(out / f"{protocol}-hybrid")
        assert run.metrics["model"] == default.metrics["model"]
        chosen = run.metrics["chosen"]["model"]
        assert "blend" in chosen
        for part, setting in (("gnn", "dim"), ("linear", "l2")):  # or the part is not worth it
            assert chosen[part] == "none" or setting in chosen[part]
    assert "What was tried and chosen" in (out / "report.html").read_text(encoding="utf-8")


def test_the_losses_share_encoder_and_split_and_bpr_is_the_published_one(shown):
    out, text = shown
    for protocol in PROTOCOLS:
        bpr, item = (ir.Run.load(out / f"{protocol}-{loss}") for loss in ("bpr", "item-ndcg"))
        for section in ("split", "model"):
            assert bpr.config[section] == item.config[section]
        assert (bpr.config["train"]["batch_by"], bpr.config["train"]["n_negatives"]) == (
            "interactions",
            1,
        )
    assert text.count("BPR in NDCG@20 here (p ") == len(PROTOCOLS)


def test_a_second_call_trains_nothing(shown):
    out, first = shown
    files = {p: p.stat().st_mtime_ns for p in out.rglob("model.safetensors")}
    assert printed_by_demo(out) == first
    assert {p: p.stat().st_mtime_ns for p in out.rglob("model.safetensors")} == files


def test_serve_opens_the_page_of_the_runs_for_unseen_users(tmp_path, monkeypatch):
    opened, served = [], {}

    def serve(runs, **settings):
        served.update(runs=runs, **settings)
        settings["when_ready"]("http://127.0.0.1:1")

    monkeypatch.setattr("itemfold.serving.http.serve", serve)
    monkeypatch.setattr("webbrowser.open", opened.append)
    trained = []
    monkeypatch.setattr("itemfold.cli.demo.run_demo", lambda out, **_: trained.append(out))
    out = tmp_path / "demo"
    result = CliRunner().invoke(app, ["demo", "--serve", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert trained == [out]  # the runs are made first
    assert served["runs"] == [f"{name}={out}/inductive-{name}" for name in reversed(SYSTEMS)]
    assert served["runs"][0].startswith("hybrid=")  # the default answers first
    assert (served["port"], served["workers"]) == (0, 1)
    assert opened == ["http://127.0.0.1:1"]


def test_a_printed_command_is_one_that_the_shell_finds(tmp_path: Path, monkeypatch) -> None:
    script = tmp_path / ".venv/bin/itemfold"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/itemfold", "demo"])
    monkeypatch.setenv("PATH", "/nowhere")
    assert program() == ".venv/bin/itemfold"
    monkeypatch.setenv("PATH", str(script.parent))  # as after `source .venv/bin/activate`
    assert program() == "itemfold"
    monkeypatch.setattr(sys, "argv", ["/somewhere/__main__.py"])
    assert program() == "itemfold"
