"""Changes of definitions that one ALTER combines, or that reach a field: by both formats, and by its own rules of each."""

from __future__ import annotations

from typing import Any

import pytest

import duckrun
from duckrun import SQL, InvalidConfig, SchemaMismatch, Session, UnsupportedFeature, WriteSpec
from duckrun.values.tables import (
    AddColumn,
    AlterSpec,
    Change,
    ChangeType,
    ColumnSpec,
    DropColumn,
    InStruct,
    PartitionBy,
    RenameColumn,
)
from tests.lake import rows_of

MAPPED = "'delta.columnMapping.mode' = 'name'"


def add(name: str, kind: str = "INT", **more: Any) -> AddColumn:
    return AddColumn(ColumnSpec(name, kind, **more))


def field(*path: str) -> Any:
    """A change of a field at a path."""
    return lambda change: InStruct(path, change)


TOGETHER: dict[str, tuple[tuple[Change, ...], list[str], tuple[Any, ...]]] = {
    "a new column gets another name": ((add("n"), RenameColumn("n", "m")), ["id", "s", "m"], (1, {"a": 2}, None)),
    "a new column is dropped": ((add("n"), DropColumn("n")), ["id", "s"], (1, {"a": 2})),
    "a new column is widened": ((add("n"), ChangeType("n", "BIGINT")), ["id", "s", "n"], (1, {"a": 2}, None)),
    "a new column's field gets another name": (
        (add("n", "STRUCT(x INT)"), field("n")(RenameColumn("x", "y")), RenameColumn("n", "m")),
        ["id", "s", "m"],
        (1, {"a": 2}, None),
    ),
    "a name is given again": ((DropColumn("id"), add("id")), ["s", "id"], ({"a": 2}, None)),
    "a name is given on": ((RenameColumn("id", "old"), add("id")), ["old", "s", "id"], (1, {"a": 2}, None)),
    "a column takes the name of a dropped one": (
        (add("n"), DropColumn("id"), RenameColumn("n", "id")),
        ["s", "id"],
        ({"a": 2}, None),
    ),
    "names are exchanged": (
        (RenameColumn("id", "x"), RenameColumn("s", "id"), RenameColumn("x", "s")),
        ["s", "id"],
        (1, {"a": 2}),
    ),
    "a new field gets another name": (
        (field("s")(add("n")), field("s")(RenameColumn("n", "m"))),
        ["id", "s"],
        (1, {"a": 2, "m": None}),
    ),
    "a column with a new field gets another name": (
        (field("s")(add("n")), RenameColumn("s", "t"), field("t")(RenameColumn("a", "b"))),
        ["id", "t"],
        (1, {"b": 2, "n": None}),
    ),
}


@pytest.mark.parametrize("case", TOGETHER)
@pytest.mark.parametrize("form", ["delta", "ducklake"])
def test_changes_of_one_alter_build_on_each_other(tmp_path: Any, form: str, case: str) -> None:

    changes, names, row = TOGETHER[case]
    with duckrun.connect(tmp_path, format=form) as lake:
        properties = f" tblproperties ({MAPPED})" if form == "delta" else ""
        lake.sql(f"create table t (id int, s struct<a: int>){properties}", dialect="spark")
        lake.sql("insert into t values (1, {'a': 2})")
        lake.execute("t", AlterSpec(changes))
        assert lake.table("t").snapshot().schema.names == names
        assert rows_of(lake.sql("from t")) == [row]
    with duckrun.connect(tmp_path, format=form) as other:
        assert rows_of(other.sql("from t")) == [row]


@pytest.mark.parametrize("form", ["delta", "ducklake"])
def test_rows_without_any_column_of_the_table_replace_them_all(tmp_path: Any, form: str) -> None:

    with duckrun.connect(tmp_path, format=form) as lake:
        lake.sql("create table t as select 1 as a")
        lake.execute("t", WriteSpec("append", schema_mode="sync_all_columns"), SQL("select 2 as b"))
        assert lake.table("t").snapshot().schema.names == ["b"]
        assert sorted(rows_of(lake.sql("from t")), key=str) == [(2,), (None,)]


@pytest.mark.parametrize("form", ["delta", "ducklake"])
def test_descriptions_find_their_columns_in_any_case(tmp_path: Any, form: str) -> None:
    with duckrun.connect(tmp_path, format=form) as lake:
        lake.sql("create table t as select 1 as Id, 2 as b")
        definition = lake.lake.format.definition(lake.table("t").snapshot())
        after = definition.described("of t", {"iD": "a number", "gone": "no column"})
        assert after is not None
        assert after.description == "of t"
        assert [field["metadata"].get("comment") for field in after.fields] == ["a number", None]
        assert after.described("of t", {"ID": "a number"}) is None
        with pytest.raises(SchemaMismatch, match="a comment is for the column 'gone', which the data does not have"):
            definition.commented({"gone": "no column"})


def test_a_ducklake_column_that_partitioned_the_table_leaves_it(lake_session: Session) -> None:
    lake_session.sql("create table t (id int, kind varchar) partitioned by (kind); insert into t values (1, 'a')")
    lake_session.execute("t", AlterSpec((PartitionBy(("id",)), DropColumn("kind"))))
    assert rows_of(lake_session.sql("from t")) == [(1,)]


@pytest.fixture
def lake_session(tmp_path: Any) -> Any:

    with duckrun.connect(tmp_path / "ducklake", format="ducklake") as session:
        yield session


# -- clustering


@pytest.mark.only_format("delta", "liquid clustering")
def test_clustering_follows_a_field_to_another_name(duck: Session) -> None:
    duck.sql(
        f"create table t (id int, s struct<d: struct<x: int, y: int>>) cluster by (s.d.x) tblproperties ({MAPPED})",
        dialect="spark",
    )
    duck.sql("insert into t values (1, {'d': {'x': 1, 'y': 2}})")
    duck.sql("alter table t rename column s.d.x to z")
    duck.sql("alter table t rename column s.d to e; alter table t rename column s to t")
    assert duck.table("t").snapshot().cluster_by == (("t", "e", "z"),)
    for path in ("t.e.z", "t.e", "t"):
        with pytest.raises(InvalidConfig, match=f"column {path!r} cannot be dropped: it is used by the clustering"):
            duck.sql(f"alter table t drop column {path}")
    duck.sql("insert into t values (2, {'e': {'z': 3, 'y': 4}}); optimize t")
    assert rows_of(duck.sql("select t.e.z from t order by id")) == [(1,), (3,)]


# -- limits of strings

LIMITED = (
    "id int, v varchar(3), s struct<a: varchar(2), d: struct<x: char(2)>, n: int>, l array<struct<k: varchar(2)>>, "
    "w array<varchar(2)>"
)


@pytest.fixture
def limited(duck: Session) -> Session:
    """A table whose strings have limits."""
    duck.sql(f"create table t ({LIMITED}) using delta tblproperties ({MAPPED})", dialect="spark")
    duck.sql("insert into t values (1, 'v', {'a': 'aa', 'd': {'x': 'x'}, 'n': 1}, [{'k': 'kk'}], ['ww'])")
    return duck


def refused(session: Session, text: str) -> None:
    with pytest.raises(SchemaMismatch, match="CHAR.*cannot hold the value"):
        session.sql(text)


@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_alter_keeps_and_changes_the_limits_of_fields(limited: Session) -> None:
    def alter(change: str) -> None:
        limited.sql(f"alter table t {change}", dialect="spark")

    alter("add column s.b varchar(1)")
    alter("add column l.element.m varchar(1)")
    alter("rename column s.a to aa")
    alter("drop column s.n")
    alter("alter column s.d.x type string")
    alter("alter column l.element.k type varchar(3)")
    row = "{{'aa': '{0}', 'd': {{'x': 'xxxxx'}}, 'b': '{1}'}}, [{{'k': '{2}', 'm': '{3}'}}], ['ww']"
    limited.sql(f"insert into t values (2, 'v', {row.format('aa', 'b', 'kkk', 'm')})")
    for wrong in (("aaa", "b", "k", "m"), ("a", "bb", "k", "m"), ("a", "b", "kkkk", "m"), ("a", "b", "k", "mm")):
        refused(limited, f"insert into t values (3, 'v', {row.format(*wrong)})")
    for change in ("alter column s.aa type varchar(1)", "alter column s.d.x type varchar(9)"):
        with pytest.raises(
            SchemaMismatch, match=r"column s\..* cannot become varchar\(.\): .* holds values that it does not"
        ):
            alter(change)
    assert rows_of(limited.sql("select s, l from t order by id")) == [
        ({"aa": "aa", "d": {"x": "x"}, "b": None}, [{"k": "kk", "m": None}]),
        ({"aa": "aa", "d": {"x": "xxxxx"}, "b": "b"}, [{"k": "kkk", "m": "m"}]),
    ]


@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_limits_inside_a_list_are_widened_with_its_type(limited: Session) -> None:
    limited.sql("alter table t alter column w type array<varchar(4)>", dialect="spark")
    limited.sql("update t set w = ['wwww']")
    refused(limited, "update t set w = ['wwwww']")
    with pytest.raises(SchemaMismatch, match="column w cannot become"):
        limited.sql("alter table t alter column w type array<varchar(3)>", dialect="spark")
    limited.sql("alter table t alter column w type array<string>", dialect="spark")
    limited.sql("update t set w = ['wwwww']")


@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_rows_with_new_fields_leave_the_limits_of_a_struct(limited: Session) -> None:
    rows = "select 2 as id, {{'a': '{0}', 'd': {{'x': 'x'}}, 'n': 1, 'new': 'longer'}} as s"
    grow = WriteSpec("append", schema_mode="append_new_columns")
    limited.execute("t", grow, SQL(rows.format("aa")))
    assert rows_of(limited.sql("select s.a, s.new, s.d.x from t where id = 2")) == [("aa", "longer", "x ")]
    with pytest.raises(SchemaMismatch, match="cannot hold the value"):
        limited.execute("t", grow, SQL(rows.format("aaa")))


@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_a_field_of_a_delta_table_has_no_default(limited: Session) -> None:
    change = field("s")(add("b", default="1"))
    with pytest.raises(UnsupportedFeature, match=r"field s\.b cannot have a default"):
        limited.execute("t", AlterSpec((change,)))


@pytest.mark.spark
@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_spark_refuses_to_change_limits_that_its_own_statement_would_lose(limited: Session, spark: Any) -> None:
    with duckrun.connect(limited.lake.root, engine="spark", spark=spark) as other:
        for change in ("add column s.b varchar(1)", "rename column s.a to aa", "drop column s.n"):
            with pytest.raises(
                UnsupportedFeature, match=r"(?s)main\.t.*limits of the strings in column s.*engine: duckdb"
            ):
                other.sql(f"alter table t {change}", dialect="spark")
        other.sql("alter table t alter column v type varchar(4)", dialect="spark")
    limited.sql("update t set v = 'vvvv'")
    refused(limited, "update t set v = 'vvvvv'")


@pytest.mark.spark
@pytest.mark.only_format("delta", "Spark's types are Delta's")
def test_spark_knows_the_limits_of_altered_fields(limited: Session, spark: Any) -> None:
    limited.sql("alter table t add column s.b varchar(1)", dialect="spark")
    limited.sql("alter table t rename column s.a to aa; alter table t drop column s.n")
    at = f"delta.`{limited.ref('t').location}`"
    row = "named_struct('aa', '{0}', 'd', named_struct('x', 'x'), 'b', '{1}'), array(), array()"
    spark.sql(f"insert into {at} select 2, 'v', {row.format('aa', 'b')}")
    for wrong in (("aaa", "b"), ("aa", "bb")):
        with pytest.raises(Exception, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
            spark.sql(f"insert into {at} select 3, 'v', {row.format(*wrong)}")
    assert rows_of(limited.sql("select s.aa, s.b from t where id = 2")) == [("aa", "b")]
