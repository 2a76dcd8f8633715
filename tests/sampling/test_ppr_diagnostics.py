import numpy as np
import pytest
import scipy.sparse as sp

from itemfold.data.named.synthetic import synthetic
from itemfold.graph.ppr import personalised_pagerank
from itemfold.sampling import PPR
from itemfold.sampling.ppr_diagnostics import diagnose, ppr_report, spread


def test_figures_equal_those_of_the_dense_distribution() -> None:
    rng = np.random.default_rng(0)
    dense = rng.random((30, 50)) < 0.15
    dense[4] = False
    held = (rng.random((30, 50)) < 0.05) & ~dense
    train = sp.csr_array(dense.astype(np.float32))
    users = np.flatnonzero(held.any(1))
    target = sp.csr_array(held[users].astype(np.float32))
    scores = personalised_pagerank(train, tolerance=1e-6)
    truth = scores.matrix().toarray().astype(np.float64)
    free = ~dense
    samplers = {
        "cool": PPR(temperature=0.002),
        "flat": PPR(temperature=1.0),
        "auto": PPR(share=0.2),
    }
    found = diagnose(train, scores, users, target, samplers)
    for name, heat in (("cool", 0.002), ("flat", 1.0)):
        p = np.exp(truth / heat) * free
        p = (p / p.sum(1, keepdims=True))[users]
        assert found[name].effective_items == pytest.approx(np.median(1 / (p**2).sum(1)))
        assert found[name].false_negatives == pytest.approx((p * held[users]).sum(1).mean())
    assert found["flat"].against_uniform == pytest.approx(1, abs=0.05)
    assert found["auto"].near == pytest.approx(0.2, rel=1e-3)


def test_spread_is_the_median_at_a_rank() -> None:
    dense = np.random.default_rng(1).random((20, 30)) < 0.3
    scores = personalised_pagerank(sp.csr_array(dense.astype(np.float32)))
    values = np.sort(scores.matrix().toarray(), axis=1)[:, ::-1]
    assert spread(scores, (1, 5)) == {
        1: pytest.approx(np.median(values[:, 0])),
        5: pytest.approx(np.median(values[:, 4])),
    }
    assert spread(scores, (1000,)) == {1000: 0.0}


def test_the_report_shows_that_the_papers_softmax_is_uniform() -> None:
    found = ppr_report(synthetic(200, 150, 4000), users=50)
    paper = found.settings["softmax, T = 1 (the paper)"]
    assert paper.near < 0.005
    assert paper.against_uniform == pytest.approx(1, abs=0.01)
    assert found.settings["auto, share 1 %"].near == pytest.approx(0.01, abs=1e-4)
    assert found.settings["band 20–200"].effective_items <= 180
