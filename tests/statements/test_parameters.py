"""Values of parameters against DuckDB's own binding of them."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from duckrun import Commit, InvalidConfig, UnsupportedFeature
from duckrun.session import Session
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats

VALUES = [
    None, True, 0, -1, 2**31 - 1, -(2**31), 2**40, -(2**63), 1.5, -0.1, 1e300, Decimal("1.50"), Decimal("-0.001"), "it's", "", "a\\b\\n", "? $1 --",
    b"\x00a'", date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), [1, 2, None], (1, 2), ["it's"], {"a": 1, "it's": "x"},
]  # fmt: skip
EMBEDDED = [
    2**70, float("inf"), time(1, 2, 3), timedelta(days=1, microseconds=5), uuid.UUID(int=7), [], "a\0b",
    datetime(2024, 2, 29, 1, tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("value", [*VALUES, *EMBEDDED], ids=repr)
def test_a_value_has_the_type_and_value_that_duckdb_binds(duck: Session, value: Any) -> None:
    query = "select typeof(v) as kind, v::varchar as v from (select {} as v)"
    native = duckdb.connect().execute(query.format("?"), [value]).fetchall()
    assert rows_of(duck.sql(query.format("?"), params=[value])) == native
    assert rows_of(duck.sql(query.format("$x"), params={"X": value})) == native


def test_values_come_back_as_they_were_on_both_engines(session: Session) -> None:
    names = [f"c{at}" for at in range(len(VALUES))]
    [row] = session.sql("select " + ", ".join(f"? as {name}" for name in names), params=VALUES).collect()
    for name, value in zip(names, VALUES, strict=True):
        expected = list(value) if isinstance(value, tuple) else value
        assert row[name] == expected, name


def test_parameters_stand_in_every_statement(session: Session) -> None:
    session.sql("create table main.orders as select $id as id, $item as item", params={"id": 1, "item": "fig"})
    session.sql("insert into orders values (?, ?), (?, ?)", params=[2, "it's", 3, None])
    session.sql("update orders set item = $2 where id = $1", params=[3, "nut; --"])
    session.sql("delete from orders where item = ?", params=["fig"])
    commit = session.sql(
        "merge into orders t using (select $id as id, $item as item) n on t.id = n.id when matched then update set * "
        "when not matched then insert *",
        params={"id": 4, "item": "oat"},
    )
    assert isinstance(commit, Commit) and commit.rows_inserted == 1
    assert rows_of(session.sql("select * from orders where id > ? limit ?", params=[1, 9])) == [
        (2, "it's"), (3, "nut; --"), (4, "oat"),
    ]  # fmt: skip
    assert rows_of(session.sql("select count(*) from orders at (version => $1)", params=[nth(0)])) == [(1,)]
    assert rows_of(session.sql("select :a", params={"a": 5}, dialect="spark")) == [(5,)]


def test_question_marks_are_counted_through_the_whole_text(duck: Session) -> None:
    assert rows_of(duck.sql("create temp table t as select ? as a; select a, ?, '?' from t -- ?", params=[1, 2])) == [
        (1, 2, "?")
    ]
    assert "1" in str(duck.sql("explain select ?", params=[1]).collect())


_MOMENT, _PERIOD = datetime(2024, 2, 29, 1, 2, 3, 4), timedelta(days=1, microseconds=5)
OF_LIBRARIES = [
    (pa.scalar(3), 3), (np.int64(3), 3), (np.bool_(True), True), (np.float32(1.5), 1.5), (np.str_("NaT"), "NaT"),
    *((null, None) for null in (pd.NA, pd.NaT, np.datetime64("NaT"), np.datetime64("NaT", "ns"), np.timedelta64("NaT", "ns"), pa.scalar(None))),
    *((text, text) for text in ("NaT", "<NA>", "nan", "None", "NULL")),
    *((np.datetime64(_MOMENT).astype(f"M8[{unit}]"), _MOMENT) for unit in ("us", "ns")),
    *((np.timedelta64(_PERIOD).astype(f"m8[{unit}]"), _PERIOD) for unit in ("us", "ns")),
    (np.datetime64("2024-02-29"), date(2024, 2, 29)), (np.timedelta64(1, "W"), timedelta(days=7)),
    (pd.Timestamp(_MOMENT), _MOMENT), (pd.Timedelta(_PERIOD), _PERIOD), (pd.Series(pd.to_datetime([_MOMENT])).values[0], _MOMENT),
    (pa.scalar(1000, pa.timestamp("ns")), datetime(1970, 1, 1, 0, 0, 0, 1)), (pa.scalar(1000, pa.time64("ns")), time(0, 0, 0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("value", "plain"), OF_LIBRARIES, ids=repr)
def test_values_of_libraries_are_plain_ones(duck: Session, value: Any, plain: Any) -> None:
    query = "select typeof(v), v::varchar, typeof(w), w::varchar from (select ? as v, ? as w)"
    native = duckdb.connect().execute(query, [plain, [plain]]).fetchall()
    assert rows_of(duck.sql(query, params=[value, [value]])) == native


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *((value, "nanoseconds would be lost") for value in (
            pd.Timestamp("2024-01-01 00:00:00.123456789"), pd.Timedelta(1, "ns"), np.datetime64(1, "ns"), np.timedelta64(1, "ps"),
            pa.scalar(1, pa.timestamp("ns")), pa.scalar(1, pa.duration("ns")), pa.scalar(1, pa.time64("ns")),
        )),
        *((value, f"{type(value).__name__}, which has no literal") for value in (
            np.array([7]), np.array([1, 2]), np.ma.masked, pd.Series([7]), pd.Index([1, 2]), pd.array([7]), pd.DataFrame({"a": [7]}), pa.array([7]),
        )),
        *((value, "no datetime or timedelta of Python") for value in (
            np.timedelta64(5, "M"), np.timedelta64(5), np.datetime64("10000-01-01"), np.datetime64("-0001-01-01", "us"),
        )),
        ("a\ud800", "lone surrogate"), ({"a\udfff": 1}, "lone surrogate"), ({"a": "\udfff"}, "lone surrogate"),
    ],
    ids=lambda value: ascii(value) if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_a_value_that_would_change_is_refused_by_name(duck: Session, dialect: str, value: Any, said: str) -> None:
    with pytest.raises(UnsupportedFeature, match=said):
        duck.sql("select ?", params=[value], dialect=dialect)
    with pytest.raises(UnsupportedFeature, match=said):
        duck.sql("select ?", params=[[value]], dialect=dialect)


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("select ?", None, r"\$1 has no value: sql\(text, params=\[value"),
        ("select $a", None, r"\$a has no value: sql\(text, params=\{'name'"),
        ("select ?, ?", [1], r"\$2 has no value"),
        ("select ?", [1, 2], r"The text has no \$2"),
        ("select $day", {"dya": 1}, r"\$day has no value.*Did you mean 'dya'"),
        ("select $a", {"a": 1, "b": 2}, r"The text has no \$b"),
        ("select ?", "text", "params is a list of values, or a dict"),
        ("select ?", 3, "params is a list of values, or a dict"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(duck: Session, text: str, params: Any, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        duck.sql(f"create table t as select 1 as n; {text}", params=params)
    assert duck.tables() == []


def test_a_value_without_a_literal_is_refused_by_its_type(duck: Session) -> None:
    with pytest.raises(UnsupportedFeature, match=r"\$1 is a object"):
        duck.sql("select ?", params=[object()])
    with pytest.raises(UnsupportedFeature, match="128 bits"):
        duck.sql("select ?", params=[2**128])


@pytest.mark.parametrize(
    "text",
    [
        "prepare q as select ?",
        "PREPARE q(int) AS SELECT $1",
        "execute q(1)",
        "execute q",
        "deallocate q",
        "deallocate prepare q",
    ],
)
@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_prepared_statements_are_refused_by_name(duck: Session, text: str, dialect: str) -> None:
    word = text.split()[0].upper()
    with pytest.raises(UnsupportedFeature, match=rf"(?i){word}.* is not supported.*sql\(text, params="):
        duck.sql(f"create table t as select 1 as n; {text}", dialect=dialect)
    assert duck.tables() == []


_BESIDE_SIGNS = {
    "select '$', '?', '$1', \"a\" from (select 1 as a)": None,
    "select replace('a$', '$', '')": None,
    "select $$ $1 ? $$, $x$ it's ? $x$, '$' || $1": ["v"],
    "select ?::int, cast(? as int), -?, ?||?": [1, 2, 3, "a", "b"],
    "select 1 in ($1,$2) as r, $1+$2, [$1,$2] as l, {'a':$1}as s, $1::varchar || 'x', $1in($2)": [1, 2],
    "select 1where 2 in(?,?)and?": [1, 2, True],
    "select $a+$b, $a+$b as again, $_c1 -- $no\n /* ? /* $1 */ ? */": {"a": 1, "b": 2, "_c1": 3},
    "select 'é', '漢', $1,$2, '漢$3'": [1, "ü"],
    "select * from (values (?,?),(?,?)) v(a,b)": [1, "$", 2, "?"],
    "select 'a\\', ?, e'it\\'s ?', 'b'": [1],
}


@pytest.mark.parametrize(("text", "params"), _BESIDE_SIGNS.items(), ids=str)
def test_marks_are_those_that_duckdb_parts_off(duck: Session, text: str, params: Any) -> None:
    [statement] = duckdb.extract_statements(text)
    native = duckdb.connect().execute(statement, params).fetchall()
    assert rows_of(duck.sql(text, params=params)) == native


def test_marks_stand_beside_signs_in_every_statement(session: Session) -> None:
    session.sql("create table main.t as select $1::int as id,$2::varchar as cur", params=[1, "$"])
    session.sql("insert into main.t values ($1,$2),(?::int,'$')", params=[2, "€$", 3])
    session.sql("update main.t set cur=$2 where id in($1)", params=[1, "'$'"])
    session.sql("delete from main.t where id=$1", params=[2])
    session.sql("insert into main.t values (?::int,?)", params=[4, "?"], dialect="spark")
    assert rows_of(session.sql("select * from main.t where id in ($1,$2,?) order by id", params=[1, 3, 4])) == [
        (1, "'$'"),
        (3, "$"),
        (4, "?"),
    ]


def test_marks_of_commands_stand_beside_signs(duck: Session) -> None:
    assert "1" in str(duck.sql("explain select $1+$2", params=[1, 1]).collect())
