"""The report is self-contained, and its figures are those of the runs."""

import re
from html import escape
from html.parser import HTMLParser

import pytest
import scipy.stats
import torch

import itemfold as ir
from itemfold.cli.report import plots
from itemfold.cli.report.page import write_report
from itemfold.cli.tables.summary import verdict
from itemfold.evaluation.tradeoff import Sweep, SweepPoint
from itemfold.settings.toml_file import flat

DATA = "synthetic:users=120,items=90,interactions=1800"


@pytest.fixture(scope="module")
def runs() -> dict[str, ir.Run]:
    data = ir.load(DATA)
    settings = {"epochs": 6, "eval_every": 2, "lr": 0.05}
    known, unseen = ir.split_interactions(data), ir.split_users(data, test=0.3)
    return {
        "known <bpr>": ir.train(known, ir.models.LightGCN(dim=8), loss=ir.losses.bpr, **settings),
        "known item": ir.train(known, ir.models.LightGCN(dim=8), **settings),
        "unseen item": ir.train(unseen, ir.models.LightGCN(dim=8), **settings),
        "unseen ease": ir.train(unseen, ir.models.EASE()),
    }


class Page(HTMLParser):
    """Checks that tags close in order, and collects links and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href", "srcset")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory) -> Page:
    path = write_report(runs, tmp_path_factory.mktemp("report") / "report.html")
    parser = Page()
    parser.feed(path.read_text(encoding="utf-8"))
    assert parser.open == []
    parser.source = path.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    return parser


def test_nothing_is_fetched_from_outside(page):
    assert all(link.startswith("#") for link in page.links)
    assert "<script" not in page.source
    assert not re.search(r"url\((?!#)", page.source)


def test_every_figure_of_every_run_is_there(page, runs):
    for run in runs.values():
        for value in run.metrics["test"].values():
            assert f"{value:.4f}" in page.text


def test_every_metric_of_the_table_is_explained_below_it(page, runs):
    run = next(iter(runs.values()))
    explained = " ".join(re.findall(r'<ul class="note">(.*?)</ul>', page.source, re.DOTALL))
    for name in {key.partition("@")[0] for key in run.metrics["test"]}:
        base = "popularity_bias" if name.startswith("popularity_bias") else name
        assert re.search(rf"\b{base}\b", explained), name


def test_groups_tests_and_plots(page, runs):
    assert "Known users" in page.text
    assert "Users never seen in training" in page.text
    assert page.text.count("Paired tests") == 2
    assert page.source.count("<svg ") == 8  # four plots per group
    assert "known <bpr>" in page.text  # names are escaped
    for variable in ("var(--ink)", "var(--c0)", "var(--c1)"):
        assert variable in page.source
    assert "#010101" not in page.source


def test_it_opens_with_the_verdict_a_picture_and_lists_and_folds_the_rest(page, runs):
    top, *folded = re.split(r"<details>", page.source.partition("<h2>")[2])
    order = [top.index(text) for text in ('class="verdict"', "<svg ", "ndcg@20</td>", "Examples")]
    assert order == sorted(order)
    assert top.count("<svg ") == 1
    for hidden in ("gini", "popularity_bias", "Paired tests", "Learning curves"):
        assert hidden not in top
        assert any(hidden in part for part in folded)
    values = {name: run.metrics["test"]["ndcg@20"] for name, run in runs.items() if "known" in name}
    best, second = sorted(values, key=values.get, reverse=True)
    sentence = re.search(r'class="verdict">(.*?)</p>', top)[1]
    assert sentence.startswith(f"{escape(best)} has the best ndcg@20, {values[best]:.4f}, which is")
    a, b = (runs[name].per_user["ndcg@20"] for name in (best, second))
    p = scipy.stats.ttest_rel(a, b).pvalue
    assert ("which is better" in sentence) == (p < 0.05)
    assert f"p = {p:.3f}".replace("0.", ".") in sentence or "p &lt;.001" in sentence


def test_one_run_has_its_own_verdict_and_popularity_in_the_picture(runs, tmp_path):
    run = runs["known item"]
    text = write_report({"mine": run}, tmp_path / "r.html").read_text(encoding="utf-8")
    top = text.partition("<details>")[0]
    assert escape(verdict(run)) in top
    assert f"{run.metrics['popularity']['ndcg@20']:.4f}" in top.partition("</svg>")[0]


def test_examples_are_recommendations_of_the_runs(page, runs):
    size = runs["known item"].interactions.indptr
    assert len(size) == 121
    user = re.search(r"User (\d+)", page.text)
    assert user
    for name in ("known <bpr>", "known item"):
        for pick in ir.Recommender.from_run(runs[name]).recommend(user[1], k=10):
            assert pick.title in page.text


def test_one_run_and_bad_paths(runs, tmp_path):
    run = runs["unseen ease"]
    run.save(tmp_path / "r")
    path = write_report([tmp_path / "r"], tmp_path / "one.html")
    assert "Paired tests" not in path.read_text()
    with pytest.raises(ir.ItemfoldError, match="existing folder"):
        write_report(runs, tmp_path / "no" / "report.html")
    with pytest.raises(ir.ItemfoldError, match="'out' must be a file, got the folder"):
        write_report(runs, tmp_path)
    with pytest.raises(ir.ItemfoldError, match="at least one run"):
        write_report({}, tmp_path / "report.html")


@pytest.fixture(scope="module")
def hybrid() -> ir.Run:
    """A hybrid that tried two networks, as it does for dense data on a GPU."""
    data = ir.load(DATA)
    model = ir.models.Hybrid(gnn={"dim": 8, "start": "random"})
    with pytest.MonkeyPatch.context() as patch:
        where = "itemfold.training.strategies"
        patch.setattr(f"{where}.candidates.pick_device", lambda name: torch.device("cuda"))
        patch.setattr(f"{where}.noise.FEW_USERS", 0)  # few users would not choose a network
        return ir.train(ir.split_users(data, test=0.3), model, epochs=4, eval_every=2)


def test_what_was_tried_and_chosen_is_there_and_what_was_taken_is_marked(hybrid, runs, tmp_path):
    assert len(hybrid.metrics["candidates"]) == 2
    several = {"unseen hybrid": hybrid, "unseen ease": runs["unseen ease"]}
    text = write_report(several, tmp_path / "report.html").read_text(encoding="utf-8")
    section = text.partition("What was tried and chosen")[2].partition("<h3>")[0]
    assert "unseen hybrid" in section
    assert "unseen ease" not in section  # it left nothing open
    taken = [row for row in re.findall(r"<tr>(.*?)</tr>", section) if "taken" in row]
    assert len(taken) == 2  # a network and a setting of the linear model
    for row, tried in zip(taken, ("candidates", "trials"), strict=True):
        best = max(entry["ndcg@20"] for entry in hybrid.metrics[tried])
        assert f"<b>{best:.4f}</b>" in row
    for entry in hybrid.metrics["candidates"]:
        assert entry["name"] in section
    for path in flat(hybrid.metrics["chosen"]):
        assert f"<code>{path}</code>" in section


def test_the_curve_of_a_network_that_was_not_taken_is_dotted(hybrid, tmp_path):
    text = write_report({"hybrid": hybrid}, tmp_path / "report.html").read_text(encoding="utf-8")
    curves = text.partition("Learning curves")[2].partition("</svg>")[0]
    assert curves.count("stroke-dasharray") == 1


def test_runs_that_left_nothing_open_have_no_such_section(page):
    assert "What was tried and chosen" not in page.text
    assert "stroke-dasharray" in page.source  # the closed form's level


def test_runs_on_time_windows_become_a_curve_for_each_model(tmp_path) -> None:
    splits = ir.split_rolling(ir.load(DATA), 2)
    runs = {f"ease-{n}": ir.train(split, ir.models.EASE()) for n, split in enumerate(splits)}
    runs["popular"] = ir.train(splits[1], ir.models.Popularity())
    text = write_report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    curve = text.partition("By time window")[2].partition("</figure>")[0]
    assert "time window" in curve
    assert ">ease<" in re.sub(r"\s+", "", curve).replace("<!--ease-->", ">ease<")
    assert "popularity" not in curve  # a single window is no curve
    assert "of one time window" in text  # no paired tests between windows


@pytest.mark.parametrize("apart", [0.0, 0.002, 0.05])
def test_labels_of_curves_do_not_overlap(apart: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

    def curve(shift: float) -> dict[str, Sweep]:
        values = [n / 10 for n in range(11)]
        points = [{"ndcg@20": 0.3 + shift - v**4 / 15, "gini@20": 1 - v / 3} for v in values]
        found = tuple(SweepPoint(v, p) for v, p in zip(values, points, strict=True))
        return {"diversity": Sweep("diversity", 20, 9, found)}

    figure = Figure(figsize=(7.2, 2.7), layout="constrained")
    monkeypatch.setattr(plots, "_rendered", lambda draw, *_: draw(figure))
    plots.tradeoff_curves({"a": curve(0.0), "b": curve(apart)}, [("diversity", "gini")])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    labels = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
    assert {label.get_text() for label in labels} == {"0.2", "0.4", "0.6", "0.8", "1"}
    for n, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:n])
