"""Garbage collections of a service are short, although its program is large."""

import gc
import weakref

import pytest

from itemfold.serving.http import ServedRuns
from itemfold.serving.http.processes.worker import exempt_from_collection
from itemfold.serving.http.runs import ServedRun
from itemfold.serving.recommender import Recommender


@pytest.fixture
def exempt():
    before = gc.get_threshold()
    exempt_from_collection()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_a_full_collection_looks_at_nothing_that_is_loaded(exempt):
    assert gc.get_freeze_count() > 100_000
    assert len(gc.get_objects()) < 1000


def test_a_run_that_is_replaced_is_freed_although_it_is_exempt(folder):
    runs = ServedRuns({"run": Recommender.load(folder)})
    (served,) = runs
    served.answer({"history": [12, 57], "k": 3})
    parts = (served.recommender, served.recommender.model, served.recommender.run, served.search)
    found = [weakref.ref(part) for part in parts]
    before = gc.get_threshold()
    exempt_from_collection()
    gc.disable()
    try:
        del served, parts
        runs.replace(ServedRun.of("run", Recommender.load(folder)))
        assert [one() for one in found] == [None] * 4
    finally:
        gc.enable()
        gc.unfreeze()
        gc.set_threshold(*before)
