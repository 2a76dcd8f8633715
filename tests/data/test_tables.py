"""Tables that are neither one file nor one frame: parquet patterns, Arrow tables, DuckDB."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import itemfold as ir
from itemfold.cli.app import app

DATA = ir.load("synthetic:users=60,items=80,interactions=900")
FRAME = pl.DataFrame(
    {
        "user_id": DATA.users.astype(np.int64),
        "item_id": DATA.items.astype(np.int64),
        "time": DATA.times,
    }
)
WHOLE = ir.read(FRAME)


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    """The data in three files of a folder."""
    folder = tmp_path / "plays"
    folder.mkdir()
    for n in range(3):
        FRAME[n::3].write_parquet(folder / f"part-{n}.parquet")
    return folder


def same(found: ir.Interactions) -> bool:
    return found.fingerprint == WHOLE.fingerprint and np.array_equal(found.times, WHOLE.times)


def test_a_pattern_reads_all_files_that_match(parts: Path) -> None:
    found = ir.read(parts / "*.parquet")
    assert same(found)
    assert found.name == "plays"
    assert len(ir.read(parts / "part-[01].parquet")) == len(FRAME[0::3]) + len(FRAME[1::3])
    assert same(ir.load(f"{parts}/part-*.parquet"))


def test_a_folder_of_parquet_files_is_read_as_one_table(parts: Path) -> None:
    assert same(ir.read(parts))


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(parts: Path) -> None:
    FRAME.head(10).write_parquet(parts / "odd[0].parquet")
    assert len(ir.read(parts / "odd[0].parquet")) == 10


def test_parts_may_differ_in_the_order_of_columns_and_the_width_of_numbers(parts: Path) -> None:
    path = parts / "part-1.parquet"
    narrow = pl.read_parquet(path).select("time", "item_id", pl.col("user_id").cast(pl.Int32))
    narrow.write_parquet(path)
    assert same(ir.read(parts / "*.parquet"))


@pytest.mark.parametrize(
    ("spoil", "pattern", "sentence"),
    [
        (lambda f: None, "nothing*.parquet", "no file matches this pattern"),
        (lambda f: None, "*.csv", "no file matches this pattern"),
        (
            lambda f: FRAME.drop("time").write_parquet(f / "part-1.parquet"),
            "*.parquet",
            "part-1.parquet: expected the columns of part-0.parquet, user_id, item_id, time",
        ),
        (
            lambda f: FRAME.cast({"item_id": pl.String}).write_parquet(f / "part-1.parquet"),
            "*.parquet",
            "part-1.parquet: column 'item_id' is text in this file or in part-0.parquet, but not",
        ),
        (
            lambda f: FRAME.with_columns(time=pl.lit([1])).write_parquet(f / "part-1.parquet"),
            "*.parquet",
            "a column has different types in these files",
        ),
        (
            lambda f: (f / "part-2.parquet").write_bytes(b"PAR1 nonsense"),
            "*.parquet",
            "part-2.parquet: the parquet file is truncated",
        ),
    ],
)
def test_problems_name_the_file(parts: Path, spoil, pattern: str, sentence: str) -> None:
    spoil(parts)
    with pytest.raises(ir.ItemfoldError) as error:
        ir.read(parts / pattern)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_the_command_line_trains_on_a_pattern_and_evaluates_the_run_again(
    parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(parts.parent)
    done = CliRunner().invoke(app, ["train", "plays/*.parquet", "--model", "ease"])
    assert done.exit_code == 0, done.output
    (folder,) = Path("runs").iterdir()
    assert folder.name == "plays-transductive-ease-0"
    again = CliRunner().invoke(app, ["evaluate", str(folder), "--json"])
    assert again.exit_code == 0, again.output
    FRAME.head(5).with_columns(item_id=pl.lit(999)).write_parquet(parts / "part-9.parquet")
    changed = CliRunner().invoke(app, ["evaluate", str(folder)])
    assert changed.exit_code == 2
    assert "is not the data of this run" in changed.output.replace("\n", " ")


@pytest.mark.parametrize(
    "table",
    [
        FRAME.to_arrow(),
        pa.RecordBatchReader.from_batches(FRAME.to_arrow().schema, FRAME.to_arrow().to_batches()),
        FRAME.to_arrow().combine_chunks().to_batches()[0],
    ],
    ids=lambda table: type(table).__name__,
)
def test_arrow_tables_are_read(table: object) -> None:
    if not hasattr(table, "__arrow_c_stream__"):  # a single batch has no stream
        table = pa.Table.from_batches([table])
    assert same(ir.read(table))


DUCK = """
import sys
import duckdb
import itemfold as ir
with duckdb.connect() as connection:
    plays = connection.read_parquet(sys.argv[1])
    renamed = connection.sql("select item_id as track, user_id as listener, time from plays")
    print(ir.read(renamed, user="listener", item="track").fingerprint)
    few = connection.sql("select user_id, item_id from plays where item_id < 10")
    print(*sorted(ir.read(few).item_ids.ids.tolist()))
"""


def test_a_duckdb_relation_is_read(tmp_path: Path) -> None:
    if find_spec("duckdb") is None:  # not imported here: it reports leaks of its own at the end
        pytest.skip("duckdb is not installed: pip install duckdb")
    path = tmp_path / "plays.parquet"
    FRAME.write_parquet(path)
    command = [sys.executable, "-c", DUCK, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fingerprint, few = done.stdout.splitlines()
    assert fingerprint == WHOLE.fingerprint
    found = FRAME.filter(pl.col("item_id") < 10)["item_id"].unique().sort().to_list()
    assert few.split() == [str(item) for item in found]


def test_arrow_columns_with_gaps_are_reported_by_row() -> None:
    table = pa.table({"user_id": [1, None, 3], "item_id": [1, 2, 3]})
    with pytest.raises(ir.ItemfoldError, match="row 2"):
        ir.read(table)
    assert len(ir.read(table, skip_bad_rows=True)) == 2
