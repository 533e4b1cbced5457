"""NOT NULL and CHECK stay with a table whoever writes it, and through every write that keeps its columns."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from duckrun import InvalidConfig, SchemaMismatch, WriteSpec
from duckrun.session import Session
from duckrun.values.rows import TableConstraints
from duckrun.values.tables import AddCheck, AlterSpec, SetComment, SetNotNull
from tests import lake
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

ROWS = pa.table({"id": [1, 2], "Amount": [10, None]})
POSITIVE = {"positive": 'coalesce("Amount" > 0, true)'}
NULL_ID = pa.table({"id": pa.array([None], pa.int64()), "Amount": [1]})
NEGATIVE = pa.table({"id": [3], "Amount": [-1]})


def held() -> TableConstraints:
    """NOT NULL, and a CHECK where the format has those."""
    return TableConstraints(("id",), POSITIVE if lake.FORMAT == "delta" else {})


def constraints(session: Session, name: str = "main.t") -> tuple[set[str], set[str]]:
    """The columns without NULL, and the names of the checks, as the log has them."""
    snapshot = session.lake.snapshot(session.lake.parse(name))
    checks = {key.removeprefix("delta.constraints.") for key in snapshot.properties if "constraints." in key}
    return {field.name for field in snapshot.schema if not field.nullable}, checks


@pytest.mark.only_format("delta", "the other writer is deltalake")
def test_a_write_gives_a_table_constraints_that_hold_every_writer(session: Session) -> None:
    session.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
    assert constraints(session) == ({"id"}, {"positive"})
    location = session.lake.parse("main.t").location
    for broken in (NULL_ID, NEGATIVE):
        with pytest.raises((SchemaMismatch, InvalidConfig), match="main.t"):
            session.execute("main.t", WriteSpec("append"), broken)
        with pytest.raises(DeltaError):
            write_deltalake(location, broken, mode="append")
    write_deltalake(location, pa.table({"id": [3], "Amount": [30]}), mode="append")
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [4], "Amount": pa.array([None], pa.int64())}))
    assert rows_of(session.scan("main.t")) == [(1, 10), (2, None), (3, 30), (4, None)]


def test_rows_that_break_the_constraints_given_are_not_written(session: Session) -> None:
    with pytest.raises(SchemaMismatch, match="main.t"):
        session.execute("main.t", WriteSpec("overwrite", constraints=held()), NULL_ID)
    assert session.tables() == []
    session.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
    for broken in (NULL_ID, *([NEGATIVE] if held().checks else [])):
        with pytest.raises(SchemaMismatch, match="main.t"):
            session.execute("main.t", WriteSpec("overwrite", constraints=held()), broken)
    assert session.lake.snapshot(session.lake.parse("main.t")).version == nth(0)
    assert rows_of(session.scan("main.t")) == rows_of(ROWS)


@pytest.mark.only_format("delta", "CHECK constraints")
def test_an_overwrite_keeps_constraints_and_comments(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), ROWS)
    changes = (SetNotNull("id"), AddCheck("small", '"Amount" < 100 or "Amount" is null'), SetComment("key", "id"))
    session.execute("main.t", AlterSpec(changes))
    session.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [7], "Amount": [70], "more": ["x"]}))
    assert constraints(session) == ({"id"}, {"small"})
    assert session.lake.snapshot(session.lake.parse("main.t")).schema.field("id").metadata == {b"comment": b"key"}
    for broken in (NULL_ID, pa.table({"id": [3], "Amount": [100]})):
        with pytest.raises(SchemaMismatch, match="main.t"):
            session.execute("main.t", WriteSpec("overwrite"), broken)
    assert rows_of(session.scan("main.t")) == [(7, 70, "x")]


@pytest.mark.only_format("delta", "CHECK constraints")
def test_constraints_that_a_write_gave_are_the_next_ones_to_change_and_others_stay(session: Session) -> None:
    session.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
    session.execute("main.t", AlterSpec((AddCheck("small", '"Amount" < 100 or "Amount" is null'),)))
    session.execute("main.t", WriteSpec("overwrite"), ROWS)  # says nothing of them
    assert constraints(session) == ({"id"}, {"positive", "small"})
    other = TableConstraints((), {"even": '"Amount" % 2 = 0 or "Amount" is null'})
    session.execute("main.t", WriteSpec("overwrite", constraints=other), ROWS)
    assert constraints(session) == (set(), {"even", "small"})
    session.execute("main.t", WriteSpec("overwrite", constraints=TableConstraints()), NULL_ID)
    assert constraints(session) == (set(), {"small"})
    session.execute("main.t", WriteSpec("overwrite", redefine=True), pa.table({"id": [1], "Amount": [1000]}))
    assert constraints(session) == (set(), set())


@pytest.mark.only_format("delta", "CHECK constraints")
def test_files_staged_by_others_keep_the_constraints_of_the_table_that_they_overwrite(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
    files = duck.stage("main.t", pa.table({"id": [5], "Amount": [50]}))
    duck.commit_staged("main.t", files, WriteSpec("overwrite"))
    assert constraints(duck) == ({"id"}, {"positive"})
    assert DeltaTable(duck.lake.parse("main.t").location).to_pyarrow_table().to_pylist() == [{"id": 5, "Amount": 50}]
    with pytest.raises(InvalidConfig, match="constraints"):
        duck.commit_staged("main.t", files, WriteSpec("overwrite", constraints=held()))


MERGES = {
    "set from another column": ("select 1 as id, 5 as x, -1 as \"Amount\"", "when matched then update set \"Amount\" = s.x"),
    "set by an expression": ("select 1 as id, 0 as x", "when matched then update set \"Amount\" = t.\"Amount\" + s.x + 1"),
    "delete by rows that break it": ("select 2 as id, -1 as \"Amount\"", "when matched then delete"),
    "rows that are not written": ("select 1 as id, -1 as \"Amount\"", "when not matched then insert (id, \"Amount\") values (s.id, s.\"Amount\")"),
    "conditions that keep them out": ("select 1 as id, -1 as \"Amount\"", "when matched and s.\"Amount\" > 0 then update set \"Amount\" = s.\"Amount\""),
    "not matched by source": ("select 2 as id", "when not matched by source then update set \"Amount\" = t.\"Amount\" * 2"),
    "insert without the optional one": ("select 9 as id, 4 as x", "when not matched then insert (id) values (s.id)"),
    "insert from another column": ("select 9 as k, 4 as id, 7 as x", "when not matched then insert (id, \"Amount\") values (s.k, s.x)"),
    "part of the columns": ("select 1 as id, cast(null as int) as w", "when matched then update set \"Amount\" = 3"),
}  # fmt: skip
BREAKING = {
    "set from another column": ("select 1 as id, -5 as x, 1 as \"Amount\"", "when matched then update set \"Amount\" = s.x", "positive"),
    "set by an expression": ("select 1 as id, 0 as x", "when matched then update set \"Amount\" = -t.\"Amount\"", "positive"),
    "not matched by source": ("select 2 as id", "when not matched by source then update set \"Amount\" = -1", "positive"),
    "insert": ("select 9 as id, -4 as x", "when not matched then insert (id, \"Amount\") values (s.id, s.x)", "positive"),
    "insert without a needed one": ("select 9 as id, 4 as x", "when not matched then insert (\"Amount\") values (s.x)", "id"),
    "set to NULL": ("select 1 as id, 4 as x", "when matched then update set id = cast(null as bigint)", "id"),
}  # fmt: skip


def test_a_merge_is_held_to_the_constraints_by_the_rows_that_it_leaves(session: Session) -> None:
    """The rows of the source, and those that a clause takes away, may break them; both engines and a native table agree."""
    for case, (source, clauses) in MERGES.items():
        on = "t.id = s.k" if "as k" in source else "t.id = s.id"
        session.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
        statement = f"merge into main.t as t using ({source}) as s on {on} {clauses}"
        session.sql(statement)
        with duckdb.connect() as native:
            native.execute(
                'create schema if not exists main; create table main.t (id bigint not null, "Amount" bigint)'
            )
            native.execute("insert into main.t values (1, 10), (2, null)")
            native.execute(statement)
            expected = sorted(native.execute("select * from main.t").fetchall(), key=repr)
        assert sorted(rows_of(session.scan("main.t")), key=repr) == expected, case
        assert constraints(session) == ({"id"}, set(held().checks))


def test_a_merge_that_leaves_rows_which_break_a_constraint_names_it_and_writes_nothing(session: Session) -> None:
    session.execute("main.t", WriteSpec("overwrite", constraints=held()), ROWS)
    for case, (source, clauses, named) in BREAKING.items():
        if named == "positive" and not held().checks:
            continue
        statement = f"merge into main.t as t using ({source}) as s on t.id = s.id {clauses}"
        with pytest.raises((SchemaMismatch, InvalidConfig), match=rf"main\.t.*\b{named}\b"):
            session.sql(statement)
            pytest.fail(case)
    assert session.lake.snapshot(session.lake.parse("main.t")).version == nth(0)
    assert rows_of(session.scan("main.t")) == rows_of(ROWS)
