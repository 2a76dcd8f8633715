"""A search is evaluated on validation only and gives the same trials, whatever interrupts it."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import itemfold as ir
from itemfold.experiments import tune as tune_module
from itemfold.experiments.build import run_config
from itemfold.experiments.search_folder import stored_search
from itemfold.experiments.search_space import parse_search_space
from itemfold.experiments.tune import tune
from itemfold.settings.toml_file import load_config
from itemfold.training import run_folder
from itemfold.training.fit import fit_and_test
from itemfold.training.state import DescentState

TINY = "synthetic:users=50,items=40,interactions=500"
FAST = {"epochs": 3, "eval_every": 1, "batch": 64, "save_seconds": 0.0}
SEARCH = ["lr=0.001..0.1", "layers=1,2"]


def config(**sections) -> dict:
    base = {"data": {"data": TINY}, "model": {"name": "lightgcn", "dim": 4}, "train": dict(FAST)}
    return {**base, **sections}


def ease(**settings) -> dict:
    return {"data": {"data": TINY}, "model": {"name": "ease", **settings}}


def untimed(trials) -> list[dict]:
    return [{**vars(trial), "seconds": 0.0} for trial in trials]


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def pretend(monkeypatch, value, calls=None) -> None:
    """Train nothing: the value of a trial is a function of its model and settings."""

    def train(settings, split, **options):
        model, settings = settings.make_model(), {**vars(settings.train), **options}
        if calls is not None:
            calls.append(settings)
        valid = {"ndcg@20": value(model, settings)}
        figures = {"valid": valid, "best_epoch": 1, "epochs": 2}
        return SimpleNamespace(metrics={**figures, "seconds": {"train": 0.0}})

    monkeypatch.setattr(tune_module, "fit_and_test", train)


class Killed(BaseException):
    """Nothing catches this, just as nothing catches a kill."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The undisturbed search."""
    folder = tmp_path_factory.mktemp("whole") / "search"
    tune(config(), folder, search=SEARCH, trials=4)
    return folder


# --- trials --------------------------------------------------------------------------------------


def test_the_first_trial_is_the_given_configuration(whole):
    run = run_config(config(train={**FAST, "refit": False}))
    first = lines(whole)[0]
    assert first["value"] == run.metrics["valid"]["ndcg@20"]
    assert first["best_epoch"] == run.metrics["best_epoch"]
    assert first["settings"] == {"train.lr": 0.01, "model.layers": None}


def test_the_best_configuration_trains_to_the_reported_value(whole, tmp_path):
    stored = load_config(whole / "best.toml")
    run = run_config({**stored, "train": {**stored["train"], "refit": False}})
    best = max(lines(whole), key=lambda line: line["value"])
    assert run.metrics["valid"]["ndcg@20"] == best["value"]
    assert run.metrics["best_epoch"] == best["best_epoch"]
    refitted = run_config(stored)  # only the trials of the search are not refitted
    assert refitted.metrics["refit"]
    kept = tune(ease() | {"train": {"refit": False}}, tmp_path / "s", trials=1)
    assert kept.config["train"]["refit"] is False


def test_the_same_seed_gives_the_same_trials_and_another_one_others(whole, tmp_path):
    again = tune(config(), tmp_path / "again", search=SEARCH, trials=4)
    stored = [{**line, "seconds": 0.0} for line in lines(whole)]
    assert untimed(again.trials) == stored
    assert len({str(line["settings"]) for line in stored}) == 4
    other = tune(config(train={**FAST, "seed": 1}), tmp_path / "b", search=SEARCH, trials=2)
    assert other.trials[1].settings != again.trials[1].settings


def test_a_better_setting_is_found(tmp_path):
    found = tune(ease(l2=1e-4), tmp_path / "s", search=["model.l2=0.0001..1000"], trials=12)
    assert found.best.value == max(trial.value for trial in found.trials)
    assert found.best.value > 1.1 * found.trials[0].value
    assert found.best.settings["model.l2"] > 1
    assert found.config["model"]["l2"] == found.best.settings["model.l2"]


def test_the_given_configuration_stays_where_nothing_is_better(tmp_path, monkeypatch):
    pretend(monkeypatch, lambda model, settings: 1.0 if settings.get("lr") is None else 0.5)
    found = tune(config(), tmp_path / "s", search=["lr=0.1..0.2"], trials=5)
    assert found.best.number == 0
    assert "lr" not in found.config["train"]
    pretend(monkeypatch, lambda model, settings: 0.5)  # equal values: the first trial is the best
    assert tune(config(), tmp_path / "t", search=["lr=0.1..0.2"], trials=5).best.number == 0


def test_values_lie_in_their_ranges_and_follow_their_scale(tmp_path, monkeypatch):
    pretend(monkeypatch, lambda model, settings: 0.5)
    texts = ["lr=0.0001..0.1", "ema_decay=0.2..0.9", "layers=1..3", "pooling=sum,mean"]
    found = tune(config(), tmp_path / "s", search=texts, trials=40).trials[1:]
    lr, average, layers, pooling = (
        np.array([trial.settings[key] for trial in found])
        for key in ("train.lr", "train.ema_decay", "model.layers", "model.pooling")
    )
    assert lr.min() >= 1e-4
    assert lr.max() <= 0.1
    assert 0.2 < (lr < 10**-2.5).mean() < 0.8  # the middle of the logarithms
    assert average.min() >= 0.2
    assert average.max() <= 0.9
    assert 0.2 < (average < 0.55).mean() < 0.8
    assert set(layers.tolist()) == {1, 2, 3}
    assert set(pooling.tolist()) == {"sum", "mean"}


def test_settings_drawn_twice_are_trained_once(tmp_path, monkeypatch):
    calls: list[dict] = []
    pretend(monkeypatch, lambda model, settings: model.settings["l2"], calls)
    found = tune(ease(), tmp_path / "s", search=["model.l2=100,200,300"], trials=12)
    assert len(calls) == len({trial.settings["model.l2"] for trial in found.trials}) > 1
    assert all(trial.value == trial.settings["model.l2"] for trial in found.trials)
    assert [trial.number for trial in found.trials] == list(range(12))


def test_another_component_comes_without_the_settings_of_the_first(tmp_path):
    base = config(loss={"name": "item-log", "tau": 0.5})
    found = tune(base, tmp_path / "s", search=["loss.name=item-log,bpr"], trials=8)
    assert {trial.settings["loss.name"] for trial in found.trials} == {"item-log", "bpr"}
    assert not any(trial.error for trial in found.trials)
    bpr = next(t for t in found.trials if t.settings["loss.name"] == "bpr")
    by_hand = run_config(config(loss={"name": "bpr"}, train={**FAST, "refit": False}))
    assert bpr.value == by_hand.metrics["valid"]["ndcg@20"]


def test_another_model_comes_with_its_default_loss(tmp_path):
    found = tune(config(), tmp_path / "s", search=["model.name=lightgcn,mf"], trials=6)
    mf = next(t for t in found.trials if t.settings["model.name"] == "mf")
    by_hand = run_config(config(model={"name": "mf"}, train={**FAST, "refit": False}))
    assert by_hand.config["loss"]["name"] == "bpr"
    assert mf.value == by_hand.metrics["valid"]["ndcg@20"]


@pytest.mark.parametrize("error", [ir.ItemfoldError("the loss became nan"), MemoryError()])
def test_a_trial_that_fails_is_recorded_and_the_search_goes_on(error, tmp_path, monkeypatch):
    def value(model, settings):
        if model.settings["l2"] > 150:
            raise error
        return 0.5

    pretend(monkeypatch, value)
    found = tune(ease(), tmp_path / "s", search=["model.l2=10..1000"], trials=30)
    bad = [trial for trial in found.trials if trial.value is None]
    assert bad[0].number == 0
    assert all(trial.settings["model.l2"] > 150 for trial in bad)
    assert all(("nan" in t.error or "out of memory" in t.error) for t in bad)
    assert not any(trial.error for trial in found.trials if trial.value is not None)
    assert sum(trial.number >= 20 for trial in bad) < 5  # failures are avoided
    assert found.best.settings["model.l2"] <= 150
    assert [line["value"] for line in lines(tmp_path / "s")] == [t.value for t in found.trials]


def test_a_diverging_loss_is_such_a_failure(tmp_path):
    found = tune(config(), tmp_path / "s", search=["lr=0.01,1e38"], trials=6)
    assert {trial.settings["train.lr"] for trial in found.trials if trial.error} == {1e38}
    assert "the loss became" in next(trial.error for trial in found.trials if trial.error)
    assert not (tmp_path / "s" / "running").exists()


def test_a_bug_is_not_a_failed_trial(tmp_path, monkeypatch):
    for fault in (IndexError("list index"), RuntimeError("shapes do not fit")):

        def value(model, settings, fault=fault):
            raise fault

        pretend(monkeypatch, value)
        with pytest.raises(type(fault), match=str(fault)):
            tune(ease(), tmp_path / type(fault).__name__, trials=3)


def test_a_search_without_a_success_gives_the_reason(tmp_path):
    with pytest.raises(ir.ItemfoldError, match=r"none of 2 trials succeeded, .*the loss became"):
        tune(config(train={**FAST, "lr": 1e38}), tmp_path / "s", search=["dim=2,4"], trials=2)
    assert [line["value"] for line in lines(tmp_path / "s")] == [None, None]
    assert not (tmp_path / "s" / "best.toml").exists()


def test_no_trial_starts_after_the_time_limit(tmp_path, monkeypatch):
    clock = [0.0]

    def value(model, settings):
        clock[0] += 10
        return 0.5

    pretend(monkeypatch, value)
    times = SimpleNamespace(monotonic=lambda: clock[0], perf_counter=lambda: clock[0])
    monkeypatch.setattr("itemfold.experiments.tune.time", times)
    found = tune(ease(), tmp_path / "s", trials=20, time_limit=25)
    assert len(found.trials) == 3  # begun after 0, 10 and 20 seconds
    assert len(tune(ease(), tmp_path / "s", trials=20, time_limit=15, resume=True).trials) == 5


# --- the test part -------------------------------------------------------------------------------


def written(folder: Path, test_item) -> Path:
    """A data set with a test file of its own; each user has four of nine items in training."""
    folder.mkdir()
    history = [[(u + step) % 9 for step in (0, 1, 3, 4)] for u in range(40)]
    for name, rows in (
        ("train.txt", history),
        ("test.txt", [[test_item(u, own)] for u, own in enumerate(history)]),
    ):
        text = "".join(f"{u} {' '.join(map(str, row))}\n" for u, row in enumerate(rows))
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("model", [{"name": "ease"}, {"name": "lightgcn", "dim": 4}])
def test_another_test_part_changes_no_trial(model, tmp_path):
    def unseen(own, places):
        return [i for i in range(9) if i not in own][places]

    one = written(tmp_path / "one", lambda u, own: unseen(own, 0))
    two = written(tmp_path / "two", lambda u, own: unseen(own, -1))
    valid = {"strategy": "interactions", "valid": 0.3}
    settings = [config(data={"data": str(f)}, model=model, split=valid) for f in (one, two)]
    tested = [run_config(each).metrics["test"]["ndcg@20"] for each in settings]
    assert tested[0] != tested[1]
    found = [tune(each, tmp_path / f"s{n}", trials=4) for n, each in enumerate(settings)]
    assert untimed(found[0].trials) == untimed(found[1].trials)


@pytest.mark.parametrize("strategy", ["interactions", "users"])
def test_trials_have_no_test_users(strategy, tmp_path, monkeypatch):
    given = []

    def spy(settings, split, **options):
        given.append((settings, split))
        return fit_and_test(settings, split, **options)

    monkeypatch.setattr(tune_module, "fit_and_test", spy)
    found = tune(ease() | {"split": {"strategy": strategy}}, tmp_path / "s", trials=2)
    assert len(given) == 2
    for trained, split in given:
        assert len(split.test) == split.test.target.nnz == split.test.history.nnz == 0
        assert len(split.valid) > 0
        assert trained.train.refit is False
    assert found.trials[0].value > 0


@pytest.mark.parametrize("split", [{"strategy": "all"}, {"strategy": "interactions", "valid": 0.0}])
def test_a_search_needs_a_validation_part(split, tmp_path):
    with pytest.raises(ir.ItemfoldError, match="'split' must hold out a validation part"):
        tune(config(split=split), tmp_path / "s", search=SEARCH)
    assert not (tmp_path / "s").exists()


# --- interruptions -------------------------------------------------------------------------------


def stop(monkeypatch, folder: Path, at: str) -> None:
    """Begin the search of `whole` and end it in one of many ways."""
    trained, saved, removed = tune_module.fit_and_test, run_folder.save_state, shutil.rmtree

    def train(*args, **settings):
        if at == "begin" and settings["out"].name == "2":
            raise KeyboardInterrupt
        return trained(*args, **settings)

    def save(where, state, *args):
        saved(where, state, *args)
        if at in ("middle", "damage") and where.parent.name == "2" and state.epoch == 2:
            raise KeyboardInterrupt if at == "middle" else Killed

    def remove(path, **options):
        if at == "end" and Path(path).name == "1":
            raise Killed
        removed(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tune_module, "fit_and_test", train)
        patch.setattr(run_folder, "save_state", save)
        patch.setattr(shutil, "rmtree", remove)
        with pytest.raises((KeyboardInterrupt, Killed)):
            tune(config(), folder, search=SEARCH, trials=4)


@pytest.mark.parametrize("at", ["begin", "middle", "damage", "end"])
def test_an_interrupted_search_gives_the_same_trials(at, whole, tmp_path, monkeypatch):
    folder = tmp_path / "s"
    stop(monkeypatch, folder, at)
    assert len(lines(folder)) == 2
    if at == "damage":  # the current trial starts again
        (folder / "running" / "2" / "state.pt").write_bytes(b"half of it")
    begun = []
    recorded = DescentState.record
    with monkeypatch.context() as patch:

        def record(self, *args):
            begun.append(self.epoch)
            recorded(self, *args)

        patch.setattr(DescentState, "record", record)
        found = tune(config(), folder, search=SEARCH, trials=4, resume=True)
    assert begun[0] == (3 if at == "middle" else 1)
    assert untimed(found.trials) == [{**line, "seconds": 0.0} for line in lines(whole)]
    assert (folder / "best.toml").read_text() == (whole / "best.toml").read_text()
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.toml",
        "trials.jsonl",
        "tune.toml",
    ]


@pytest.mark.parametrize("cut", [1, 20, 90])
def test_a_last_line_that_was_cut_off_is_trained_again(cut, whole, tmp_path):
    folder = tmp_path / "s"
    shutil.copytree(whole, folder)
    text = (folder / "trials.jsonl").read_text()
    (folder / "trials.jsonl").write_text(text[: -cut - 1])
    (folder / "best.toml").unlink()
    found = tune(config(), folder, search=SEARCH, trials=4, resume=True)
    assert untimed(found.trials) == [{**line, "seconds": 0.0} for line in lines(whole)]
    assert len(lines(folder)) == 4
    assert (folder / "best.toml").read_text() == (whole / "best.toml").read_text()


def test_a_damaged_line_in_the_middle_is_named(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "s")
    rows = (tmp_path / "s" / "trials.jsonl").read_text().splitlines()
    (tmp_path / "s" / "trials.jsonl").write_text("\n".join([rows[0], rows[1][:30], *rows[2:]]))
    with pytest.raises(ir.ItemfoldError, match=r"trials\.jsonl is damaged"):
        tune(config(), tmp_path / "s", search=SEARCH, resume=True)


@pytest.mark.parametrize(
    "content", ["null", "{}", '{"settings": 3}', '{"value": "a"}', '{"settings": {"model.x": 1}}']
)
def test_a_line_that_is_no_trial_of_this_search_is_named(content, whole, tmp_path):
    folder = tmp_path / "s"
    shutil.copytree(whole, folder)
    trials = lines(folder)
    changed = json.loads(content)
    if changed:
        changed = {**trials[0], **changed}
    text = "".join(json.dumps(line) + "\n" for line in [changed, *trials[1:]])
    (folder / "trials.jsonl").write_text(text)
    with pytest.raises(ir.ItemfoldError, match=r"trials\.jsonl is damaged: line 1 is not a trial"):
        tune(config(), folder, search=SEARCH, resume=True)


def test_a_search_on_a_file_continues_from_any_folder(tmp_path, monkeypatch):
    rows = [f"u{u},i{(u * k) % 17}" for u in range(1, 40) for k in range(1, 9)]
    (tmp_path / "plays.csv").write_text("\n".join(["user_id,item_id", *rows]))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = {"data": {"data": "plays.csv"}, "model": {"name": "ease"}}
    first = tune(settings, "s", trials=2)
    assert tune(settings, "s", trials=2, resume=True).trials == first.trials
    monkeypatch.chdir(tmp_path / "elsewhere")
    base, texts = stored_search("../s")
    assert tune(base, "../s", search=texts, trials=3, resume=True).trials[:2] == first.trials


def test_one_process_at_a_time(tmp_path, monkeypatch):
    folder = tmp_path / "s"
    messages = []

    def value(model, settings):
        with pytest.raises(ir.ItemfoldError, match=r"another process is using .*s: wait") as e:
            tune(ease(), folder, trials=2, resume=True)
        messages.append(str(e.value))
        return 0.5

    pretend(monkeypatch, value)
    assert len(tune(ease(), folder, trials=2).trials) == 2
    assert len(messages) == 2
    assert len(tune(ease(), folder, trials=2, resume=True).trials) == 2  # it is free again


def test_resuming_with_more_trials_continues(whole, tmp_path, monkeypatch):
    shutil.copytree(whole, tmp_path / "s")
    calls: list[dict] = []
    pretend(monkeypatch, lambda model, settings: 0.0, calls)
    found = tune(config(), tmp_path / "s", search=SEARCH, trials=6, resume=True)
    assert [vars(trial) for trial in found.trials[:4]] == lines(whole)
    assert len(found.trials) == 6
    assert len(calls) == 2
    less = tune(config(), tmp_path / "s", search=SEARCH, trials=2, resume=True)
    assert len(less.trials) == 6


def test_a_folder_stores_what_is_searched(whole):
    settings, search = stored_search(whole)
    assert settings == config()
    assert parse_search_space(settings, search) == parse_search_space(config(), SEARCH)


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (["lr"], r"'search' must look like lr=0\.001\.\.0\.1 or layers=1,2,3, got 'lr'"),
        (["lr="], "'search' must look like"),
        (["=1,2"], "'search' must look like"),
        (["nothing=1,2"], "'search' has no key 'nothing'; known keys"),
        (["model.heads=1,2"], r"'search' has no key 'model.heads'; \[model\] has name, dim"),
        (["name=bpr,softmax"], "'search' key 'name' is ambiguous: write model.name or"),
        (["lr=0.1..0.01"], "the lower one first, got 'lr=0.1..0.01'"),
        (["lr=0.1..0.1"], "the lower one first"),
        (["lr=0.1..inf"], "must be a finite number, got inf"),
        (["pooling=mean..sum"], "by two numbers"),
        (["lr=0.1.."], "'train.lr' must be a number, got ''"),
        (["lr=fast,slow"], "'train.lr' must be a number, got 'fast'"),
        (["layers=1.5..3"], "'model.layers' must be a whole number, got 1.5"),
        (["layers=0..3"], "'layers' must be a positive integer, got 0"),
        (["layers=2"], "'search' must give two values or more, or LOW..HIGH, got 'layers=2'"),
        (["lr=1,1.0"], "two values or more"),
        (["pooling=sum,most"], "'pooling' must be auto, mean, sum or concat, got 'most'"),
        (["loss.name=bpr,nothing"], "'loss' must be one of bpr, .*got 'nothing'"),
        (["lr=0.1..0.2", "train.lr=0.1,0.2"], "must name a setting once, got 'train.lr' twice"),
        (["model.name=gcn,gin", "layers=1..3"], "both 'model.name' and 'model.layers'"),
        (["loss.tau=1..3", "loss.name=bpr,softmax"], "both 'loss.name' and 'loss.tau'"),
        (["loss.tau=1..3", "model.name=gcn,mf"], "'bpr' has no setting 'tau'"),
        (["split.valid=0.1,0.2"], "must leave data, split, metric and seed .*got 'split.valid'"),
        (["data.min_rating=1..5"], "must leave data, split"),
        (["train.seed=1,2,3"], "must leave data, split, metric and seed .*got 'train.seed'"),
        (["metric=ndcg@20,recall@20"], "must leave data, split, metric and seed"),
        (["refit=true,false"], "must name settings that affect 'lightgcn', got 'train.refit'"),
        (["device=cpu,auto"], "must name settings that affect 'lightgcn', got 'train.device'"),
    ],
)
def test_what_cannot_be_searched_is_rejected_before_data_is_read(search, message, tmp_path):
    with pytest.raises(ir.ItemfoldError, match=message):
        tune(config(data={"data": "nowhere.csv"}), tmp_path / "s", search=search)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": 0}, "'trials' must be a positive integer, got 0"),
        ({"trials": 2.5}, "'trials' must be a positive integer, got 2.5"),
        ({"time_limit": 0}, "'time_limit' must be a positive number of seconds, got 0"),
        ({"out": __file__}, "'out' must be a folder"),
        ({"search": ["lr=0.1,0.2"]}, "must name settings that affect 'ease', got 'train.lr'"),
        ({"search": ["loss.name=bpr,softmax"]}, "settings that affect 'ease', got 'loss.name'"),
        ({"search": ["model.name=ease,mf"], "split": "users"}, "MF cannot be used in the induct"),
        (
            {"model": "popularity"},
            "'search' must be given: 'popularity' has no default search space",
        ),
    ],
)
def test_other_errors(options, message, tmp_path):
    settings = {
        "data": {"data": "nowhere.csv"},
        "model": {"name": options.pop("model", "ease")},
        "split": {"strategy": options.pop("split", "interactions")},
    }
    with pytest.raises(ir.ItemfoldError, match=message):
        tune(settings, **{"out": tmp_path / "s", **options})
    assert not (tmp_path / "s").exists()


def test_a_missing_optuna_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("itemfold.environment.find_spec", lambda name: None)
    with pytest.raises(ir.ItemfoldError, match="needs optuna: pip install optuna"):
        tune(ease(), tmp_path / "s")


def test_a_search_is_neither_overwritten_nor_mixed_with_another(whole, tmp_path):
    before = {path.name: path.read_bytes() for path in whole.iterdir()}
    for settings, search, resume, message in (
        (config(), SEARCH, False, "already holds a search: continue it with --resume, or choose"),
        (config(model={"name": "gcn"}), SEARCH, True, "'model.name' is 'lightgcn', got 'gcn'"),
        (config(train={**FAST, "lr": 0.1}), SEARCH, True, "'train.lr' is None, got 0.1"),
        (config(), SEARCH[:1], True, "'search.settings' is .*model.layers=1,2.*, got"),
        (config(), [], True, "'search.settings' is"),
    ):
        with pytest.raises(ir.ItemfoldError, match=message):
            tune(settings, whole, search=search, resume=resume)
    other = ir.load(TINY.replace("500", "501"))
    with pytest.raises(ir.ItemfoldError, match="holds a search on other data"):
        tune(config(), whole, search=SEARCH, resume=True, data=other)
    assert before == {path.name: path.read_bytes() for path in whole.iterdir()}
    (tmp_path / "running").mkdir()
    with pytest.raises(ir.ItemfoldError, match="already holds a search"):
        tune(ease(), tmp_path)
    with pytest.raises(ir.ItemfoldError, match=r"holds no search to resume: tune\.toml is missing"):
        tune(ease(), tmp_path, resume=True)


# --- spaces --------------------------------------------------------------------------------------


def test_without_a_terminal_there_is_one_line_per_trial(tmp_path, monkeypatch, capfd):
    pretend(monkeypatch, lambda model, settings: model.settings["l2"] / 1000)
    found = tune(ease(), tmp_path / "s", search=["model.l2=100,200"], trials=3, progress=True)
    printed = capfd.readouterr().err.splitlines()
    assert len(printed) == 3
    assert printed[0].startswith(
        "[1/3] trial 0: ndcg@20 0.2000 · model.l2 200.0 · best ndcg@20 0.2000"
    )
    assert all(
        f"model.l2 {t.settings['model.l2']}" in line
        for t, line in zip(found.trials, printed, strict=True)
    )
