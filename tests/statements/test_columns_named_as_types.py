"""Columns whose names are words of SQL that sqlglot reads as types or functions, beside plain DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from duckrun.session import Session
from tests.lake import rows_of

pytestmark = pytest.mark.formats
CHANGES = (
    "update t set x = {0} + 1 where {0} < 3",
    "update t set {0} = {0} * 2, x = 7 where {0} <= 3 and {0}<>2",
    "merge into t using (select 2 as id, 7 as n) as s on t.id = s.id when matched and t.{0} < 9 then update set {0} = s.n",
    "delete from t where {0} > 6 or {0} <0",
    "update t set x = -1 where {0} is not null and {0} in (1, 2, 3)",
)


@pytest.mark.parametrize(
    "word", ["range", "Map", "struct", "list", "row", "if", "first", "values", "interval", "union"]
)
def test_a_column_of_that_name_is_changed_as_plain_duckdb_changes_it(duck: Session, word: str) -> None:
    with duckdb.connect() as plain:
        for run in (plain.execute, duck.sql):
            run(f'create table t as select id, id as "{word}", 0 as x from range(5) as r(id)')
        for change in CHANGES:
            try:
                plain.execute(change.format(word))
            except duckdb.ParserException:
                continue  # a reserved word
            duck.sql(change.format(word))
            assert rows_of(duck.sql("from t")) == rows_of(plain.execute("from t").to_arrow_table()), change


def test_frames_of_windows_and_types_are_what_they_were(duck: Session) -> None:
    duck.sql("create table t as select 1 as id, 0 as n")
    duck.sql(
        "update t set n = (select sum(x) over (order by x range between 1 preceding and current row) from (values (3)) as v(x)) "
        "where list_value(1) < list_value(2) and map {1: 2} <> map {1: 3} and struct_pack(a := 1) < row(2)"
    )
    assert rows_of(duck.sql("from t")) == [(1, 3)]


@pytest.mark.parametrize("word", ["case", "end", "CASE", "End"])
def test_a_qualified_column_of_that_name_opens_and_closes_no_case(duck: Session, word: str) -> None:
    with duckdb.connect() as plain:
        for change in (
            f'create table t as select id, id as "{word}", 0 as x from range(5) as r(id)',
            f"update t set x = t.{word} where t.id > 2",
            f"update t set x = case when t.{word} = 1 then t. {word} else 5 end where t.id < 3",
            f'merge into t using (select 2 as "{word}") s on t.id = s.{word} when matched then update set x = s.{word} + 7',
            f"delete from t where t.{word} = 4 or t.x = 9 and t.id = 3",
            f"insert into t select t.{word} + 10, t.{word}, t.x from t where t.{word} = 1",
        ):
            plain.execute(change)
            duck.sql(change)
            assert rows_of(duck.sql("from t")) == rows_of(plain.execute("from t").to_arrow_table()), change
