"""What a table computes of its rows, by each way in which these come: the same rows on both engines, wrong values refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from duckrun import (
    AlterSpec,
    AppTransaction,
    InvalidConfig,
    MergeSpec,
    SchemaMismatch,
    UnsupportedFeature,
    UpdateSpec,
    WriteSpec,
)
from duckrun.errors import DuckrunError
from duckrun.session import Session
from duckrun.values.tables import ChangeType, DropColumn, RenameColumn
from tests.lake import rows_of

pytestmark = [pytest.mark.formats, pytest.mark.only_format("delta", "it has computed columns")]

TABLE = (
    "create table t (n bigint generated always as identity (start with 5 increment by 2), v int, "
    "w int generated always as (v * 3), d varchar default 'it''s')"
)
FILLED = [
    ("insert into t (v) values (1), (1)", [(5, 1, 3, "it's"), (7, 1, 3, "it's")]),
    ("insert into t (v, d) values (1, default), (2, 'own')", [(5, 1, 3, "it's"), (7, 2, 6, "own")]),
    ("insert into t values (default, 1, default, default)", [(5, 1, 3, "it's")]),
    ("insert into t (v, w) values (1, 3)", [(5, 1, 3, "it's")]),
    ("insert into t default values", [(5, None, None, "it's")]),
    ("insert into t by name select 4 as v", [(5, 4, 12, "it's")]),
    (
        "merge into t using (select 1 as v) s on t.v = s.v when not matched then insert (v) values (s.v)",
        [(5, 1, 3, "it's")],
    ),
    (
        "merge into t using (select 1 as v) s on t.v = s.v when not matched then insert (v, d, n, w) values (s.v, default, default, default)",
        [(5, 1, 3, "it's")],
    ),
    (
        "merge into t using (select 1 as v) s on t.v = s.v when not matched then insert values (default, s.v, default, 'own')",
        [(5, 1, 3, "own")],
    ),
    (
        "insert into t (v, d) values (1, 'own'); merge into t using (select 1 as v) s on t.v = s.v when matched then update set d = default, v = 2",
        [(5, 2, 6, "it's")],
    ),
    ("insert into t (v, d) values (1, 'own'); update t set d = default, v = 2, w = default", [(5, 2, 6, "it's")]),
    ("insert into t (v) values (1); update t set w = default", [(5, 1, 3, "it's")]),
    ("insert into t (v) values (1); update t set w = 6, v = 2", [(5, 2, 6, "it's")]),
]


@pytest.mark.parametrize(("statements", "rows"), FILLED)
def test_each_statement_fills_what_it_does_not_say(session: Session, statements: str, rows: list[object]) -> None:
    session.sql(TABLE)
    session.sql(statements)
    assert rows_of(session.sql("from t")) == rows


def test_a_frame_without_the_columns_is_filled_but_for_defaults(session: Session) -> None:
    session.sql(TABLE)
    session.execute(
        "main.t", WriteSpec("append", schema_mode="append_new_columns"), pa.table({"v": pa.array([1], "int32")})
    )
    assert rows_of(session.sql("select n, v, w from t")) == [(5, 1, 3)]


WRONG = [
    ("insert into t (v, w) values (2, 5)", SchemaMismatch, "w"),
    ("update t set w = 5", SchemaMismatch, "w"),
    ("update t set v = 7, w = 3", SchemaMismatch, "w"),
    ("merge into t using (select 2 as v) s on t.v = s.v when not matched then insert (v, w) values (2, 5)", SchemaMismatch, "w"),
    ("merge into t using (select 1 as v) s on t.v = s.v when matched then update set w = 5", SchemaMismatch, "w"),
    ("insert overwrite t (v, w) values (2, 5)", SchemaMismatch, "w"),
    ("insert into t (n, v) values (2, 5)", InvalidConfig, "n is GENERATED ALWAYS AS IDENTITY"),
    ("insert into t values (2, 5, 15, 'x')", InvalidConfig, "n is GENERATED ALWAYS AS IDENTITY"),
    ("update t set n = 5", InvalidConfig, "n is an identity column"),
    ("update t set n = default", InvalidConfig, "n is an identity column"),
    ("merge into t using (select 2 as v) s on t.v = s.v when not matched then insert (v, n) values (2, 5)", InvalidConfig, "n is GENERATED ALWAYS AS IDENTITY"),
    ("merge into t using (select 1 as v) s on t.v = s.v when matched then update set n = 5", InvalidConfig, "n, an identity column"),
    ("insert into t (v, n) values (1, default), (2, 5)", UnsupportedFeature, "n is computed by its table"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "kind", "said"), WRONG)
def test_a_wrong_value_is_refused_by_each_statement(
    duck: Session, statement: str, kind: type[DuckrunError], said: str
) -> None:
    duck.sql(TABLE)
    duck.sql("insert into t (v) values (1)")
    before = duck.table("t").snapshot().version
    with pytest.raises(kind, match=said):
        duck.sql(statement, dialect="spark" if "overwrite" in statement else "duckdb")
    assert duck.table("t").snapshot().version == before
    assert rows_of(duck.sql("from t")) == [(5, 1, 3, "it's")]


def test_a_wrong_value_of_a_frame_is_refused(duck: Session) -> None:
    duck.sql(TABLE)
    duck.sql("insert into t (v) values (1)")
    wrong = pa.table({"v": pa.array([1], "int32"), "w": pa.array([4], "int32"), "d": ["x"]})
    specs = (
        WriteSpec("append", schema_mode="append_new_columns"),
        WriteSpec("overwrite", schema_mode="append_new_columns"),
        MergeSpec(("v",)),
    )
    for spec in specs:
        with pytest.raises(SchemaMismatch, match="column w is generated"):
            duck.execute("main.t", spec, wrong)
    with pytest.raises(SchemaMismatch, match="column w is generated"):
        duck.execute("main.t", UpdateSpec({"w": "v"}))
    assert rows_of(duck.sql("from t")) == [(5, 1, 3, "it's")]


@pytest.mark.parametrize(
    ("column", "kind", "said"),
    [
        ("x int generated always as identity", SchemaMismatch, "numbers are bigint"),
        ("x bigint generated always as identity (increment by 0)", InvalidConfig, "not 0"),
        ("x int generated always as (nope)", SchemaMismatch, "nope"),
        ("x int generated always as (y), y int generated always as (v)", InvalidConfig, "computed too"),
        ("x timestamp generated always as (current_timestamp())", InvalidConfig, "another value each time"),
        ("x string generated always as (v)", SchemaMismatch, "v gives int"),
        ("x bigint generated always as (v * 3)", SchemaMismatch, "gives int"),
        ("x int generated always as (hash(v))", UnsupportedFeature, "hash.*engine: spark"),
        ("x int default (v)", InvalidConfig, "names a column"),
        ("x int default 'abc'", SchemaMismatch, "does not hold 'abc'"),
        ("x int default 99999999999", SchemaMismatch, "does not hold 99999999999"),
        ("x tinyint default -129", SchemaMismatch, "does not hold -129"),
        ("x date default '2024-02-30'", SchemaMismatch, "does not hold"),
        ("x double default rand()", UnsupportedFeature, "(?i)rand.*engine: spark"),
        ("x int default (select 1)", UnsupportedFeature, "engine: spark"),
        ("x int generated always as (v) default 1", InvalidConfig, "no default"),
    ],
)
def test_what_no_table_can_compute_is_refused_before_it_is_made(
    duck: Session, column: str, kind: type[DuckrunError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        duck.sql(f"create table t (v int, {column}) using delta", dialect="spark")
    assert not duck.tables()


@pytest.mark.parametrize(
    "change", [DropColumn("v"), RenameColumn("v", to="u"), ChangeType("v", "bigint"), DropColumn("V")]
)
def test_a_column_that_a_generated_one_reads_stays_as_it_is(duck: Session, change: DropColumn) -> None:
    duck.sql(TABLE)
    duck.sql("alter table t set tblproperties ('delta.columnMapping.mode' = 'name')", dialect="spark")
    with pytest.raises(InvalidConfig, match=r"main\.t: column 'v' cannot .* the generated column w \(v \* 3\)"):
        duck.execute("main.t", AlterSpec((change,)))
    with pytest.raises(InvalidConfig, match="generated column w"):
        duck.execute("main.t", WriteSpec("append", schema_mode="sync_all_columns"), pa.table({"d": ["x"]}))
    duck.execute("main.t", AlterSpec((DropColumn("w"),)))
    duck.execute("main.t", AlterSpec((change,)))


def test_a_frame_that_all_columns_follow_leaves_those_that_the_table_computes(session: Session) -> None:
    session.sql(TABLE)
    frame = pa.table({"v": pa.array([1], "int32"), "d": ["own"]})
    session.execute("main.t", WriteSpec("append", schema_mode="sync_all_columns"), frame)
    assert rows_of(session.sql("from t")) == [(5, 1, 3, "own")]
    session.execute("main.t", WriteSpec("append", schema_mode="sync_all_columns"), frame.drop(["d"]))
    assert sorted(rows_of(session.sql("from t"))) == [(5, 1, 3, "own"), (7, 1, 3, "it's")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("delta.columnMapping.maxColumnId", "3"),
        ("delta.rowTracking.materializedRowIdColumnName", "id"),
        ("delta.rowTracking.materializedRowCommitVersionColumnName", "id"),
        ("delta.inCommitTimestampEnablementVersion", "3"),
    ],
)
def test_what_commits_keep_is_not_set_by_hand(duck: Session, name: str, value: str) -> None:
    duck.sql("create table t (v int)")
    with pytest.raises(InvalidConfig, match=f"{name} is kept by the commits"):
        duck.sql(f"alter table t set tblproperties ('{name}' = '{value}')", dialect="spark")
    with pytest.raises(InvalidConfig, match=f"{name} is kept by the commits"):
        duck.sql(f"create table u (v int) using delta tblproperties ('{name}' = '{value}')", dialect="spark")


def test_a_default_is_given_changed_and_taken_by_alter(session: Session) -> None:
    session.sql("create table t (v int, d varchar)")
    for default in ("set default 'a'", "set default 'b'", "drop default"):
        session.sql(f"alter table t alter column d {default}")
        session.sql("insert into t (v) values (1)")
    assert rows_of(session.sql("from t")) == [(1, "a"), (1, "b"), (1, None)]


WRITER = """
import sys, duckrun
with duckrun.connect(sys.argv[1]) as s:
    for i in range(3):
        s.sql("insert into t (v) values (1), (2)")
"""


@pytest.mark.slow
def test_writers_at_once_give_no_number_twice(duck: Session, root: Path) -> None:
    duck.sql(TABLE)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(root)]) for _ in range(2)]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    numbers = [n for (n,) in rows_of(duck.sql("select n from t"))]
    assert sorted(numbers) == list(range(5, 5 + 2 * 12, 2))


def test_a_write_that_is_tried_again_numbers_its_rows_once(duck: Session) -> None:
    duck.sql(TABLE)
    batch = pa.table({"v": pa.array([1, 2], "int32")})
    for _ in range(2):
        spec = WriteSpec("append", schema_mode="append_new_columns", app=AppTransaction("job", 1))
        duck.execute("main.t", spec, batch)
    duck.execute("main.t", WriteSpec("append", schema_mode="append_new_columns"), iter_of(batch))
    assert sorted(rows_of(duck.sql("select n, v from t"))) == [(5, 1), (7, 2), (9, 1), (11, 2)]


def iter_of(batch: pa.Table) -> pa.RecordBatchReader:
    """A stream, which is read once."""
    return pa.RecordBatchReader.from_batches(batch.schema, iter(batch.to_batches()))
