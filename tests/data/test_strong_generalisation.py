"""The user splits of Mult-VAE from raw files, against a split by loops over a pandas frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import itemfold as ir
from itemfold.data.datasets import DATASETS
from itemfold.data.named.strong_generalisation import split_as_mult_vae
from itemfold.data.splitting.user_parts import UserPart
from itemfold.errors import ItemfoldError, ItemfoldWarning


def expected(frame: pd.DataFrame, held_out: int, min_user: int, min_item: int):
    """(user, item) → part, step by step as the paper's script does, with numpy's old generator."""
    frame = frame[frame.groupby("item")["item"].transform("size") >= min_item]
    frame = frame[frame.groupby("user")["user"].transform("size") >= min_user]
    users = np.array(sorted(frame["user"].unique()))
    users = users[np.random.RandomState(98765).permutation(len(users))]
    held = {"VALID": users[-2 * held_out : -held_out], "TEST": users[-held_out:]}
    train = frame[frame["user"].isin(users[: -2 * held_out])]
    out = dict.fromkeys(zip(train["user"], train["item"], strict=True), UserPart.TRAIN)
    for name, some in held.items():
        part = frame[frame["user"].isin(some) & frame["item"].isin(train["item"])]
        rng = np.random.RandomState(98765)
        for user in sorted(part["user"].unique()):
            items = part.loc[part["user"] == user, "item"].tolist()
            hidden: set[int] = set()
            if len(items) >= 5:
                drawn = rng.choice(len(items), size=int(0.2 * len(items)), replace=False)
                hidden = set(drawn.tolist())
            for n, item in enumerate(items):
                out[user, item] = UserPart[f"{name}_{'HIDDEN' if n in hidden else 'SHOWN'}"]
    return out


def rows(seed: int = 0, n_users: int = 60, n_items: int = 40) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    users, items = np.nonzero(rng.random((n_users, n_items)) < rng.random(n_items) * 0.6)
    return pd.DataFrame({"user": users * 3 + 1, "item": items * 7})


@pytest.mark.parametrize(("min_user", "min_item"), [(5, 0), (6, 9)])
def test_the_split_is_that_of_the_published_steps(min_user, min_item) -> None:
    frame = rows().sample(frac=1, random_state=1)  # rows in any order
    table = split_as_mult_vae(
        frame["user"].to_numpy(), frame["item"].to_numpy(), 10, min_user, min_item
    )
    found = zip(table.user.tolist(), table.item.tolist(), table.part.tolist(), strict=True)
    assert {(u, i): p for u, i, p in found} == expected(frame, 10, min_user, min_item)


@pytest.fixture
def held_out_few(monkeypatch):
    """Data sets by name that hold out ten users, with the counts of no published set."""
    for name in ("ml-20m", "netflix", "msd"):
        few = replace(DATASETS[name].recipe, held_out=10, min_per_user=5, min_per_item=2)
        monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], recipe=few))


def write_raw(folder, name: str, frame: pd.DataFrame) -> None:
    folder.mkdir(parents=True)
    pairs = frame.to_numpy().tolist()
    if name == "ml-20m":
        lines = [f"{u},{i},{4.0 if n % 2 else 5.0},0" for n, (u, i) in enumerate(pairs)]
        lines.append(f"{pairs[0][0]},9999,3.5,0")  # not above 3.5
        (folder / "ratings.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]))
        (folder / "movies.csv").write_text("movieId,title,genres\n7,Seven (1995),Crime\n")
    elif name == "netflix":
        by_item = frame.groupby("item")["user"].apply(list)
        half = len(by_item) // 2
        for number, some in enumerate((by_item.iloc[:half], by_item.iloc[half:]), start=1):
            text = ""
            for item, users in some.items():
                text += (
                    f"{item}:\n"
                    + "".join(f"{u},4,2005-09-06\n" for u in users)
                    + "1,3,2005-01-01\n"
                )
            (folder / f"combined_data_{number}.txt").write_text(text)
    else:
        text = "".join(f"u{u:04}\ts{i:04}\t1\n" for u, i in pairs)
        (folder / "train_triplets.txt").write_text(text)


@pytest.mark.parametrize("name", ["ml-20m", "netflix", "msd"])
def test_raw_files_are_split_by_name(tmp_path, held_out_few, name) -> None:
    frame = rows()
    write_raw(tmp_path / name, name, frame)
    if name == "netflix":  # its file is ordered by films
        frame = frame.sort_values(["item", "user"])
    if name == "msd":
        frame = frame.assign(
            user=[f"u{u:04}" for u in frame["user"]], item=[f"s{i:04}" for i in frame["item"]]
        )
    with pytest.warns(ItemfoldWarning, match="but the published split has"):
        data = ir.load(name, data_root=tmp_path)
    found = zip(
        data.user_ids.ids[data.users].tolist(),
        data.item_ids.ids[data.items].tolist(),
        data.user_parts.tolist(),
        strict=True,
    )
    assert {(u, i): p for u, i, p in found} == expected(frame, 10, 5, 2)
    split = ir.split_users(data)
    assert 0 < len(split.test) <= 10
    assert data.source == {"data": name, "data_root": str(tmp_path)}
    if name == "ml-20m":
        assert "Seven (1995)" in data.titles.tolist()


def test_a_folder_pro_sg_is_read_first(tmp_path, held_out_few) -> None:
    write_raw(tmp_path / "ml-20m", "ml-20m", rows())
    folder = tmp_path / "ml-20m" / "pro_sg"
    folder.mkdir()
    tables = {"train": "0,0\n0,1\n1,1", "test_tr": "5,0", "test_te": "5,1"}
    tables |= {"validation_tr": "4,1", "validation_te": "4,0"}
    for name, text in tables.items():
        (folder / f"{name}.csv").write_text(f"uid,sid\n{text}\n")
    with pytest.warns(ItemfoldWarning, match="'ml-20m' has 4 users and 2 items, but"):
        assert ir.load("ml-20m", data_root=tmp_path).n_users == 4


def test_missing_and_wrong_files_are_reported(tmp_path, held_out_few) -> None:
    for name, file in (
        ("ml-20m", "ratings.csv"),
        ("netflix", "combined_data_1"),
        ("msd", "train_"),
    ):
        with pytest.raises(ItemfoldError, match=f"put {file}.* from http.* into"):
            ir.load(name, data_root=tmp_path)
    (tmp_path / "netflix").mkdir()
    (tmp_path / "netflix" / "combined_data_1.txt").write_text("1:\n5,4\n")
    with pytest.raises(ItemfoldError, match=r"line 2: expected 'film:' or 'user,rating,date'"):
        ir.load("netflix", data_root=tmp_path)
    (tmp_path / "msd").mkdir()
    (tmp_path / "msd" / "train_triplets.txt").write_text("a b 1\n")
    with pytest.raises(ItemfoldError, match="line 1: expected user, song and plays"):
        ir.load("msd", data_root=tmp_path)
    write_raw(tmp_path / "ml-20m", "ml-20m", rows(n_users=12))
    with pytest.raises(ItemfoldError, match="expected more than 20 users with at least 5 items"):
        ir.load("ml-20m", data_root=tmp_path)
    with pytest.raises(ItemfoldError, match="'half_life' has no effect on 'ml-20m'"):
        ir.load("ml-20m", data_root=tmp_path, half_life="30d")
