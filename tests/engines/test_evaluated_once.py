"""What changes each time it is asked (random(), a sample, now(), a source that is a query) is asked once in a write."""

from __future__ import annotations

import pyarrow as pa
import pytest

import duckrun
from duckrun import DuckrunError, MergeSpec, UnsupportedFeature, WriteSpec
from duckrun.session import Session
from duckrun.values.rows import DeleteInsertSpec, MergeClause
from tests.alphabet import VOLATILE_PREDICATES
from tests.lake import nth

pytestmark = pytest.mark.formats(10)

ROWS = 1000
SOURCE = "select id, 5 as v from main.t where random() < 0.5"


def table(session: Session, *, partitioned: bool = False) -> None:
    """1,000 rows in 8 partitions of ``part``, of which about half expire while the test runs."""
    query = f"select range as id, range % 8 as part, now() + to_milliseconds(range - {ROWS // 2}) as expires, 0 as v from range({ROWS})"
    parts = ("part",) if partitioned else None
    session.execute("main.t", WriteSpec("overwrite", partition_by=parts), duckrun.SQL(query, "duckdb"))


def total(session: Session, what: str) -> int:
    return session.sql(f"select {what} as n from main.t").collect()[0]["n"]


@pytest.mark.parametrize("predicate", [p.format(table="main.t") for p in VOLATILE_PREDICATES])
def test_an_update_and_a_delete_by_a_volatile_predicate_lose_and_double_no_row(duck: Session, predicate: str) -> None:
    table(duck)
    updated = duck.sql(f"update main.t set v = 1 where {predicate}")
    assert (total(duck, "count(*)"), total(duck, "count(distinct id)")) == (ROWS, ROWS)
    assert total(duck, "sum(v)") == (updated.rows_updated or 0)
    deleted = duck.sql(f"delete from main.t where {predicate}")
    assert total(duck, "count(*)") == total(duck, "count(distinct id)") == ROWS - deleted.rows_deleted


def test_a_drawn_predicate_takes_rows_once_or_is_refused_by_name(session: Session) -> None:
    """Delta on Spark has none in UPDATE and DELETE; a subquery of one is drawn once there."""
    session.execute("main.t", WriteSpec("overwrite"), pa.table({"id": list(range(ROWS)), "v": [0] * ROWS}))
    for statement in ("update main.t set v = 1 where random() < 0.5", "delete from main.t where random() < 0.5"):
        if session.engine.name == "spark":
            with pytest.raises(DuckrunError, match=r"main\.t"):
                session.sql(statement)
            continue
        changed = session.sql(statement)
        assert 0 < (changed.rows_updated or 0) + (changed.rows_deleted or 0) < ROWS
    before = total(session, "count(*)")
    inside = session.sql("delete from main.t where id in (select id from main.t where random() < 0.5)")
    assert total(session, "count(*)") == total(session, "count(distinct id)") == before - inside.rows_deleted


def test_a_volatile_predicate_over_partition_columns_is_decided_row_by_row(duck: Session, lake_format: str) -> None:
    table(duck, partitioned=True)
    deleted = duck.sql("delete from main.t where part >= 0 and random() < 0.5")
    left = duck.sql("select part, count(*) as n from main.t group by part").collect()
    assert len(left) == 8
    assert all(0 < row["n"] < ROWS // 8 for row in left)
    assert sum(row["n"] for row in left) == ROWS - deleted.rows_deleted
    kept = duck.sql("delete from main.t where part = 3 and part < now()::date - date '2000-01-01'")
    assert lake_format != "delta" or kept.reason == "whole files go"


@pytest.mark.lacks_format("ducklake", UnsupportedFeature, "it has no CHECK constraints")
def test_new_values_that_are_drawn_are_those_that_are_counted(duck: Session) -> None:
    table(duck)
    duck.sql("alter table main.t add constraint small check (v < 2)")
    duck.sql("update main.t set v = (random() * 1.4)::int where id < 500")
    assert total(duck, "count(*)") == ROWS
    merged = duck.sql(
        "merge into main.t t using (select range as id from range(1000)) s on t.id = s.id "
        "when matched then update set v = (random() * 1.4)::int"
    )
    assert (merged.rows_updated, total(duck, "count(*)")) == (ROWS, ROWS)


@pytest.mark.parametrize(
    "condition", ["random() < 0.5", "t.id in (select id from main.t using sample 50 rows)", "uuid()::varchar < '8'"]
)
@pytest.mark.parametrize("place", ["on", "matched", "not matched", "not matched by source"])
def test_a_merge_does_not_take_a_condition_that_changes_as_it_is_asked(
    duck: Session, condition: str, place: str
) -> None:
    if place == "not matched":
        condition = condition.replace("t.id", "s.id")
    table(duck)
    on, when = (f" and {condition}", "matched") if place == "on" else ("", f"{place} and {condition}")
    then = "insert (id, v) values (s.id, 1)" if place == "not matched" else "update set v = 1"
    with pytest.raises(DuckrunError, match="main.t"):
        duck.sql(f"merge into main.t t using (select 1 as id) s on t.id = s.id{on} when {when} then {then}")
    assert (duck.lake.snapshot(duck.lake.parse("main.t")).version, total(duck, "sum(v)")) == (nth(0), 0)


def test_a_replace_does_not_take_a_predicate_that_changes_as_it_is_asked(duck: Session) -> None:
    table(duck, partitioned=True)
    for predicate in ("random() < 0.5", "part < 4 and random() < 0.5"):
        with pytest.raises(duckrun.InvalidConfig, match="main.t"):
            duck.execute("main.t", WriteSpec("replace", predicate=predicate), duck.sql("select * from main.t"))
    assert total(duck, "count(*)") == ROWS


def test_now_is_one_moment_in_source_condition_and_values_of_a_statement(duck: Session) -> None:
    table(duck)
    duck.sql(
        "merge into main.t t using (select range as id, now() as at from range(1000)) s on t.id = s.id "
        "when matched and s.at <> now() then delete when matched then update set expires = now()"
    )
    assert (total(duck, "count(*)"), total(duck, "count(distinct expires)")) == (ROWS, 1)
    duck.sql("update main.t set v = 7 from (select now() as at) s where s.at = now()")
    assert total(duck, "sum(v)") == 7 * ROWS


@pytest.mark.parametrize("mode", ["merge", "delete+insert", "replace", "append", "overwrite", "update from"])
def test_a_source_that_gives_other_rows_each_time_is_read_once(session: Session, mode: str) -> None:
    rows = pa.table({"id": list(range(ROWS)), "part": [i % 8 for i in range(ROWS)], "v": [0] * ROWS})
    session.execute("main.t", WriteSpec("overwrite", partition_by=("part",)), rows)
    drawn = "rand() * 1000" if session.engine.name == "spark" else "random() * 1000"
    half = (
        f"select distinct cast({drawn} as bigint) as id, cast(0 as bigint) as part, cast(5 as bigint) as v from main.t"
    )
    source = session.sql(half)
    if mode == "merge":
        commit = session.execute("main.t", MergeSpec(keys=("id",)), source)
        assert total(session, "count(*)") == total(session, "count(distinct id)") == ROWS + commit.rows_inserted
    elif mode == "delete+insert":
        commit = session.execute("main.t", DeleteInsertSpec(keys=("id",)), source)
        assert total(session, "count(*)") == total(session, "count(distinct id)")
    elif mode == "replace":
        commit = session.execute("main.t", WriteSpec("replace", schema_mode="append_new_columns"), source)
        assert total(session, "count(*)") == ROWS - ROWS // 8 + commit.rows_inserted
    elif mode == "update from":
        random = "rand()" if session.engine.name == "spark" else "random()"
        commit = session.sql(
            f"update main.t set v = 5 from (select id as k from main.t where {random} < 0.5) s where id = k"
        )
        assert total(session, "sum(v)") == 5 * commit.rows_updated
        assert total(session, "count(*)") == ROWS
        return
    else:
        commit = session.execute("main.t", WriteSpec(mode), source)
        assert total(session, "count(*)") == commit.rows_inserted + (ROWS if mode == "append" else 0)
    assert total(session, "sum(v)") == 5 * (commit.rows_inserted + (commit.rows_updated or 0))


def test_a_source_is_read_once_where_a_type_of_its_own_makes_the_table_anew(duck: Session) -> None:
    duck.sql("create table main.t as select range::int as id, range::int % 8 as part from range(1000)")
    duck.execute("main.t", WriteSpec("overwrite", partition_by=("part",)), duck.sql("select * from main.t"))
    drawn = duck.sql("select range as id, (random() * 8)::int % 8 as part from range(3)")
    for _ in range(5):
        duck.execute(
            "main.t",
            WriteSpec("overwrite", partition_by=("part",)),
            duckrun.SQL("select range::int id, range::int % 8 part from range(1000)"),
        )
        commit = duck.execute("main.t", WriteSpec("replace", schema_mode="sync_all_columns"), drawn)
        assert commit.rows_inserted == 3
        parts = duck.sql("select part, count(*) as n from main.t group by part").collect()
        assert sum(row["n"] for row in parts if row["n"] < 100) == 3


def test_a_clause_that_sets_a_drawn_value_counts_what_it_wrote(duck: Session) -> None:
    table(duck)
    clauses = (MergeClause("matched_update", set={"v": "(random() * 3)::int"}), MergeClause("matched_delete", "false"))
    commit = duck.execute("main.t", MergeSpec(keys=("id",), clauses=clauses), pa.table({"id": list(range(ROWS))}))
    assert (commit.rows_updated, total(duck, "count(*)")) == (ROWS, ROWS)
