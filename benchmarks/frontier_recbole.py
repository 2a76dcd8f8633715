"""RecBole on given interactions; frontier.py runs this in a separate environment.

`choose NAME FOLDER TRIALS THREADS` prints the best settings of a few on the validation part.
`fit NAME FOLDER SETTINGS THREADS` fits to training and validation data and writes the 20 best items
of every test user to `FOLDER/lists.npy`. A trial of a network ends at its best epoch: when RecBole
stops it, or after `TRIAL_S` seconds.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from frontier_peers import BATCH, K, draw, load, ndcg
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.data.interaction import Interaction
from recbole.trainer import Trainer
from recbole.utils import get_model, init_seed

TRIAL_S = 120
SPACES = {
    "RecBole EASE": {"reg_weight": [10.0, 50.0, 200.0, 500.0, 1000.0]},
    "RecBole LightGCN": {
        "learning_rate": [0.001, 0.002, 0.005, 0.01],
        "n_layers": [1, 2, 3],
        "reg_weight": [1e-5, 1e-4, 1e-3, 1e-2],
        "train_batch_size": [2048, 4096, 8192],
    },
}
COMMON = {
    "load_col": {"inter": ["user_id", "item_id"]},
    "USER_ID_FIELD": "user_id",
    "ITEM_ID_FIELD": "item_id",
    "benchmark_filename": ["data", "data", "data"],
    "embedding_size": 64,
    "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1},
    "eval_args": {"group_by": "user", "order": "RO", "mode": "full"},
    "use_gpu": False,
    "show_progress": False,
    "state": "ERROR",
    "log_wandb": False,
}


def main() -> None:
    task, name, folder, value, threads = sys.argv[1:]
    sys.argv = sys.argv[:1]  # RecBole reads the command line too
    torch.set_num_threads(int(threads))
    root = Path(folder)
    if task == "choose":
        target, users = load(root, "valid"), load(root, "valid_users")
        best: tuple[float, dict] = (-1.0, {})
        for settings in draw(SPACES[name], int(value)):
            best = max(best, trial(name, settings, root, users, target), key=lambda pair: pair[0])
        print(json.dumps(best[1]))
        return
    model, train, config, names = prepare(name, json.loads(value), root, "whole")
    descend(model, train, config, json.loads(value).get("epochs", 0), lambda: False)
    np.save(
        root / "lists.npy", recommend(model, names, load(root, "whole"), load(root, "test_users"))
    )


def prepare(name: str, settings: dict, root: Path, part: str):
    """A new model, RecBole's batches, and its ids of our users and items."""
    home = root / part
    home.mkdir(exist_ok=True)
    shutil.copyfile(root / f"{part}.inter", home / f"{part}.data.inter")
    kind = name.removeprefix("RecBole ")
    given = {**COMMON, **settings, "data_path": str(root), "checkpoint_dir": str(root)}
    config = Config(model=kind, dataset=part, config_dict=given)
    init_seed(0, reproducibility=False)
    train, _, _ = data_preparation(config, create_dataset(config))
    model = get_model(kind)(config, train.dataset)
    names = {role: train.dataset.field2id_token[f"{role}_id"] for role in ("user", "item")}
    return model, train, config, names


def descend(model, train, config, epochs: int, is_done) -> None:
    """RecBole's training loop; a closed form has no epochs."""
    trainer = Trainer(config, model) if epochs else None
    for epoch in range(epochs):
        trainer._train_epoch(train, epoch)
        if is_done():
            break


def trial(name: str, settings: dict, root: Path, users, target) -> tuple[float, dict]:
    """Validation NDCG@20 of the best epoch, and the settings with the number of epochs."""
    model, train, config, names = prepare(name, settings, root, "train")
    seen = load(root, "train")
    if name == "RecBole EASE":
        return ndcg(recommend(model, names, seen, users), target), settings
    until, best = time.perf_counter() + TRIAL_S, [(-1.0, 0)]
    epochs = [0]

    def is_done() -> bool:
        epochs[0] += 1
        if epochs[0] % 5 == 0:
            value = ndcg(recommend(model, names, seen, users), target)
            best[0] = max(best[0], (value, epochs[0]))
            model.train()
        return time.perf_counter() > until or epochs[0] - best[0][1] > 50

    descend(model, train, config, 1000, is_done)
    return best[0][0], {**settings, "epochs": best[0][1]}


def recommend(model, names: dict, seen, users) -> np.ndarray:
    """The best items of each user that are not in the training data, [users, K]."""
    to_item = np.append(-1, names["item"][1:].astype(np.int64))  # the first id is padding
    to_id = {int(user): place for place, user in enumerate(names["user"]) if place}
    model.eval()
    model.restore_user_e = model.restore_item_e = None  # what an earlier epoch has stored
    out = []
    for start in range(0, len(users), BATCH):
        some = users[start : start + BATCH]
        ids = torch.tensor([to_id.get(int(user), 0) for user in some])
        with torch.no_grad():
            scores = model.full_sort_predict(Interaction({"user_id": ids}))
        scores = np.asarray(scores).reshape(len(some), -1)
        known = sp.csr_matrix(seen[some])[:, to_item[1:]].nonzero()
        scores[:, 0] = -np.inf
        scores[known[0], known[1] + 1] = -np.inf
        best = np.argpartition(-scores, K, axis=1)[:, :K]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
        out.append(to_item[np.take_along_axis(best, order, 1)])
    return np.concatenate(out)


if __name__ == "__main__":
    main()
