"""A row for which DuckDB has no value: every reader and every write says so in an error of ours, and nothing is written.

Budget: 3 seconds. The same on Spark is in test_spark_trouble.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import duckrun
from duckrun import DuckrunError, InvalidConfig, ReadSpec, SchemaMismatch, UnsupportedFeature
from duckrun.engines.duckdb.instance.sql import errors_about
from duckrun.frame import Frame

NO_VALUE = {
    "error()": "error('no')",
    "a cast": "s::int",
    "an overflow": "9223372036854775807 + v",
    "a decimal's overflow": "99999999999999999999999999999999999999::decimal(38, 0) + v::decimal(38, 0)",
    "a square root": "sqrt(-v)",
    "a regular expression": "regexp_matches(s, '(' || s)",
    "JSON": "s::json",
    "a path in no JSON": "json_extract(s, '$.a')",
    "a date": "strptime(s, '%Y')",
    "a subquery of two rows": "(select v from main.t union all select 2)",
    "keys of a map": "map([v, v], [1, 2])",
    "too long a text": "repeat(s, 100000000000)",
    "an empty list": "list_reduce([v][2:], lambda a, b: a + b)",
    "a format": "format('{} {}', v)",
}
"""Of these DuckDB raises five classes, of which ``duckdb.Error`` itself is one."""


@pytest.mark.parametrize("expression", NO_VALUE.values(), ids=NO_VALUE)
def test_a_query_without_a_value_for_a_row_names_its_table(lake: duckrun.Session, expression: str) -> None:
    """DuckDB itself fails, so the case is one; the message has its words and the table."""
    with duckdb.connect() as plain:
        plain.execute("create table main.t as select 1 as v, 'x' as s")
        with pytest.raises(duckdb.Error) as theirs:
            plain.sql(f"select {expression} as n from main.t").fetchall()
    with pytest.raises(InvalidConfig, match=r"^query on table main\.t: DuckDB cannot compute a row: ") as read:
        lake.sql(f"select {expression} as n from main.t").toArrow()
    assert " ".join(str(theirs.value).splitlines()[0].split()).rstrip(".") in str(read.value)
    assert "written" not in str(read.value)


READERS: dict[str, Callable[[Frame], Any]] = {
    "toArrow": lambda frame: frame.toArrow(),
    "reader": lambda frame: list(frame.reader()),
    "collect": lambda frame: frame.collect(),
    "pandas": lambda frame: frame.df(),
    "polars": lambda frame: frame.pl(),
    "a LazyFrame": lambda frame: frame.pl(lazy=True).filter(pl.col("n") > 1).collect(),  # type: ignore[union-attr]
    "show": lambda frame: frame.show(),
    "a notebook": lambda frame: frame._repr_html_(),
    "limit": lambda frame: frame.limit(1).toArrow(),
    "named": lambda frame: frame.named(["m"]).toArrow(),
    "a view": lambda frame: frame.createOrReplaceTempView("w") or frame.session.sql("from w").toArrow(),  # type: ignore[union-attr]
    "a temporary table": lambda frame: frame.session.sql("create temp table y as select sqrt(-v) from main.t"),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_every_reader_of_a_frame_says_so(lake: duckrun.Session, reader: Callable[[Frame], Any]) -> None:
    with pytest.raises(InvalidConfig, match="DuckDB cannot compute a row: Out of Range Error: cannot take square root"):
        reader(lake.sql("select sqrt(-v) as n from main.t"))


def test_a_scan_and_the_changes_of_a_table_say_so(lake: duckrun.Session) -> None:
    with pytest.raises(InvalidConfig, match=r"^read on table main\.t: DuckDB cannot compute a row"):
        lake.scan("main.t", ReadSpec(predicate="sqrt(-v) > 1")).toArrow()
    with pytest.raises(InvalidConfig, match=r"^query on table main\.t: DuckDB cannot compute a row"):
        lake.sql("select sqrt(-v) from main.t at (version => 0)").toArrow()


@pytest.mark.parametrize("form", ["delta", "ducklake"])
def test_a_write_says_so_and_writes_nothing(root: Path, form: str) -> None:
    with duckrun.connect(root, format=form) as s:
        s.sql("create table main.t as select 1 as v, 'x' as s")
        before = s.snapshot("main.t").version
        for statement in (
            "insert into main.t select sqrt(-v), s from main.t",
            "update main.t set v = (select v from main.t union all select 2)",
            "delete from main.t where error('no')::int = v",
            "merge into main.t using (select 1 as v) o on t.v = o.v when matched then update set s = json_extract(t.s, '$.a')",
            "create table main.u as select regexp_matches(s, '(' || s) as q from main.t",
        ):
            with pytest.raises(InvalidConfig, match=r"main\.[tu].*DuckDB cannot compute a row.*Nothing was written"):
                s.sql(statement)
        with pytest.raises(SchemaMismatch, match="does not fit its column"):
            s.sql("insert into main.t select s, s from main.t")
        assert s.tables() == ["main.t"] and s.snapshot("main.t").version == before


def test_what_a_query_reads_is_named_as_far_as_a_message_holds_it(lake: duckrun.Session) -> None:
    for name in "abcde":
        lake.sql(f"create table main.{name} (v int)")
    lake.sql("create view main.w as select v from main.a")
    lake.sql("create temp table own as select 1 as v")
    for source, named in {
        "(select 1)": "query",
        "main.w": "query on table main.a",
        "main.a, own": "query on tables main.a, own",
        "main.a, main.b, main.c, main.d, main.e": "query on tables main.a, main.b, main.c, main.d and 1 more",
    }.items():
        with pytest.raises(InvalidConfig, match=rf"^{named}: Catalog Error: .*nofunction"):
            lake.sql(f"select nofunction(1) from {source}")
    with pytest.raises(InvalidConfig, match=r"^explain on table main\.a: Catalog Error"):
        lake.sql("explain select nofunction(1) from main.a")


def test_no_class_of_duckdbs_errors_leaves_as_it_is() -> None:
    """But for an interrupt, which its caller asked for."""
    classes = {each for each in vars(duckdb).values() if isinstance(each, type) and issubclass(each, duckdb.Error)}
    for kind in classes - {duckdb.InterruptException}:
        with pytest.raises(DuckrunError, match="^query on table main.t: "), errors_about("query on table main.t"):
            raise kind("no")
    with pytest.raises(duckdb.InterruptException), errors_about("query on table main.t"):
        raise duckdb.InterruptException("no")


def test_a_function_that_is_not_there_is_no_trouble_of_the_store(lake: duckrun.Session) -> None:
    """Its name ends like the answer of a store that has no such bucket."""
    with pytest.raises(InvalidConfig, match="width_bucket"):
        lake.sql("select width_bucket(v, 1, 1, 0) from main.t")
    with pytest.raises(UnsupportedFeature, match=r"query on table main\.t.*TimeZone"):
        lake.sql("select timestamptz '2020-01-01' at time zone s from main.t").toArrow()


@pytest.fixture
def lake(duck: duckrun.Session) -> duckrun.Session:
    duck.sql("create table main.t as select 1 as v, 'x' as s")
    return duck
