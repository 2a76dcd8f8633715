"""Unknown users, items and runs are 404; ids and weights have limits that keep answers small."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import open_client

import itemfold as ir
from itemfold.serving.history import _relative_weights
from itemfold.serving.http.api.schemas import MAX_ID

LONG = "x" * (MAX_ID + 1)


@pytest.fixture(scope="module")
def client(recommender, tmp_path_factory):
    with open_client(recommender, feedback=tmp_path_factory.mktemp("feedback")) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/recommend", {"user": "nobody"}, "'user' must be a user of the training data, got 'no"),
        ("/recommend", {"user": "nobody", "explain": True}, "'user' must be a user of the train"),
        ("/recommend", {"history": [12], "run": "other"}, "'run' must be one of run, got 'other'"),
        ("/recommend/batch", {"users": ["nobody"]}, "'user' must be a user of the training data"),
        ("/recommend/batch", {"histories": [[12]], "run": "x"}, "'run' must be one of run, got"),
        ("/feedback", {"event": "liked", "items": [1], "run": "x"}, "'run' must be one of run"),
        ("/similar?item=nothing", None, "'item' must be an item of the training data, got 'noth"),
        ("/similar?item=12&run=x", None, "'run' must be one of run, got 'x'"),
        ("/history?user=nobody", None, "'user' must be a user of the training data, got 'nobody"),
        ("/items?run=x", None, "'run' must be one of run, got 'x'"),
        ("/about?run=x", None, "'run' must be one of run, got 'x'"),
    ],
)
def test_what_is_not_known_is_404(client, path, body, sentence):
    answer = client.get(f"/v1{path}") if body is None else client.post(f"/v1{path}", json=body)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].startswith(sentence)
    document = client.get("/openapi.json").json()
    (described,) = document["paths"]["/v1" + path.partition("?")[0]].values()
    assert "404" in described["responses"]


def test_unknown_items_of_a_history_are_listed_as_before(client):
    answer = client.post("/recommend", json={"history": [12, "nothing"], "without": ["none"]})
    assert answer.status_code == 200
    assert answer.json()["unknown"] == ["nothing", "none"]


def test_python_raises_one_exception_for_unknown_ids(recommender):
    for ask in (lambda: recommender.recommend("nobody"), lambda: recommender.similar_items("x")):
        with pytest.raises(ir.UnknownIdError):
            ask()
    assert issubclass(ir.UnknownIdError, ir.ItemfoldError)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/recommend", {"user": LONG}),
        ("/recommend", {"user": "x" * 900_000}),
        ("/recommend", {"history": [12, LONG]}),
        ("/recommend", {"history": [12], "only": [LONG]}),
        ("/recommend", {"history": [12], "dislikes": [LONG]}),
        ("/recommend", {"history": [12], "visitor": LONG}),
        ("/recommend", {"history": [12], "genre": LONG}),
        ("/recommend", {"history": [12], "run": LONG}),
        ("/recommend", {"history": [12], "max_per": {LONG: 1}}),
        ("/recommend", {"history": [12, 10 ** (MAX_ID + 1)]}),
        ("/recommend/batch", {"users": [LONG]}),
        ("/recommend/batch", {"histories": [[LONG]]}),
        (f"/similar?item={LONG}", None),
        (f"/history?user={LONG}", None),
        (f"/about?run={LONG}", None),
    ],
)
def test_long_ids_are_422_and_not_echoed(client, path, body):
    answer = client.get(path) if body is None else client.post(path, content=json.dumps(body))
    assert answer.status_code == 422
    assert len(answer.content) < 1000


def test_the_longest_id_is_accepted(client):
    longest = {"history": ["x" * MAX_ID, "😀" * MAX_ID], "genre": "Drama"}
    assert client.post("/recommend", json=longest).status_code == 200


# --- weights -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e308, 1e-300, 5e-324, 2.0**-1000])
def test_weights_of_any_size_count_by_their_ratios(client, scale):
    asked = {"history": [12, 57], "k": 5}
    equal = client.post("/recommend", json={**asked, "weights": [1, 1]}).json()
    scaled = client.post("/recommend", json={**asked, "weights": [scale, scale]}).json()
    assert scaled["fallback"] == ""
    assert scaled["items"] == equal["items"]


@given(
    weights=st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=8),
    power=st.integers(min_value=-980, max_value=980),
)
def test_only_the_ratios_of_weights_matter(weights, power):
    found = _relative_weights([weight * 2.0**power for weight in weights], len(weights))
    expected = np.array(weights) / np.mean(weights)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@given(st.lists(st.floats(min_value=0, exclude_min=True, allow_infinity=False), min_size=1))
def test_every_positive_weight_stays_positive_and_finite(weights):
    found = _relative_weights(weights, len(weights))
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert (found > 0).all()
