"""The command line: what it prints and writes; bad input gives one line, code 2 and no file."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command import call

import itemfold
import itemfold as ir
from itemfold.cli.app import app

TINY = "synthetic:users=80,items=60,interactions=900"
FAST = ["--epochs", "3", "--dim", "4", "--set", "eval_every=1"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two runs that can be compared, and a closed form."""
    root = tmp_path_factory.mktemp("runs")
    for loss in ("bpr", "item-ndcg"):
        call("train", TINY, "--protocol", "inductive", "--loss", loss, *FAST, "--out", root / loss)
    call("train", TINY, "--model", "ease", "--out", root / "ease")
    return root


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ITEMFOLD_DATA", raising=False)
    return tmp_path


def test_the_version_is_shown():
    result = call("--version")
    assert result.output == f"itemfold {itemfold.__version__}\n"


def test_the_shell_can_complete(tmp_path):
    shown = call("--help").output
    assert "--install-completion" in shown
    assert "--show-completion" in shown
    asked = {
        "_ITEMFOLD_COMPLETE": "complete_bash",
        "COMP_WORDS": "itemfold reco",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv[0] = 'itemfold'; from itemfold.cli.app import main; main()"
    command = [sys.executable, "-c", code]
    environment = {**os.environ, **asked, "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["recommend"]


def test_a_run_folder_has_the_documented_files(runs):
    for name in ("config.toml", "model.safetensors", "ids.json", "history.jsonl", "per_user.npz"):
        assert (runs / "bpr" / name).is_file()
    metrics = json.loads((runs / "item-ndcg" / "metrics.json").read_text())
    assert metrics["protocol"] == "inductive"
    assert (metrics["model"], metrics["loss"], metrics["negatives"]) == (
        "lightgcn",
        "item-ndcg",
        "uniform",
    )
    assert metrics["dataset"].keys() == {"name", "fingerprint", "users", "items", "interactions"}
    assert {"seed", "best_epoch", "epochs", "seconds", "valid"} <= metrics.keys()
    assert metrics["seconds"].keys() == {"train", "evaluate"}
    assert {"recall@20", "capped_recall@20", "ndcg@20"} <= metrics["test"].keys()
    assert len((runs / "bpr" / "history.jsonl").read_text().splitlines()) == 3


def test_options_files_and_sets_agree(here):
    text = '[model]\nname = "gcn"\ndim = 4\n[train]\nepochs = 2\neval_every = 1\n'
    (here / "c.toml").write_text(text)
    call("train", TINY, "--config", "c.toml", "--seed", "5", "--set", "pooling=mean", "--out", "a")
    config = ir.Run.load("a").config
    assert {"name": "gcn", "dim": 4, "pooling": "mean"}.items() <= config["model"].items()
    assert (config["train"]["seed"], config["split"]["seed"]) == (5, 5)
    call("train", TINY, "--config", "c.toml", "--model", "lightgcn", "--epochs", "1")
    run = ir.Run.load("runs/synthetic-transductive-lightgcn-item-ndcg-0")
    assert run.config["model"]["dim"] == 64  # the file's 4 was for another model
    assert run.metrics["epochs"] == 1


def test_like_takes_the_settings_of_a_row_of_a_table(here):
    (here / "s.toml").write_text(
        'data = "synthetic"\n[defaults.train]\nepochs = 1\neval_every = 1\n'
        '[[row]]\nname = "mine"\nmodel = { name = "gcn", dim = 4 }\nloss = "bpr"\n'
        "train = { lr = 0.5 }\non.inductive.train = { lr = 0.25 }\n"
    )
    for protocol, lr in (("transductive", 0.5), ("inductive", 0.25)):
        call("train", TINY, "--like", "s.toml/mine", "--protocol", protocol, "--out", protocol)
        run = ir.Run.load(protocol)
        assert run.metrics["protocol"] == protocol
        assert {"name": "gcn", "dim": 4}.items() <= run.config["model"].items()
        assert (run.config["loss"]["name"], run.config["train"]["lr"]) == ("bpr", lr)
    shipped = ("--like", "inductive/item-log", "--epochs", "1", "--dim", "4", "--out", "log")
    call("train", TINY, *shipped)
    run = ir.Run.load("log")
    assert run.metrics["protocol"] == "inductive"  # as the table
    assert run.config["negatives"]["name"] == "in-batch"
    assert (run.config["model"]["dim"], run.metrics["epochs"]) == (4, 1)  # options come later
    dense = ("--like", "transductive/item-log@ml-1m", "--epochs", "1", "--dim", "4", "--out", "d")
    call("train", TINY, *dense)
    assert ir.Run.load("d").config["train"]["similarity"] == "dot"  # as on that data set


def test_evaluate_gives_the_stored_figures_again(runs):
    stored = json.loads((runs / "item-ndcg" / "metrics.json").read_text())["test"]
    found = json.loads(call("evaluate", runs / "item-ndcg", "--json").stdout)
    assert found["metrics"] == pytest.approx(stored, rel=1e-6)
    low, high = found["intervals"]["ndcg@20"]
    assert low <= stored["ndcg@20"] <= high
    text = call("evaluate", runs / "item-ndcg", "--k", "5,10").stdout
    assert "ndcg@5" in text and "recall@10" in text  # noqa: PT018
    joint = call(
        "evaluate", runs / "bpr", "--fold-in", "joint", "--metrics", "NDCG@10,map", "--json"
    )
    assert json.loads(joint.stdout)["metrics"].keys() == {"ndcg@10", "ap"}


def test_compare_prints_paired_tests(runs):
    text = " ".join(call("compare", runs / "bpr", runs / "item-ndcg").stdout.split())
    for part in ("ndcg@20", "item-ndcg", "p (t)", "Holm", "8 users in common"):
        assert part in text
    tests = {name: ir.Run.load(runs / name).metrics["test"] for name in ("bpr", "item-ndcg")}
    best = max(tests, key=lambda name: tests[name]["ndcg@20"])
    assert text.startswith(f"{best} has the best ndcg@20, {tests[best]['ndcg@20']:.4f}, which is ")
    text = " ".join(call("compare", "--help").stdout.split())
    (example,) = re.findall("such as ([a-z0-9@,]+)", text)
    text = call("compare", runs / "bpr", runs / "item-ndcg", "--metrics", example).stdout
    assert all(name in text for name in example.split(","))
    assert "recall" not in text


def test_recommend_prints_titles_and_reasons(runs, here):
    recommender = ir.Recommender.load(runs / "item-ndcg")
    expected = recommender.recommend(history=["3", "8"], k=3, explain=True)
    text = call(
        "recommend", runs / "item-ndcg", "--history", "3, 8,zz", "-k", "3", "--explain"
    ).stdout
    for pick in expected:  # a narrow table breaks lines between words
        words = f"{pick.title} {pick.reasons[0].title}".split()
        assert all(word in text for word in words)
    assert "zz" in text
    assert "title" in text
    asked = ("--user", "7", "-k", "2", "--json", "--explain")
    found = json.loads(call("recommend", runs / "ease", *asked).stdout)
    assert len(found["items"]) == 2
    assert found["items"][0]["reasons"]
    call("recommend", runs / "ease", "--all", "--out", "recs.csv", "-k", "2")
    assert len(Path("recs.csv").read_text().splitlines()) == 1 + 2 * 80
    only = call("recommend", runs / "ease", "--user", "7", "--only", "3,4", "--seen", "--json")
    assert sorted(p["item"] for p in json.loads(only.stdout)["items"]) == [3, 4]


def test_each_reason_has_a_line_and_the_shares_add_up_to_the_score(runs):
    history = "3,8,12,15,20"
    text = call("recommend", runs / "ease", "--history", history, "-k", "1", "--explain").stdout
    (score,) = re.findall(r"^ 1 .*?(\d+\.\d{4})", text, flags=re.MULTILINE)
    shares = [float(share) for share in re.findall(r" ([-+]\d+\.\d{3}) ", text)]
    assert len(shares) == 4  # the largest three, and the others
    assert max(len(re.findall(r"[-+]\d+\.\d{3} ", line)) for line in text.splitlines()) == 1
    assert sum(shares) == pytest.approx(float(score), abs=0.003)


def test_ids_of_filters_that_are_unknown_are_reported(runs, here):
    text = call("recommend", runs / "bpr", "--history", "3", "--without", "8,99999").stdout
    assert "unknown to this model and skipped: 99999" in text
    text = call("recommend", runs / "ease", "--all", "--only", "3,zz", "--out", "recs.csv").stdout
    assert "skipped: zz" in text


def test_an_empty_list_gives_the_reason(runs):
    found = call("recommend", runs / "ease", "--history", "3,4", "--only", "3,4").stdout
    assert "no item is left" in found
    assert "--seen" in found
    assert "score" not in found  # no table without a row
    listed = ir.Recommender.load(runs / "ease").recommend(history=[3], only=[3])
    assert "no item is left" in str(listed)


ODD = ["[/b]1", "[red]=1+24", 'it,em"1', ":cat:", "[i", "j]", "ж"]  # to rich, csv and latin-1


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Path:
    """A run whose item ids are anything but numbers."""
    root = tmp_path_factory.mktemp("odd")
    with (root / "odd.csv").open("w", newline="", encoding="utf-8") as file:
        pairs = [(f"[/u]{u}", ODD[(u + i) % 7]) for u in range(21) for i in range(5)]
        csv.writer(file).writerows([("user_id", "item_id"), *pairs])
    call("train", root / "odd.csv", "--model", "ease", "--out", root / "[red]run")
    return root / "[red]run"


def test_ids_are_printed_as_they_are(odd, here):
    text = call("recommend", odd, "--history", "[i,j]", "--seen", "--explain").stdout
    shown = [line.split()[1] for line in text.splitlines() if line.strip()[:1].isdigit()]
    assert sorted(shown) == sorted(ODD)
    assert "title" not in text  # these items have none
    words = [re.split(r",? +", line) for line in text.splitlines() if ":cat:" in line]
    assert words
    assert all({"[i", "j]"} <= set(line) for line in words)
    text = call("recommend", odd, "--all", "--out", "[red].csv").stdout
    assert "[red].csv" in text
    call("train", odd.parent / "odd.csv", "--model", "popularity", "--out", "[b]other")
    text = call("compare", odd, "[b]other").stdout
    assert "[red]run" in text
    assert "[b]other" in text


def test_ids_with_commas_are_quoted_as_in_a_csv_file(odd):
    quoted = '"it,em""1", :cat:'
    both = {'it,em"1', ":cat:"}
    for option, expected in (("--only", both), ("--without", set(ODD) - both)):
        text = call("recommend", odd, "--history", "ж", "--seen", option, quoted, "--json").stdout
        assert {pick["item"] for pick in json.loads(text)["items"]} == expected
    found = json.loads(call("recommend", odd, "--history", quoted, "--json", "--explain").stdout)
    assert found["unknown"] == []
    assert {reason["item"] for reason in found["items"][0]["reasons"]} == both
    bare = json.loads(call("recommend", odd, "--history", 'it,em"1', "--json", "--explain").stdout)
    assert bare["unknown"] == []  # the whole text is an id
    assert {reason["item"] for reason in bare["items"][0]["reasons"]} == {'it,em"1'}
    assert """'1,"a,b"'""" in " ".join(call("recommend", "--help").stdout.split())


def test_a_terminal_without_these_letters_gets_question_marks(odd):
    done = subprocess.run(
        [sys.executable, "-m", "itemfold", "recommend", odd, "--history", "j]", "--only", "ж"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
    )
    assert done.returncode == 0, done.stderr
    assert b"?" in done.stdout


def test_an_empty_history_is_reported(runs):
    text = call("recommend", runs / "bpr", "--history", "", "-k", "2").stdout
    assert "most popular" in text


def test_lists_of_models_data_sets_and_checks():
    text = call("models").stdout
    for name in ir.models.MODELS:
        assert name in text
    weights = {n: call("models", n).stdout.partition(" weights ")[2] for n in ("hybrid", "recvae")}
    assert weights["hybrid"].split()[:2] == ["graph,", "loss,"]  # of its parts
    assert weights["recvae"].split()[0] == "no"
    assert "yelp2018" in call("datasets").stdout
    text = call("doctor").stdout
    assert "propagation on cpu" in text
    assert "wrong" not in text


def test_describe():
    found = json.loads(call("describe", TINY, "--json").stdout)
    assert (found["users"], found["interactions"]) == (80, 900)
    assert ir.load(TINY).fingerprint in call("describe", TINY).stdout


def test_own_columns(here):
    rows = [f"u{u},s{(u * k) % 17},{k}" for u in range(30) for k in range(1, 9)]
    (here / "plays.csv").write_text("listener,track,stars\n" + "\n".join(rows) + "\n")
    columns = ["--user-col", "listener", "--item-col", "track", "--rating-col", "stars"]
    text = call("describe", "plays.csv", *columns, "--min-rating", "3", "--json").stdout
    assert json.loads(text)["interactions"] < 240
    call("train", "plays.csv", *columns, *FAST, "--set", "n_negatives=3", "--out", "r")
    found = ir.Recommender.load("r").recommend(user="u3", k=2)
    assert all(str(pick.item).startswith("s") for pick in found)
    call("evaluate", "r")  # the columns are in the run's settings


def test_the_final_model_knows_every_user_and_interaction(runs, here):
    text = call("recommend", runs / "bpr", "--all", "--out", "some.csv").stdout
    assert "users are held out for evaluation and have no list" in text
    chosen = ir.Run.load(runs / "bpr").metrics["best_epoch"]
    text = call("train", "--final", runs / "bpr", "--out", "serve").stdout
    assert f"{chosen} epochs on all" in text
    assert "before deploying" not in text  # this is the model to deploy
    text = call("recommend", "serve", "--all", "-k", "1000", "--out", "all.csv").stdout
    assert "held out" not in text
    data = ir.load(TINY)
    users, items = data.user_ids.ids[data.users], data.item_ids.ids[data.items]
    taken = set(zip(map(str, users), map(str, items), strict=True))
    rows = [line.split(",")[:2] for line in Path("all.csv").read_text().splitlines()[1:]]
    assert {user for user, _ in rows} == set(map(str, users))
    assert not taken & set(map(tuple, rows))
    assert "nothing was held out" in call("evaluate", "serve", code=2).stderr
    again = call("train", "--final", runs / "item-ndcg", "--resume", "--out", "serve", code=2)
    assert "serve holds a run with other settings: 'loss.name' is 'bpr'" in again.stderr
    call("train", "--final", runs / "bpr", "--resume", "--out", "serve")  # it is the same
    assert ir.Run.load("serve").config["split"]["strategy"] == "all"
    error = call("train", "--final", runs / "bpr", "--split", "users", code=2).stderr
    assert "'split' must be all with '--final', got 'users'" in error
    both = call("train", "--final", runs / "bpr", "--like", "systems/ease", code=2).stderr
    assert "'--config', '--like' and '--final' each give all settings" in both


def test_a_final_model_notes_changed_data(here):
    lines = [f"u{u},i{(u * k) % 17}" for u in range(1, 40) for k in range(1, 9)]
    Path("plays.csv").write_text("\n".join(["user_id,item_id", *lines]))
    text = call("train", "plays.csv", "--model", "ease", "--out", "r").stdout
    assert "recommend: itemfold recommend r --history i0,i1 --explain\n" in text
    assert "before deploying, train on all data: itemfold train --final r\n" in text
    assert "has changed" not in call("train", "--final", "r", "--out", "same").stderr
    before = ir.Run.load("same").dataset["interactions"]
    Path("plays.csv").write_text("\n".join(["user_id,item_id", *lines, "u1,new", "u2,new"]))
    text = call("train", "--final", "r", "--out", "more").stderr
    assert f"changed since r was trained: {before} interactions then, {before + 2} now" in text


def test_a_search_writes_a_configuration_to_train_with(here):
    search = ("tune", TINY, "--model", "ease", "--search", "model.l2=1..1000", "--out", "t")
    text = call(*search, "--trials", "3").stdout
    assert "3 trials" in text
    assert "as given" in text
    assert "train with the best settings: itemfold train --config t/best.toml --out RUN" in text
    assert "already holds a search" in call(*search, code=2).stderr
    again = call("tune", "--resume", "--out", "t", "--trials", "5").stdout
    assert "5 trials" in again
    trials = [json.loads(line) for line in Path("t/trials.jsonl").read_text().splitlines()]
    call("train", "--config", "t/best.toml", "--no-refit", "--out", "r")
    valid = ir.Run.load("r").metrics["valid"]["ndcg@20"]
    assert valid == max(trial["value"] for trial in trials)


def test_a_search_prints_the_assumptions_that_train_prints(here):
    rows = [f"c{n % 20},p{(n * 7 + n // 20) % 30},{1 + n % 5}" for n in range(400)]
    Path("bought.csv").write_text("\n".join(["customer,product,stars", *rows]))
    searched = call("tune", "bought.csv", "--model", "ease", "--trials", "1", "--out", "t").stderr
    trained = call("train", "bought.csv", "--model", "ease", "--out", "r").stderr
    said = [line for line in trained.splitlines() if line.startswith("itemfold: ")]
    assert any("--user-col customer --item-col product" in line for line in said)
    assert [line for line in searched.splitlines() if line.startswith("itemfold: ")] == said


def test_finished_runs_are_not_trained_again(runs):
    before = (runs / "bpr" / "model.safetensors").read_bytes()
    text = call("train", "--resume", "--out", runs / "bpr").stdout
    assert "run folder" in text
    assert (runs / "bpr" / "model.safetensors").read_bytes() == before
    error = call("train", "--resume", "--out", runs / "bpr", "--lr", "0.5", code=2).stderr
    assert "other settings: 'train.lr' is 0.01, got 0.5" in error


BAD = {
    "train nosuch": "unknown data 'nosuch'",
    "train missing.csv": "no such file",
    "train empty.csv": "empty.csv",
    "train noitem.csv": "noitem.csv",
    "train words.csv --min-rating 3": "words.csv, line 3",
    "train broken.parquet": "broken.parquet",
    "train twice": "twice",
    "train": "'data' must be given",
    "train DATA --model nosuch": "'model' must be one of",
    "train DATA --loss nosuch": "'loss' must be one of",
    "train DATA --negatives nosuch": "'negatives' must be one of",
    "train DATA --protocol nosuch": "'protocol' must be transductive or inductive",
    "train DATA --split users --protocol transductive": "'split' must be interactions",
    "train DATA --protocol inductive --model mf": "MF cannot be used in the inductive protocol",
    "train DATA --epochs 0": "'epochs' must be a positive integer",
    "train DATA --lr -1": "'lr' must be a positive number, got -1.0",
    "train DATA --tau 0": "'tau' must be a positive number",
    "train DATA --seed -1": "'seed' must be at least 0 and below 2^63, got -1",
    "train DATA --device cuda:99": "'device'",
    "train DATA --device toaster": "'device' must be",
    "train DATA --set nosuch=1": "'--set' has no key 'nosuch'",
    "train DATA --set metric=nosuch": "'metric' must be one of",
    "train DATA --config nosuch.toml": "'--config' must be an existing file, got 'nosuch.toml'",
    "train DATA --config empty.csv --k-core 99": "'k_core' must be less than 99",
    "train DATA --like ease": "'--like' must be SUITE/ROW",
    "train DATA --like nosuch/ease": "'suite' must be a .toml file or one of",
    "train DATA --like systems/nosuch": "'--like systems/…' must be one of lightgcn",
    "train DATA --like transductive/ease@x": "'--like transductive/ease@…' must be one of ml-1m",
    "train DATA --like systems/ease --protocol x": "'protocol' must be one of transductive",
    "train DATA --like systems/ease --config c.toml": "use only one",
    "train --resume": "'--resume' needs the run folder",
    "train --resume --out nosuch": "holds no run to resume",
    "train DATA --data-root nosuch --out /dev/null/r": "'out' must be a folder",
    "train DATA --out empty.csv": "'out' must be a folder, got 'empty.csv'",
    "train DATA --out /proc/r": "'out' must be in a writable folder",
    "recommend RUN --all --out /proc/x.csv": "must be in a writable folder, got '/proc/x.csv'",
    "recommend RUN --all --out twice": "'out' must be a new folder or one with parts of lists",
    "report RUN --out /proc/x.html": "'out' must be in a writable folder, got '/proc/x.html'",
    "report RUN --out x.pdf": "'out' must end in .html or .htm, got 'x.pdf'",
    "reproduce smoke --results empty.csv": "'results' must be a folder, got 'empty.csv'",
    "reproduce smoke --per-user empty.csv": "'per_user' must be a folder, got 'empty.csv'",
    "demo --out empty.csv": "'out' must be a folder",
    "evaluate nosuch": "nosuch: no such folder",
    "evaluate RUN --k 0": "'--k' must be positive integers",
    "evaluate RUN --k ten": "'--k' must be positive integers",
    "evaluate RUN --k ²": "'--k' must be positive integers",
    "evaluate RUN --metrics nosuch": "'metric' must be one of",
    "train DATA --set train.lr=inf": "'train.lr' must be a finite number, got inf",
    "train DATA --set loss.tau=nan": "must be a finite number, got nan",
    "tune DATA --search lr=2..1": "'search' must give a range by two numbers",
    "tune DATA --search nosuch=1,2": "'search' has no key 'nosuch'",
    "tune DATA --trials 0": "'trials' must be a positive integer, got 0",
    "tune DATA --config c.toml --like systems/ease": "'--config' and '--like' each give all",
    "tune --resume --out RUN": "holds no search to resume: tune.toml is missing",
    "serve nosuch": "nosuch: no such folder",
    "evaluate RUN --metrics ''": "'metrics' must name at least one, got none",
    "compare RUN TWIN --metrics ''": "'metrics' must name at least one, got none",
    "evaluate RUN --fold-in nosuch": "'--fold-in' must be frozen or joint",
    "compare RUN": "at least two",
    "compare RUN TWIN --metrics ndcg@10": "got 'ndcg@10'; itemfold evaluate computes others",
    "compare RUN RUN": "the same run was given twice",
    "compare RUN OTHER": "one protocol",
    "recommend RUN": "give one of --user, --history and --all",
    "recommend RUN --user nosuch": "'user' must be a user of the training data",
    "recommend RUN --user 1 --history 1": "give one of",
    "recommend RUN --all": "'--all' needs a file",
    "recommend RUN --all --out recs.xlsx": "'out' must end in",
    "recommend RUN --history 3 --out recs.csv": "'--out' needs --all",
    "recommend RUN --history 3 -k 0": "'k' must be a positive integer",
    "recommend RUN --history 3 --genre Opera": "'genre' must be one of",
    "recommend RUN --history 3 --genre ''": "'genre' must be one of",
    "recommend OTHER --history '\"3,4'": "'history' must be a list such as '1,\"a,b\"'",
    "recommend RUN --all --out recs.csv --explain": "'--explain' cannot be combined with --all",
    "recommend RUN --all --out recs.csv --json": "'--json' cannot be combined with --all",
    "report nosuch": "nosuch: no such folder",
    "report RUN --out no/such/folder.html": "'out' must be in an existing folder",
    "report RUN --out .": "'out' must be a file, got the folder '.'",
    "reproduce smoke --data-root nosuch": "'data_root' must be an existing folder, got 'nosuch'",
    "reproduce smoke --device gpu": "'device' must be cpu, cuda or auto, got 'gpu'",
    "reproduce smoke --rows ''": "'rows' must name at least one, got none",
    "reproduce smoke --datasets ''": "'datasets' must name at least one, got none",
    "reproduce smoke --time-limit -1": "'time_limit' must be at least 0, got -1",
    "reproduce datasets --rows bpr": "'rows' must be left out: the table datasets has no rows",
    "reproduce datasets --device gpu": "'device' must be",
    "reproduce all --rows bpr,nosuch": "'rows' must be one of",
    "reproduce all --datasets nosuch": "unknown data 'nosuch'",
    "reproduce all --jobs 0": "'jobs' must be a positive integer, got 0",
    "describe nosuch": "unknown data",
    "describe DATA --user-col x": "'user' has no effect on",
    "describe": "'DATA' must be given; see: itemfold describe --help",
    "describe DATA twice": "several files are one DATA: put a pattern such as",
    "items RUN -20": "put -- before an id that begins with a minus: itemfold items … -- -20",
    "train DATA --epochs two": "'--epochs' must be a whole number, got 'two'",
    "train DATA --lr 1,5": "'--lr' must be a number, got '1,5'",
    "train DATA --lrr 1": "no such option '--lrr': did you mean --l2 or --layers or --lr?",
    "train DATA --lr": "'--lr' requires an argument",
    "recommend RUN --history 3 -k x": "'--k' must be a whole number, got 'x'",
    "trian DATA": "no such command 'trian': did you mean 'train'?",
    "--nosuch": "no such option: --nosuch; see: itemfold --help",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_with_code_2_and_writes_nothing(line, runs, here):
    (here / "empty.csv").write_text("")
    (here / "c.toml").write_text("")
    (here / "noitem.csv").write_text("user_id,thing\n1,2\n")
    (here / "words.csv").write_text("user_id,item_id,rating\n1,2,3\n1,3,good\n")
    (here / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    (here / "twice").mkdir()
    (here / "twice" / "train.txt").write_text("0 1 2\n0 3\n")
    before = sorted(here.rglob("*"))
    names = {"DATA": TINY, "RUN": str(runs / "bpr"), "OTHER": str(runs / "ease")}
    names["TWIN"] = str(runs / "item-ndcg")
    result = call(*(names.get(word, word) for word in shlex.split(line)), code=2)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert result.stderr.startswith("itemfold: ")
    assert BAD[line] in result.stderr
    assert sorted(here.rglob("*")) == before


def test_an_occupied_folder_is_left_alone(runs):
    before = {p: p.read_bytes() for p in (runs / "bpr").iterdir()}
    error = call("train", TINY, *FAST, "--out", runs / "bpr", code=2).stderr
    assert "already holds a run" in error
    assert {p: p.read_bytes() for p in (runs / "bpr").iterdir()} == before


def test_a_diverging_loss_stops_with_the_reason(here):
    line = ["train", TINY, *FAST, "--lr", "1e38"]
    for folder, model in (("r", "lightgcn"), ("hybrid", "hybrid")):
        error = call(*line, "--model", model, "--out", folder, code=2).stderr
        assert "the loss became" in error
        assert "'lr'" in error
    assert not Path("r/metrics.json").exists()
    stage = ir.Run.load("hybrid")  # what was reached before the network can be used
    assert (stage.metrics["stage"], stage.metrics["complete"]) == ("linear", False)
    assert len(ir.Recommender(stage).recommend(history=[3], k=5)) == 5


def test_too_little_memory_is_one_sentence_and_a_bug_is_not(here, monkeypatch):
    error = call("train", TINY, "--dim", 10**11, "--out", "r", code=2).stderr
    assert re.fullmatch(r"itemfold: 'dim' must be smaller: .* at least [0-9,]+ GiB .*\n", error)
    assert not Path("r").exists()

    def fail(error: Exception):
        def raising(*args: object, **kwargs: object) -> None:
            raise error

        monkeypatch.setattr("itemfold.experiments.build.run_config", raising)

    gpu = "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 8 GiB."
    fail(torch.OutOfMemoryError(gpu))
    assert "cannot allocate 20.00 GiB;" in call("train", TINY, "--out", "r", code=2).stderr
    fail(MemoryError("Unable to allocate 239. GiB for an array with shape (253181, 253181)"))
    assert "cannot allocate 239 GiB;" in call("train", TINY, "--out", "r", code=2).stderr
    fail(MemoryError())
    assert "out of memory; choose" in call("train", TINY, "--out", "r", code=2).stderr
    fail(RuntimeError("shapes do not agree"))
    assert isinstance(call("train", TINY, "--out", "r", code=1).exception, RuntimeError)


def test_every_command_has_help_with_an_example():
    for command in app.registered_commands:
        help_text = " ".join(call(command.name, "--help").stdout.split())
        assert f"Example: itemfold {command.name}" in help_text


def test_no_arguments_show_the_commands():
    bare = call(code=2)
    for text in (call("--help").stdout, bare.stdout + bare.stderr):
        assert all(name in text for name in ("Usage", "describe", "doctor"))


def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "itemfold", "train", "nosuch"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("itemfold: unknown data 'nosuch'")
