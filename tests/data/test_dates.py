"""Dates in the forms that people write, against `datetime.strptime`; uncertain ones are errors."""

import datetime as dt
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import itemfold as ir
from itemfold.data.columns.dates import date_seconds, day_first_of

FORMS = (
    "%d.%m.%Y",
    "%d.%m.%y",
    "%d.%m.%Y %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%b %d, %Y",
    "%B %d, %Y %I:%M %p",
    "%d %b %Y %H:%M:%S",
    "%d-%b-%Y",
    "%a, %d %b %Y %H:%M:%S +0000",
    "%m %d, %Y",
    "%a %b %d %H:%M:%S +0000 %Y",
    "%c",
)
MOMENTS = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2067, 12, 31))


@pytest.mark.parametrize("form", FORMS)
@given(moment=MOMENTS)
def test_certain_forms_are_those_of_strptime(form: str, moment: dt.datetime) -> None:
    text = moment.strftime(form)
    expected = dt.datetime.strptime(text.replace(" +0000", ""), form.replace(" +0000", ""))
    assert date_seconds(text) == expected.replace(tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%m/%d/%Y", "%d-%m-%y", "%m/%d/%y %I:%M:%S %p"])
@given(moments=st.lists(MOMENTS, min_size=1, max_size=20))
def test_the_order_of_a_column_is_found_or_an_error(form: str, moments: list[dt.datetime]) -> None:
    texts = [moment.strftime(form) for moment in moments]
    days = [moment.day for moment in moments]
    if max(days) <= 12 and any(m.day != m.month for m in moments):
        with pytest.raises(ir.ItemfoldError, match="plays: the times could be day/month or month"):
            day_first_of(texts, "plays")
        return
    order = day_first_of(texts, "plays")
    assert order in ((form[1] == "d",) if max(days) > 12 else (None,))
    for text in texts:
        expected = dt.datetime.strptime(text, form).replace(tzinfo=dt.UTC)
        assert date_seconds(text, order) == expected.timestamp()


@pytest.mark.parametrize(
    "text",
    ["31.02.2024", "13/13/2024", "1.5", "2.0.1", "Foo 3, 2024", "1/2/2024 13:00 PM", "3/4/24"],
)
def test_other_texts_are_no_dates(text: str) -> None:
    with pytest.raises(ValueError):
        date_seconds(text)


def test_an_offset_is_taken_off() -> None:
    assert date_seconds("Thu, 01 Jan 1970 02:00:00 +0200") == 0
    assert date_seconds("1970/01/01 00:00:00-01:30") == 5400
    assert date_seconds("Wed Dec 31 16:00:00 -0800 1969") == 0


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        (("3/4/2024", "5/6/2024"), "could be day/month or month/day, such as '3/4/2024'"),
        (("13/4/2024", "4/13/2024"), "one order of day and month, got '13/4/2024' and '4/13/2024'"),
    ],
)
def test_uncertain_dates_are_not_used_and_said_so(
    tmp_path: Path, days: tuple[str, str], problem: str
) -> None:
    path = tmp_path / "plays.csv"
    path.write_text("user,item,date\n" + "".join(f"{n},{n},{day}\n" for n, day in enumerate(days)))
    data = ir.read(path)
    assert data.times is None
    assert problem in data.left_out["time"]
    with pytest.raises(ir.ItemfoldError, match="write dates like 2024-01-31"):
        ir.read(path, time="date")
    pytest.importorskip("duckdb")
    with pytest.raises(ir.ItemfoldError, match=problem.partition(",")[0]):
        ir.prepare(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
