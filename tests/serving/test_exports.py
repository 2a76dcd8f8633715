"""Exports, used as another system would use them, give the lists of `recommend`."""

import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app
from itemfold.serving.exports.score_parts import ScoreParts

DATA = ir.load("synthetic:users=90,items=120,interactions=1500")
SPLIT = ir.split_interactions(DATA)
K = 10
BLEND = ((0.0, 0.2, 1.0), (9.0, 0.7, 0.5), (15.0, 0.3, 2.0))  # groups by length of the history
THREE = ((0.0, 0.2, 0.0, 1.0, 0.5, 0.8), (9.0, 0.1, 0.0, 0.4, 1.0, 0.0))  # the same, three parts
MODELS = {
    "hybrid": lambda: ir.models.Hybrid(dim=8, blend=BLEND, linear_l2=50.0),
    "hybrid-few-weights": lambda: ir.models.Hybrid(dim=8, linear_l2=50.0, keep=6),
    "hybrid-of-three": lambda: ir.models.Hybrid(
        gnn=ir.models.LightGCN(dim=8), blend=THREE, others=[ir.models.ItemKNN(neighbours=5)]
    ),
    "lightgcn": lambda: ir.models.LightGCN(dim=8),
    "cml": lambda: ir.models.CML(dim=8),
    "simplex": lambda: ir.models.SimpleX(dim=8),
    "mult-vae": lambda: ir.models.MultVAE(hidden=16, latent=8),
    "popularity": ir.models.Popularity,
    "gf-cf": ir.models.GFCF,
    "ease": ir.models.EASE,
    "itemknn": lambda: ir.models.ItemKNN(neighbours=5),
    "ials": lambda: ir.models.IALS(dim=8),
    "sansa": lambda: ir.models.SANSA(l2=20.0, density=0.5),
    "gat": lambda: ir.models.GAT(dim=8),
}
WITH_VECTORS = ("lightgcn", "cml", "simplex", "ials", "gat")
WITH_WEIGHTS = ("ease", "itemknn", "gf-cf")
HYBRIDS = ("hybrid", "hybrid-few-weights", "hybrid-of-three")
FOLDED_IN = (
    *(*HYBRIDS, "lightgcn", "simplex"),
    *("mult-vae", "popularity", "gf-cf", "ease", "itemknn"),
)


@pytest.fixture(scope="module")
def recommenders():
    """A recommender for each model, trained when it is first asked for."""
    made: dict[str, ir.Recommender] = {}

    def get(name: str) -> ir.Recommender:
        if name not in made:
            model = MODELS[name]()
            is_closed = model.kind.value == "closed form"
            settings = {} if is_closed else {"epochs": 2, "eval_every": 1, "patience": 1}
            made[name] = ir.Recommender(ir.train(SPLIT, model, **settings))
        return made[name]

    return get


def expected(recommender: ir.Recommender, users: list) -> list[list]:
    return [[pick.item for pick in recommender.recommend(user, k=K)] for user in users]


def histories(recommender: ir.Recommender) -> dict:
    """The items of each user by id, as another system would have them."""
    run = recommender.run
    ids = run.item_ids.ids
    ends = run.train.indptr
    rows = zip(run.user_ids.ids.tolist(), ends[:-1], ends[1:], strict=True)
    return {user: ids[run.train.indices[a:b]].tolist() for user, a, b in rows}


@pytest.mark.parametrize("name", [*HYBRIDS, *WITH_VECTORS, *WITH_WEIGHTS])
def test_the_parquet_files_alone_give_the_lists_of_known_users(name, recommenders, tmp_path):
    recommender = recommenders(name)
    facts = ir.export(recommender, "parquet", tmp_path / "out")
    assert facts["exact"]
    assert facts["same_items"] == 1
    items, users = (pl.read_parquet(tmp_path / "out" / f"{n}.parquet") for n in ("items", "users"))
    ids = items["item_id"].to_list()
    row = {item: n for n, item in enumerate(ids)}
    sums = {}
    for file in (tmp_path / "out").glob("weights*.parquet"):
        weights = sums[file.stem.replace("weights", "factor")] = np.zeros((len(ids), len(ids)))
        for source, target, weight in pl.read_parquet(file).rows():
            weights[row[source], row[target]] = weight
    found = []
    known = histories(recommender)
    for user in users.rows(named=True):
        seen = [row[item] for item in known[user["user_id"]]]
        score = np.zeros(len(ids))
        if "vector" in user:
            score += items["vector"].to_numpy() @ np.array(user["vector"])
        score += sum(user[factor] * weights[seen].sum(0) for factor, weights in sums.items())
        score[seen] = -np.inf
        found.append([ids[n] for n in np.argsort(-score, kind="stable")[:K]])
    assert_same_lists(found, expected(recommender, users["user_id"].to_list()))


def assert_same_lists(found: list[list], wanted: list[list]) -> None:
    """The same items for everybody; rounding may swap two neighbours with the same score."""
    equal = [set(a) == set(b) for a, b in zip(found, wanted, strict=True)]
    assert np.mean(equal) > 0.97
    assert np.mean([a == b for a, b in zip(found, wanted, strict=True)]) > 0.95


def search(library: str, path: Path, queries: np.ndarray, k: int) -> np.ndarray:
    module = pytest.importorskip(
        "usearch.index" if library == "usearch" else "faiss",
        reason=f"{library} is not installed, so its index cannot be searched",
    )
    if library == "faiss":
        return module.read_index(str(path)).search(queries, k)[1]
    return module.Index.restore(str(path)).search(queries, k, exact=True).keys


@pytest.mark.parametrize("library", ["usearch", "faiss"])
@pytest.mark.parametrize("name", WITH_VECTORS)
def test_an_index_gives_the_lists_of_known_users(library, name, recommenders, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    recommender, out = recommenders(name), tmp_path / "out"
    assert ir.export(recommender, library, out)["exact"]
    items, users = pl.read_parquet(out / "items.parquet"), pl.read_parquet(out / "users.parquet")
    ids, known = items["item_id"].to_list(), histories(recommender)
    longest = max(map(len, known.values()))
    rows = search(library, out / f"items.{library}", users["vector"].to_numpy(), K + longest)
    found = []
    for user, listed in zip(users["user_id"], rows, strict=True):
        left = [ids[int(row)] for row in listed if ids[int(row)] not in known[user]]
        found.append(left[:K])
    assert_same_lists(found, expected(recommender, users["user_id"].to_list()))


def test_the_recall_of_approximate_search_is_reported(recommenders, tmp_path):
    usearch = pytest.importorskip("usearch.index", reason="usearch is not installed")
    recommender, out = recommenders("lightgcn"), tmp_path / "out"
    facts = ir.export(recommender, "usearch", out)
    users = pl.read_parquet(out / "users.parquet")["vector"].to_numpy()  # all: they are few
    index = usearch.Index.restore(str(out / "items.usearch"))
    best, found = (index.search(users, facts["k"], exact=e).keys.tolist() for e in (True, False))
    shares = [len(set(b) & set(f)) / len(b) for b, f in zip(best, found, strict=True)]
    assert facts["approximate_recall"] == pytest.approx(np.mean(shares), abs=1e-4)
    recommender.run.save(tmp_path / "r")
    command = ["export", str(tmp_path / "r"), "--to", "usearch", "--out", str(tmp_path / "again")]
    said = CliRunner().invoke(app, command).output
    # an index of its own: threads build each a little differently
    again = json.loads((tmp_path / "again" / "export.json").read_text())
    assert f"finds {again['approximate_recall']:.1%} of the best 20 items of exact" in said


@pytest.mark.parametrize("library", ["usearch", "faiss"])
def test_the_index_of_a_hybrid_reports_its_missing_part(library, recommenders, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    facts = ir.export(recommenders("hybrid"), library, tmp_path / "out")
    assert not facts["exact"]
    assert facts["missing"] == "the linear part"
    assert 0 < facts["same_items"] < facts["same_items_rescored"] <= 1
    stored = json.loads((tmp_path / "out" / "export.json").read_text())
    assert stored == json.loads(json.dumps(facts))


@pytest.mark.parametrize("name", FOLDED_IN)
def test_the_onnx_graph_gives_the_lists_of_new_users(name, recommenders, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    recommender, out = recommenders(name), tmp_path / "out"
    assert ir.export(recommender, "onnx", out)["same_items"] == 1
    ids = pl.read_parquet(out / "items.parquet")["item_id"].to_list()
    session = runtime.InferenceSession(str(out / "fold_in.onnx"))
    rng = np.random.default_rng(1)
    sizes = [0, 1, 2, 8, 9, 14, 15, 40]  # around the borders of the blend's groups
    batch = np.zeros((len(sizes), len(ids)), dtype=np.float32)
    for user, size in enumerate(sizes):
        batch[user, rng.choice(len(ids), size, replace=False)] = 1
    rows, scores = session.run(["items", "scores"], {"history": batch, "k": np.array([K])})
    for user in range(len(sizes)):
        history = [ids[row] for row in np.flatnonzero(batch[user])]
        picks = recommender.recommend(history=history, k=K)
        np.testing.assert_allclose(
            scores[user], [pick.score for pick in picks], rtol=1e-3, atol=1e-4
        )
        assert set(history).isdisjoint(ids[row] for row in rows[user])
        same = [ids[row] == pick.item for row, pick in zip(rows[user], picks, strict=True)]
        gaps = -np.diff([pick.score for pick in picks])
        assert all(same) or gaps.min() < 1e-4  # rounding may swap equal scores


def test_text_ids_and_titles_travel_along(tmp_path):
    frame = pl.DataFrame({"user": DATA.users, "item": DATA.items})
    named = frame.select(
        pl.format("u{}", "user").alias("user"), pl.format("i{}", "item").alias("item")
    )
    titles = {f"i{n}": f"title {n}" for n in range(120)}
    recommender = ir.fit(named, ir.models.ItemKNN(), titles=titles, progress=False)
    ir.export(recommender, "parquet", tmp_path / "out")
    items = pl.read_parquet(tmp_path / "out" / "items.parquet")
    assert items.columns == ["row", "item_id", "title"]
    assert items["title"][5] == titles[items["item_id"][5]]


# --- errors -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "to", "sentence"),
    [
        ("ease", "usearch", "EASE has item–item weights and no vectors to index"),
        ("mult-vae", "parquet", "MultVAE has neither vectors nor item–item weights to export"),
        ("ials", "onnx", "an ONNX graph cannot fold a new user into IALS"),
        ("gat", "onnx", "an ONNX graph cannot fold a new user into GAT"),
        ("sansa", "parquet", "SANSA has neither vectors nor item–item weights to export"),
        ("ease", "csv", "'to' must be parquet, usearch, faiss or onnx, got 'csv'"),
    ],
)
def test_an_impossible_export_raises_and_leaves_nothing(name, to, sentence, recommenders, tmp_path):
    if to in ("usearch", "onnx"):
        pytest.importorskip(to, reason=f"{to} is not installed")
    with pytest.raises(ir.ItemfoldError) as error:
        ir.export(recommenders(name), to, tmp_path / "out")
    assert sentence in str(error.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["mult-vae", "popularity", "sansa", "gat", "ials"])
def test_an_error_suggests_an_export_only_if_it_works(name, recommenders, tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    errors = {}
    for to in ("parquet", "onnx"):
        try:
            ir.export(recommenders(name), to, tmp_path / to)
        except ir.ItemfoldError as error:
            errors[to] = str(error)
    assert errors
    for error in errors.values():
        suggested = error.partition("choose --to ")[2]
        assert suggested not in errors
        assert bool(suggested) == (len(errors) == 1)


def test_a_folder_with_files_is_not_overwritten(recommenders, tmp_path):
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(ir.ItemfoldError, match="'out' must be a new or an empty folder"):
        ir.export(recommenders("ease"), "parquet", tmp_path)
    assert (tmp_path / "mine").read_text() == "keep"
    with pytest.raises(ir.ItemfoldError, match="'run' must be a Run, a Recommender or a folder"):
        ir.export(7, "parquet", tmp_path / "out")


def test_an_export_with_other_lists_is_not_kept(recommenders, tmp_path, monkeypatch):
    honest = ScoreParts.scores
    monkeypatch.setattr(ScoreParts, "scores", lambda *given: -honest(*given))
    with pytest.raises(ir.ItemfoldError, match="does not give the lists of 'recommend'"):
        ir.export(recommenders("ease"), "parquet", tmp_path / "out")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_reported_with_the_name_of_the_file(recommenders, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        ir.export(recommenders("ease"), "parquet", tmp_path / "out")
    assert error.value.filename == str(tmp_path / "out" / "items.parquet")
    assert os.listdir(tmp_path) == []


def test_a_missing_package_is_named(recommenders, tmp_path, monkeypatch):
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    with pytest.raises(ir.ItemfoldError, match="'--to faiss' needs faiss-cpu: pip"):
        ir.export(recommenders("ease"), "faiss", tmp_path / "out")


def test_the_command_writes_the_folder_and_reports_the_check(recommenders, tmp_path):
    recommenders("hybrid").run.save(tmp_path / "r")
    command = ["export", str(tmp_path / "r"), "--to", "parquet", "--out", str(tmp_path / "vectors")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "the whole score of hybrid for known users, 120 items" in done.output
    assert "checked with 90 users: 100.0% of the top 20" in done.output
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
