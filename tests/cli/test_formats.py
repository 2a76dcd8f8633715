"""A table of results says the same in five formats, each read back by another program's rules."""

import csv
import io
import json
import math
import xml.etree.ElementTree as ET

import pytest
from command import call
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from itemfold.cli.result_plots import write_plot
from itemfold.cli.tables.formats import (
    RENDERERS,
    Figure,
    ResultTable,
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    latex_text,
    measured,
    on_terminal,
)
from itemfold.evaluation.intervals import Interval

TABLE = ResultTable(
    ("metric", "run", "mean", "95 %", "p", "users"),
    (
        ("ndcg@20", "a|b_1", *measured(Interval(0.25, 0.2, 0.3)), "", 1200),
        (
            Figure.again("ndcg@20"),
            "50 % & more",
            *measured(Interval(0.5, 0.4, 0.6)),
            Figure.p(1e-9),
            7,
        ),
    ),
    words=2,
    title="first",
    notes=("paired over users",),
)


def test_people_read_rounded_figures_and_no_repeated_words():
    console = Console(width=100)
    with console.capture() as capture:
        console.print(on_terminal(TABLE))
    for text in ("0.2500", "0.2000–0.3000", "<.001", "1,200", "paired over users", "first"):
        assert text in capture.get()
    assert capture.get().count("ndcg@20") == 1


def test_csv_has_every_value_in_a_column_of_its_own():
    first, second = csv.DictReader(io.StringIO(as_csv([TABLE])))
    assert list(first) == ["metric", "run", "mean", "mean low", "mean high", "p", "users"]
    assert (first["mean"], first["mean low"], first["p"], first["users"]) == (
        "0.25",
        "0.2",
        "",
        "1200",
    )
    assert second["metric"] == "ndcg@20"
    assert float(second["p"]) == 1e-9


def test_several_tables_are_one_csv_with_their_titles():
    other = ResultTable(("group", "run"), (("light", "x"),), words=2, title="second")
    rows = list(csv.DictReader(io.StringIO(as_csv([TABLE, other]))))
    assert [row["table"] for row in rows] == ["first", "first", "second"]
    assert rows[2]["group"] == "light"
    assert rows[2]["mean"] == rows[0]["group"] == ""


def test_json_has_numbers_and_null():
    table = ResultTable(("m", "x"), (("a", Figure.number(math.nan)), ("b", Figure.number(0.5))))
    (found,) = json.loads(as_json([table]))["tables"]
    assert found["rows"] == [{"m": "a", "x": None}, {"m": "b", "x": 0.5}]
    assert json.loads(as_json([TABLE]))["tables"][0]["notes"] == ["paired over users"]


def test_markdown_escapes_pipes_and_aligns_numbers():
    lines = as_markdown([TABLE]).splitlines()
    assert lines[:2] == ["**first**", ""]
    assert lines[3] == "| --- | --- | ---: | ---: | ---: | ---: |"
    assert "a\\|b_1" in lines[4]
    assert lines[-1] == "Paired over users."


def test_latex_is_balanced_and_escaped():
    text = as_latex([TABLE])
    assert text.count(r"\begin{tabular}{llrrrr}") == text.count(r"\end{tabular}") == 1
    assert r"a|b\_1 & 0.2500 & 0.2000--0.3000" in text
    assert r"50 \% \& more" in text
    assert "$<$.001" in text


@given(st.text(alphabet=st.characters(codec="ascii", exclude_characters="\n\r"), max_size=30))
def test_no_character_of_a_name_reaches_latex_as_a_command(text):
    bare = latex_text(text)
    for plain in ("\\textbackslash{}", "\\textasciitilde{}", "\\textasciicircum{}", "$<$", "$>$"):
        bare = bare.replace(plain, "")
    for letter in "&%$#_{}":
        bare = bare.replace(f"\\{letter}", "")
    assert not set(bare) & set("\\&%$#_{}~^<>")


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(0, 10**9),
        ),
        min_size=1,
    )
)
def test_csv_and_json_give_back_what_went_in(rows):
    table = ResultTable(
        ("a", "b", "c"), tuple((name, Figure.number(x), n) for name, x, n in rows), words=1
    )
    read = csv.reader(io.StringIO(as_csv([table])))
    assert next(read) == ["a", "b", "c"]
    assert [(name, float(x), int(n)) for name, x, n in read] == rows
    (found,) = json.loads(as_json([table]))["tables"]
    assert [tuple(row.values()) for row in found["rows"]] == rows


# --- commands ------------------------------------------------------------------------------------

DATA = "synthetic:users=120,items=60,interactions=2000"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name in ("ease", "popularity"):
        call("train", DATA, "--model", name, "--out", root / name)
    return [root / "popularity", root / "ease"]


def test_compare_prints_the_stored_means_in_every_format(folders):
    stored = json.loads((folders[1] / "metrics.json").read_text())["test"]["ndcg@20"]
    for name in RENDERERS:
        shown = call("compare", *folders, "--metrics", "ndcg@20", "--format", name).stdout
        if name in ("csv", "json"):
            rows = (
                json.loads(shown)["tables"][0]["rows"]
                if name == "json"
                else list(csv.DictReader(io.StringIO(shown)))
            )
            assert float(rows[1]["mean"]) == pytest.approx(stored)
            assert float(rows[1]["mean low"]) < stored < float(rows[1]["mean high"])
        else:
            assert f"{stored:.4f}" in shown


def test_a_column_of_json_has_values_of_one_kind(folders):
    for table in json.loads(call("compare", *folders, "--format", "json").stdout)["tables"]:
        for column in table["rows"][0]:
            kinds = {type(row[column]) for row in table["rows"]} - {type(None)}
            assert len(kinds) <= 1, (column, kinds)


def test_json_of_evaluate_and_describe_is_that_of_the_older_option(folders):
    for command in (("evaluate", folders[0]), ("describe", DATA)):
        old = call(*command, "--json").stdout
        assert call(*command, "--format", "json").stdout == old
    rows = list(csv.DictReader(io.StringIO(call("describe", DATA, "--format", "csv").stdout)))
    assert {"fact": "users", "value": "120"} in rows


@pytest.mark.parametrize("command", ["compare", "evaluate"])
def test_plots_are_files_of_their_kind(command, folders, tmp_path):
    runs = folders if command == "compare" else folders[:1]
    for kind, start in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF")):
        file = tmp_path / f"plot{kind}"
        call(command, *runs, "--plot", file)
        assert file.read_bytes().startswith(start)
    text = ET.fromstring((tmp_path / "plot.svg").read_bytes())
    assert "ndcg@20" in {node.text for node in text.iter() if node.text}


def test_the_same_figures_give_the_same_bytes(tmp_path):
    panels = {"ndcg": {"a": Interval(0.2, 0.1, 0.3), "b": Interval(0.4, 0.3, 0.5)}}
    for kind in (".svg", ".pdf", ".png"):
        for name in ("one", "two"):
            write_plot(panels, tmp_path / f"{name}{kind}")
        assert (tmp_path / f"one{kind}").read_bytes() == (tmp_path / f"two{kind}").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "xml"], "'--format' must be table, markdown, latex, csv or json, got 'xml'"),
        (["--plot", "plot.gif"], "'--plot' must end in .svg or .png or .pdf, got 'plot.gif'"),
        (["--plot", "no/plot.svg"], "'--plot' must be in an existing folder"),
    ],
)
def test_bad_options_are_one_sentence(options, message, tmp_path):
    result = call("compare", tmp_path, tmp_path, *options, code=2)
    (line,) = result.stderr.strip().splitlines()
    assert message in line


def test_a_narrow_terminal_folds_headings_and_no_numbers():
    names = ("ndcg@20", "genre_diversity@20", "miscalibration@20", "popularity_bias@20", "gini@20")
    numbers = tuple(Figure(f"0.{n}{n}{n}{n}", (("", 0.1),)) for n in range(1, 6))
    table = ResultTable(("slider", *names), (("0.55", *numbers),))
    text = io.StringIO()
    Console(file=text, width=60).print(on_terminal(table))
    assert ["0.55", "0.1111", "0.2222", "0.3333", "0.4444", "0.5555"] in [
        line.split() for line in text.getvalue().splitlines()
    ]
    assert max(map(len, text.getvalue().splitlines())) <= 60
