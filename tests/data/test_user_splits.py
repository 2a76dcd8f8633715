"""Published splits by users: read as they are, held out as given, rejected if mixed up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.describe import describe
from itemfold.data.splitting.user_parts import UserPart
from itemfold.errors import ItemfoldError
from itemfold.experiments.build import make_data, make_split, run_config

Likes = dict[int, list[int]]
PARTS = ("train", "valid_shown", "valid_hidden", "test_shown", "test_hidden")
STYLES = {
    "plain": PARTS,
    "mult-vae": ("train", "validation_tr", "validation_te", "test_tr", "test_te"),
    "rlae": ("train", "valid_in", "valid", "test_in", "test"),
    "arguments": ("train", "valid_shown", "valid_hidden", "shown", "hidden"),
}
SMALL: dict[str, Likes] = {
    "train": {n: [n % 5, (n + 1) % 5, (n + 2) % 5] for n in range(10)},
    "valid_shown": {20: [0, 1], 21: [2]},
    "valid_hidden": {20: [3], 21: [4, 0]},
    "test_shown": {30: [0], 31: [4, 3], 32: [1, 2]},
    "test_hidden": {30: [1, 4], 31: [0], 32: [3]},
}


def write(folder: Path, parts: dict[str, Likes], style: str = "plain", kind: str = "csv") -> Path:
    """The files of a split by users."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = ("uid", "sid") if style == "mult-vae" else ("user", "item")
    for part, name in zip(PARTS, STYLES[style], strict=True):
        if part not in parts:
            continue
        rows = [(user, item) for user, items in parts[part].items() for item in items]
        frame = pl.DataFrame(rows, schema=list(columns), orient="row")
        if kind == "txt":
            lines = [f"{user} {' '.join(map(str, i))}" for user, i in parts[part].items()]
            (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
        elif kind == "parquet":
            frame.write_parquet(folder / f"{name}.parquet")
        else:
            frame.write_csv(folder / f"{name}.{kind}", separator="\t" if kind == "tsv" else ",")
    return folder


def likes_of(matrix, ids, item_ids) -> dict[str, set[str]]:
    """The items of every row, by external ids as text."""
    return {
        str(user): {
            str(item_ids[i]) for i in matrix.indices[matrix.indptr[n] : matrix.indptr[n + 1]]
        }
        for n, user in enumerate(ids)
    }


def as_text(likes: Likes) -> dict[str, set[str]]:
    return {str(user): set(map(str, items)) for user, items in likes.items()}


def check_equal(split: ir.Split, parts: dict[str, Likes]) -> None:
    """The parts of a split are exactly those written."""
    items = split.item_ids.ids
    assert likes_of(split.train, split.user_ids.ids, items) == as_text(parts["train"])
    for name, held in (("valid", split.valid), ("test", split.test)):
        if f"{name}_shown" in parts:
            assert likes_of(held.history, held.ids, items) == as_text(parts[f"{name}_shown"])
            assert likes_of(held.target, held.ids, items) == as_text(parts[f"{name}_hidden"])


def error_of(folder: Path, **options) -> str:
    with pytest.raises(ItemfoldError) as caught:
        ir.read(folder, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "txt"])
def test_every_style_and_format_gives_the_same_split(tmp_path, style, kind) -> None:
    data = ir.read(write(tmp_path / "x", SMALL, style, kind), name="x")
    split = ir.split_users(data)
    check_equal(split, SMALL)
    assert (split.protocol, split.settings["test"], split.settings["valid"]) == (
        "inductive", "given", "given",
    )  # fmt: skip
    assert data.fingerprint == ir.read(write(tmp_path / "y", SMALL, "rlae", "txt")).fingerprint


@st.composite
def user_splits(draw) -> dict[str, Likes]:
    """Random parts with disjoint users and disjoint shown and hidden items."""
    out: dict[str, Likes] = {part: {} for part in PARTS}
    groups = draw(st.lists(st.sampled_from(["train", "valid", "test"]), min_size=3, max_size=12))
    groups[:3] = ["train", "valid", "test"]
    for user, group in enumerate(groups):
        items = draw(st.lists(st.integers(0, 8), min_size=2, max_size=6, unique=True))
        if group == "train":
            out["train"][user] = items if user else list(range(9))
        else:
            cut = draw(st.integers(1, len(items) - 1))
            out[f"{group}_shown"][user], out[f"{group}_hidden"][user] = items[:cut], items[cut:]
    return out


@settings(max_examples=40, deadline=None)
@given(user_splits(), st.sampled_from(list(STYLES)), st.sampled_from(["csv", "txt", "parquet"]))
def test_reading_and_splitting_return_what_was_written(
    tmp_path_factory, parts, style, kind
) -> None:
    data = ir.read(write(tmp_path_factory.mktemp("split"), parts, style, kind))
    check_equal(ir.split_users(data, seed=3), parts)
    moved = np.where(data.user_parts == UserPart.TEST_HIDDEN, UserPart.TEST_SHOWN, data.user_parts)
    other = ir.Interactions(
        data.users, data.items, data.user_ids, data.item_ids, user_parts=moved.astype(np.int8)
    )
    assert other.fingerprint != data.fingerprint


def test_tables_in_memory_and_files_can_be_mixed(tmp_path) -> None:
    folder = write(tmp_path, SMALL)
    frames = {part: pl.read_csv(folder / f"{part}.csv") for part in PARTS}
    data = ir.read_user_split(
        folder / "train.csv",
        frames["test_shown"],
        frames["test_hidden"].to_pandas(),
        frames["valid_shown"].to_arrow(),
        str(folder / "valid_hidden.csv"),
    )
    check_equal(ir.split_users(data), SMALL)
    assert data.fingerprint == ir.read(folder).fingerprint
    with pytest.raises(ItemfoldError, match=r"'valid_hidden' is missing.*only 'valid_shown'"):
        ir.read_user_split(
            frames["train"], frames["test_shown"], frames["test_hidden"], frames["valid_shown"]
        )
    with pytest.raises(ItemfoldError, match=r"'shown' must be a file.*got int"):
        ir.read_user_split(frames["train"], 3, frames["test_hidden"])


def test_text_and_integer_ids_of_different_files_are_compared_as_text(tmp_path) -> None:
    folder = write(tmp_path, {part: SMALL[part] for part in ("train", "test_shown")})
    (folder / "test_hidden.csv").write_text("user,item\n30,new\n31,0\n32,3\n")
    split = ir.split_users(ir.read(folder))
    assert split.test.ids.tolist() == [30, 31, 32]
    assert "new" in split.item_ids.ids.tolist()  # a published target is kept, trained or not
    assert "Items without a training interaction: 1." in split.notes


def test_without_a_validation_part_users_are_held_out_of_training(tmp_path) -> None:
    parts = {part: SMALL[part] for part in ("train", "test_shown", "test_hidden")}
    data = ir.read(write(tmp_path, parts))
    split = ir.split_users(data, seed=1, valid=0.2, fold_in=0.7, rounding="nearest")
    assert split.settings == {
        "strategy": "users", "seed": 1, "valid": 0.2, "test": "given", "fold_in": 0.7,
        "unseen_items": "keep", "rounding": "nearest",
    }  # fmt: skip
    assert (split.n_users, len(split.valid)) == (8, 2)
    both = split.valid.history + split.valid.target
    whole = likes_of(both.tocsr(), split.valid.ids, split.item_ids.ids)
    trained = likes_of(split.train, split.user_ids.ids, split.item_ids.ids)
    assert trained | whole == as_text(SMALL["train"])
    assert (np.diff(split.valid.history.indptr) == 2).all()  # 0.7 of three items
    other = ir.split_users(data, seed=2, valid=0.2)
    assert other.valid.ids.tolist() != split.valid.ids.tolist()
    assert other.test.ids.tolist() == split.test.ids.tolist()
    drawn = [ir.split_users(data, seed=n, valid=0.4, fold_in=0.5).valid.history for n in range(9)]
    assert {*np.concatenate([np.diff(part.indptr) for part in drawn])} == {1, 2}  # of three items


def test_a_run_records_what_repeats_it(tmp_path) -> None:
    folder = write(tmp_path / "d", SMALL, "rlae", "txt")
    request = {"data": {"data": str(folder)}, "model": {"name": "ease"}}
    run = run_config(request, tmp_path / "run")
    assert run.protocol == "inductive"
    assert run.metrics["users"]["judged"] == 3
    stored = ir.Run.load(tmp_path / "run").config
    assert stored["split"] | {"seed": 0} == {
        "strategy": "users", "seed": 0, "valid": "given", "test": "given", "fold_in": "given",
        "unseen_items": "keep", "rounding": "nearest",
    }  # fmt: skip
    data = make_data(stored)
    assert data.fingerprint == run.dataset["fingerprint"]
    check_equal(make_split(stored, data), SMALL)
    plain = ir.load("synthetic:users=60,items=80,interactions=900")
    with pytest.raises(
        ItemfoldError, match=r"'split.valid' is .given., but 'synthetic' has no test users"
    ):
        make_split(stored, plain)


def test_a_folder_of_a_split_is_not_prepared_as_one_table(tmp_path) -> None:
    folders = [write(tmp_path / style, SMALL, style, "csv") for style in STYLES]
    folders.append(write(tmp_path / "files", {"train": SMALL["train"]}, "rlae"))
    (tmp_path / "files" / "test.csv").write_text("user,item\n0,4\n")
    for folder in folders:
        with pytest.raises(ItemfoldError, match="which `prepare` would join with the training"):
            ir.prepare(folder, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    ir.prepare(tmp_path / "files" / "train.csv", tmp_path / "out")


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ({10: [4], 11: [2]}, "no test user of .* has a training interaction"),
        ({0: [1], 1: [2]}, "every test interaction of .* is a training interaction, too"),
    ],
)
def test_a_test_part_that_cannot_be_judged_is_an_error(tmp_path, test, message) -> None:
    folder = write(tmp_path, {"train": SMALL["train"], "test_hidden": test}, "rlae")
    with pytest.raises(ItemfoldError, match=message):
        ir.split_interactions(ir.read(folder))


def test_other_strategies_say_that_the_given_users_are_not_used(tmp_path) -> None:
    data = ir.read(write(tmp_path, SMALL))
    note = f"The split by users that {data.name!r} comes with is not used."
    assert note in ir.split_interactions(data).notes
    assert note not in ir.split_users(data).notes
    assert note not in ir.keep_all(data).notes  # which holds nothing out


def test_original_item_ids_replace_the_numbers_of_mult_vae(tmp_path) -> None:
    folder = write(tmp_path, SMALL, "mult-vae")
    (folder / "unique_sid.txt").write_text("100\n90\n80\n70\n60\n")
    data = ir.read(folder)
    names = {part: {u: [100 - 10 * i for i in items] for u, items in likes.items()}
             for part, likes in SMALL.items()}  # fmt: skip
    check_equal(ir.split_users(data), names)
    (folder / "unique_sid.txt").write_text("100\n90\n80\n70\n")
    assert "item 4 is not a line of unique_sid.txt, which lists items 0 to 3" in error_of(folder)
    (folder / "unique_sid.txt").write_text("1\n1\n80\n70\n60\n")
    assert "item '1' has two lines" in error_of(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_hidden": {30: [0, 1], 31: [0], 32: [3]}}, "item 0 of user 30 is also in"),
        ({"test_shown": {30: [0], 31: [4], 32: [1], 3: [1]}}, "user 3 is also in"),
        ({"valid_shown": {20: [0], 21: [2], 30: [1]}}, "user 30 is also in"),
        ({"test_shown": {30: [0], 31: [4]}}, "user 32 has hidden items but no shown ones in"),
        ({"test_hidden": None}, "test_hidden.csv is missing"),
        ({"valid_shown": None}, "valid_shown.csv is missing"),
        ({"train": None}, "train.csv is missing"),
        ({"test_shown": None, "test_hidden": None}, "test_shown.csv is missing"),
        ({"test_hidden": {}}, "no rows"),
        ({"test_hidden": {30: [77], 31: [78], 32: [79]}}, "no item is in"),
    ],
)
def test_mixed_up_folders_are_rejected(tmp_path, change, message) -> None:
    parts = {part: likes for part, likes in (SMALL | change).items() if likes is not None}
    assert message in error_of(write(tmp_path, parts))


def test_shown_and_hidden_files_that_look_swapped_are_reported(tmp_path) -> None:
    test = {"test_shown": {30: [0], 31: [4]}, "test_hidden": {30: [1, 4], 31: [0, 1, 2]}}
    data = ir.read(write(tmp_path / "swapped", {**SMALL, **test}))
    note = "Of the items of test users, 2 are shown and 5 hidden: have the two files been swapped?"
    assert note in make_split({}, data).notes
    assert note in describe(data).warnings
    data = ir.read(write(tmp_path / "right", SMALL))
    assert "swapped" not in " ".join((*make_split({}, data).notes, *describe(data).warnings))


def test_unclear_folders_are_rejected(tmp_path) -> None:
    folder = write(tmp_path / "two", SMALL)
    write(folder, SMALL, "mult-vae", "parquet")
    assert "has files of two splits by users" in error_of(folder)
    folder = write(tmp_path / "twice", SMALL)
    write(folder, {"train": SMALL["train"]}, kind="parquet")
    assert "expected one file 'train', found train.csv and train.parquet" in error_of(folder)
    folder = write(tmp_path / "text", SMALL, "rlae", "txt")
    assert "'user' needs a file with columns" in error_of(folder, user="who")
    assert "'skip_bad_rows' needs a file with columns" in error_of(folder, skip_bad_rows=True)
    assert "is one part of a split; pass the folder" in error_of(folder / "test_in.txt")
    (folder / "test.txt").write_text("30 1 4\n30 0\n")
    assert "user 30 already has line 1" in error_of(folder)
    (folder / "test.txt").write_text("")
    assert "the file is empty" in error_of(folder)


def test_a_hidden_item_is_no_new_data_for_an_update(tmp_path) -> None:
    from itemfold.training.new_data import read_new

    data = read_new({}, str(write(tmp_path, SMALL)), {})
    assert data is not None
    hidden = sum(len(i) for p in ("valid_hidden", "test_hidden") for i in SMALL[p].values())
    total = sum(len(items) for likes in SMALL.values() for items in likes.values())
    assert len(data) == total - hidden
