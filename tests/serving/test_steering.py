"""Re-ranked lists are the same over HTTP, in Python and on the command line."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from fastapi.testclient import TestClient
from served import DATA, open_client
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.client import Client
from itemfold.data.items.item_table import ItemTable, read_item_table
from itemfold.errors import ItemfoldError
from itemfold.serving.http import ServedRuns, ServiceSettings, create_app
from itemfold.serving.http.runs import fingerprint

FIELDS = {"diversity": 0.6, "popularity_discount": 0.2, "max_per": {"genre": 3}}
IDS = DATA.item_ids.ids.tolist()


@pytest.fixture(scope="module")
def client(recommender):
    with open_client(recommender, image_hosts=("https://images.example",)) as client:
        yield client


def items(picks) -> list:
    return [pick.item for pick in picks]


def call(*arguments) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    return result.exit_code, result.output + str(result.exception or "")


def test_python_http_and_the_command_give_the_same_list(client, recommender, folder, tmp_path):
    steering = ir.Steering(**FIELDS)
    expected = items(recommender.recommend(history=[12, 57], k=8, steering=steering))
    assert expected != items(recommender.recommend(history=[12, 57], k=8))
    answer = client.post("/v1/recommend", json={"history": [12, 57], "k": 8, **FIELDS}).json()
    assert [item["item"] for item in answer["items"]] == expected
    batch = {"histories": [[12, 57]], "k": 8, **FIELDS}
    (first,) = client.post("/v1/recommend/batch", json=batch).json()
    assert first == answer
    options = "--diversity 0.6 --popularity-discount 0.2 --max-per genre=3 -k 8"
    code, text = call("recommend", folder, "--history", "12,57", "--json", *options.split())
    assert code == 0
    assert [item["item"] for item in json.loads(text)["items"]] == expected
    user = recommender.run.user_ids.ids.tolist()[3]
    code, _ = call("recommend", folder, "--all", "--out", tmp_path / "r.csv", *options.split())
    assert code == 0
    table = pd.read_csv(tmp_path / "r.csv")
    listed = table[table["user_id"] == user]["item_id"].tolist()
    assert listed == items(recommender.recommend(user, k=8, steering=steering))


def test_a_client_takes_what_the_recommender_takes(client, recommender, monkeypatch):
    def ask(_, path: str, parse: Callable, body: dict) -> object:
        return parse(client.post(f"/v1/{path}", json=body).json())

    monkeypatch.setattr(Client, "_ask", ask)
    steering = ir.Steering(**FIELDS)
    found = Client("http://localhost").recommend(history=[12], k=5, steering=steering)
    assert items(found) == items(recommender.recommend(history=[12], k=5, steering=steering))


def test_sliders_at_zero_change_nothing(client):
    plain = client.post("/v1/recommend", json={"history": [12], "explain": True}).json()
    zero = {"diversity": 0, "popularity_discount": 0.0, "max_per": {}, "long_tail": 0}
    assert (
        client.post("/v1/recommend", json={"history": [12], "explain": True, **zero}).json()
        == plain
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"diversity": 1.2}, "'diversity' must be less than or equal to 1, got '1.2'"),
        ({"diversity": "much"}, "'diversity' must be a valid number, got 'much'"),
        ({"max_per": {"genre": 0}}, "'max_per.genre' must be greater than or equal to 1, got '0'"),
        ({"max_per": {"country": 2}}, "'max_per' must name a column of the items (genres), got"),
        ({"freshness": -0.4}, "'freshness' must be greater than or equal to 0, got '-0.4'"),
        ({"k": 500, "diversity": 0.1}, "'k' must be at most 200 for a re-ranked list"),
    ],
)
def test_invalid_fields_are_rejected(client, fields, sentence):
    answer = client.post("/v1/recommend", json={"history": [12], **fields})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--diversity", "2"], "'diversity' must be a number from 0 to 1, got 2"),
        (["--max-per", "genre"], "'--max-per' must be COLUMN=N, such as genre=3, got 'genre'"),
        (["--max-per", "genre=0"], "'--max-per' must be COLUMN=N, such as genre=3, got 'genre=0'"),
        (["--available", "none.txt"], "'--available' must be an existing file, got 'none.txt'"),
    ],
)
def test_invalid_options_raise(folder, options, sentence):
    code, text = call("recommend", folder, "--history", "12", *options)
    assert code == 2
    assert sentence in text


def test_explanations_of_a_steered_list_still_sum_to_the_score(recommender):
    steering = ir.Steering(diversity=0.7)
    for pick in recommender.recommend(history=[12, 57], k=5, explain=True, steering=steering):
        assert sum(r.share for r in pick.reasons) + pick.own == pytest.approx(pick.score, abs=1e-4)


# --- facts of the items --------------------------------------------------------------------------


def test_only_available_items_are_recommended_anywhere(recommender, folder, tmp_path):
    few = IDS[:30]
    (tmp_path / "stock.txt").write_text("\n".join(map(str, [*few, "gone"])))
    stocked = ir.Recommender(
        recommender.run, item_table=read_item_table(available=tmp_path / "stock.txt")
    )
    lists = [stocked.recommend(history=[12], k=90), stocked.recommend(history=[])]
    lists.append(stocked.similar_items(12, k=90))
    assert all(set(items(picks)) <= set(few) for picks in lists)
    assert set(stocked.recommend_all(5).columns()["item_id"].tolist()) <= set(few)
    code, text = call(
        *("recommend", folder, "--history", "12", "-k", "90", "--json"),
        *("--available", tmp_path / "stock.txt"),
    )
    assert code == 0
    assert [item["item"] for item in json.loads(text)["items"]] == items(lists[0])
    with pytest.raises(ItemfoldError, match="'available' must name at least one item"):
        ir.Recommender(recommender.run, item_table=ItemTable(available=["gone"]))


def test_a_column_of_the_table_can_be_capped_and_makes_items_fresh(recommender):
    table = ItemTable(IDS, {"shop": [str(i % 3) for i in IDS], "date": [str(i) for i in IDS]})
    known = ir.Recommender(recommender.run, item_table=table)
    capped = known.recommend(history=[12], k=9, steering=ir.Steering(max_per={"shop": 2}))
    shops = [pick.item % 3 for pick in capped]
    assert len(shops) == 6
    assert max(shops.count(shop) for shop in range(3)) == 2
    fresh = known.recommend(history=[12], k=9, steering=ir.Steering(freshness=1.0))
    plain = known.recommend(history=[12], k=9)
    assert sum(items(fresh)) > sum(items(plain))


def test_a_service_takes_over_a_changed_file_and_its_fingerprint_changes(folder, tmp_path):
    stock = tmp_path / "stock.txt"
    stock.write_text("\n".join(map(str, IDS[:40])))
    settings = ServiceSettings(available=stock)
    runs = ServedRuns({"run": settings.load(folder, "cpu")})
    app = create_app(runs, settings, folders={"run": folder})
    body = {"history": [12], "k": 90}
    with TestClient(app, base_url="http://localhost") as client:
        before = client.post("/v1/recommend", json=body).json()
        stock.write_text("\n".join(map(str, IDS[40:])))
        client.portal.call(app.state.reloader.poll)  # sees the change
        client.portal.call(app.state.reloader.poll)  # finds it stable
        after = client.post("/v1/recommend", json=body).json()
        assert {item["item"] for item in before["items"]} <= set(IDS[:40])
        assert {item["item"] for item in after["items"]} <= set(IDS[40:])
        assert before["run_fingerprint"] != after["run_fingerprint"]
        stock.write_text("")
        client.portal.call(app.state.reloader.poll)
        client.portal.call(app.state.reloader.poll)
        assert client.post("/v1/recommend", json=body).json() == after  # the old run stays


def test_every_answer_of_a_run_has_its_fingerprint(client, recommender):
    expected = fingerprint(recommender.run)
    answers = [
        client.get("/v1/similar", params={"item": 12}),
        client.get("/v1/items", params={"q": "the"}),
        client.get("/v1/history", params={"user": 5}),
        client.post("/v1/recommend", json={"history": [12]}),
    ]
    assert [answer.headers["x-run-fingerprint"] for answer in answers] == [expected] * 4
    assert "x-run-fingerprint" not in client.get("/v1/livez").headers
    paths = client.get("/openapi.json").json()["paths"]
    for name in ("similar", "items", "history"):
        (operation,) = paths[f"/v1/{name}"].values()
        assert "X-Run-Fingerprint" in operation["responses"]["200"]["headers"]
        assert "application/json" in operation["responses"]["200"]["content"]


def test_pictures_are_in_answers_and_only_named_hosts_in_the_policy(recommender):
    table = ItemTable(IDS, {"image": [f"https://images.example/{i}.jpg" for i in IDS]})
    shown = ir.Recommender(recommender.run, item_table=table)
    with open_client(shown, image_hosts=("https://images.example",)) as client:
        answer = client.post("/v1/recommend", json={"history": [12], "k": 3}).json()
        for item in [*answer["items"], *client.get("/v1/items").json()]:
            assert item["image"] == f"https://images.example/{item['item']}.jpg"
        policy = client.get("/").headers["content-security-policy"]
        assert "img-src data: https://images.example;" in policy
        assert client.get("/v1/about").json()["image_hosts"] == ["https://images.example"]
    with open_client(shown) as client:
        assert "img-src data:;" in client.get("/").headers["content-security-policy"]
    for wrong in ("images.example", "https://a.example; script-src *", "https://*", "data:"):
        with pytest.raises(ItemfoldError, match="'image_host' must be an origin such as"):
            ServiceSettings(image_hosts=(wrong,))


def test_a_run_can_be_evaluated_and_swept_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = "synthetic:users=80,items=60,interactions=900"
    assert call("train", data, "--model", "ease", "--out", "r")[0] == 0
    code, text = call("evaluate", "r", "--json", "--diversity", "0.9", "--max-per", "genre=3")
    assert code == 0
    split = ir.split_interactions(ir.load(data), seed=0).refit()
    steering = ir.Steering(diversity=0.9, max_per={"genre": 3})
    expected = ir.evaluate(ir.Run.load("r"), split, steering=steering).metrics
    assert json.loads(text)["metrics"] == {k: pytest.approx(v) for k, v in expected.items()}
    code, text = call("evaluate", "r", "--sweep", "popularity-discount", "--json")
    assert code == 0
    points = json.loads(text)["points"]
    assert [points[0]["value"], points[-1]["value"]] == [0.0, 1.0]
    bias = [point["metrics"]["popularity_bias@20"] for point in points]
    assert bias[-1] < bias[0]
    code, text = call("evaluate", "r", "--sweep", "diversity")
    assert code == 0
    assert "genre_diversity is" in text
    for options, sentence in (
        (["--sweep", "variety"], "'--sweep' must be diversity, popularity_discount, long_tail"),
        (["--sweep", "diversity", "--k", "5,10"], "'--k' must be one number with --sweep, got 2"),
        (
            ["--sweep", "diversity", "--metrics", "ndcg@5"],
            "'--sweep' reports a fixed set of",
        ),
    ):
        code, text = call("evaluate", "r", *options)
        assert code == 2
        assert sentence in text
    assert call("report", "r")[0] == 0
    page = Path("report.html").read_text(encoding="utf-8")
    assert "The cost of re-ranking" in page
    assert "popularity discount" in page
    assert "at a loss of 2%" in page
    assert call("report", "r", "--no-curves", "--out", "short.html")[0] == 0
    assert "The cost of re-ranking" not in Path("short.html").read_text(encoding="utf-8")
