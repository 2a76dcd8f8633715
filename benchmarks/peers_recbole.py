"""RecBole's LightGCN on given files, timed; peers.py runs this in a separate environment."""

from __future__ import annotations

import json
import sys
import time
from itertools import islice

import numpy as np
import torch
from recbole.config import Config
from recbole.data import create_dataset, data_preparation
from recbole.model.general_recommender import LightGCN
from recbole.trainer import Trainer


class Some:
    """The first batches of a loader, with the time at which each is requested."""

    def __init__(self, loader, count: int) -> None:
        self.loader, self.count, self.times = loader, count, []

    def __getattr__(self, name: str):
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        for batch in islice(iter(self.loader), self.count):
            self.times.append(time.perf_counter())
            yield batch
        self.times.append(time.perf_counter())


def main() -> None:
    folder, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    settings = {
        "data_path": folder,
        "benchmark_filename": ["train", "valid", "test"],
        "load_col": {"inter": ["user_id", "item_id"]},
        "USER_ID_FIELD": "user_id",
        "ITEM_ID_FIELD": "item_id",
        "embedding_size": 64,
        "n_layers": 3,
        "reg_weight": 1e-4,
        "learning_rate": 0.001,
        "train_batch_size": 2048,
        "eval_batch_size": 2_000_000,
        "train_neg_sample_args": {"distribution": "uniform", "sample_num": 1},
        "eval_args": {"group_by": "user", "order": "RO", "mode": "full"},
        "metrics": ["Recall", "NDCG"],
        "topk": [20],
        "use_gpu": False,
        "show_progress": False,
        "state": "ERROR",
        "checkpoint_dir": folder,
        "log_wandb": False,
    }
    sys.argv = sys.argv[:1]  # RecBole reads the command line too
    config = Config(model="LightGCN", dataset="peers", config_dict=settings)
    train, _, test = data_preparation(config, create_dataset(config))
    torch.set_num_threads(threads)
    model = LightGCN(config, train.dataset)
    trainer = Trainer(config, model)
    some = Some(train, count + 2)
    trainer._train_epoch(some, 0)
    evaluated = []
    for _ in range(2):
        start = time.perf_counter()
        trainer.evaluate(test, load_best_model=False)
        evaluated.append(time.perf_counter() - start)
    step = float(np.median(np.diff(some.times)[2:]))
    print(json.dumps({"step": step, "evaluation": min(evaluated), "steps": len(train)}))


if __name__ == "__main__":
    main()
