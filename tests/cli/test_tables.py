"""Tables show the figures that they are given."""

from rich.console import Console

import itemfold as ir
from itemfold.cli.tables import description
from itemfold.cli.tables.details import details
from itemfold.data.describe import describe
from itemfold.data.named.synthetic import synthetic
from itemfold.sampling.ppr_diagnostics import ppr_report


def shown(table: object) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_a_description_shows_counts_histograms_and_fingerprint():
    data = synthetic(users=100, items=80, interactions=1500)
    text = shown(description.description(describe(data)))
    for part in ("1,500", data.fingerprint, "Interactions per item", "█", "quantiles"):
        assert part in text


def test_the_longest_bar_belongs_to_the_largest_bin():
    data = synthetic(users=100, items=80, interactions=1500)
    found = describe(data).item_degrees.histogram
    text = shown(description.description(describe(data)))
    lines = [line for line in text.split("per item")[1].splitlines() if "█" in line]
    longest = max(lines, key=lambda line: line.count("█"))
    assert f" {max(count for _, _, count in found)}" in longest


def test_negatives_by_pagerank_have_a_row_for_every_setting():
    found = ppr_report(synthetic(users=100, items=80, interactions=1500))
    text = shown(description.ppr_negatives(found))
    for name in ("uniform", *found.settings):
        assert name in text
    assert f"{found.uniform:.4%}" in text


def test_validation_metrics_come_in_the_order_of_the_run():
    data = synthetic(users=60, items=80, interactions=900)
    model = ir.models.LightGCN(dim=4)
    run = ir.train(ir.split_interactions(data, seed=0), model, epochs=1, metric="ap@5")
    lines = shown(details(run)).splitlines()
    found = [line.split()[0] for line in lines if "@5 " in line]
    assert found == list(run.metrics["valid"])
    assert found == ["recall@5", "capped_recall@5", "ndcg@5", "ap@5"]
