"""NOT NULL and CHECK stay with a table whoever writes it, and through every write that keeps its columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from duckrun import InvalidConfig, SchemaMismatch, WriteSpec
from duckrun.session import Session
from duckrun.specs import TableConstraints
from duckrun.table_specs import AddCheck, AlterSpec, SetComment, SetNotNull
from tests.rows import rows_of

ROWS = pa.table({"id": [1, 2], "Amount": [10, None]})
HELD = TableConstraints(("id",), {"positive": 'coalesce("Amount" > 0, true)'})
NULL_ID = pa.table({"id": pa.array([None], pa.int64()), "Amount": [1]})
NEGATIVE = pa.table({"id": [3], "Amount": [-1]})


def constraints(session: Session, name: str = "main.t") -> tuple[set[str], set[str]]:
    """The columns without NULL, and the names of the checks, as the log has them."""
    snapshot = session.lake.snapshot(session.lake.parse(name))
    checks = {key.removeprefix("delta.constraints.") for key in snapshot.properties if "constraints." in key}
    return {field.name for field in snapshot.schema if not field.nullable}, checks


def test_a_write_gives_a_table_constraints_that_hold_every_writer(session: Session) -> None:
    session.execute("main.t", WriteSpec("overwrite", constraints=HELD), ROWS)
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
        session.execute("main.t", WriteSpec("overwrite", constraints=HELD), NULL_ID)
    assert session.tables() == []
    session.execute("main.t", WriteSpec("overwrite", constraints=HELD), ROWS)
    for broken in (NULL_ID, NEGATIVE):
        with pytest.raises(SchemaMismatch, match="main.t"):
            session.execute("main.t", WriteSpec("overwrite", constraints=HELD), broken)
    assert session.lake.snapshot(session.lake.parse("main.t")).version == 0
    assert rows_of(session.scan("main.t")) == rows_of(ROWS)


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


def test_constraints_that_a_write_gave_are_the_next_ones_to_change_and_others_stay(session: Session) -> None:
    session.execute("main.t", WriteSpec("overwrite", constraints=HELD), ROWS)
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


def test_files_staged_by_others_keep_the_constraints_of_the_table_that_they_overwrite(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("overwrite", constraints=HELD), ROWS)
    files = duck.stage("main.t", pa.table({"id": [5], "Amount": [50]}))
    duck.commit_staged("main.t", files, WriteSpec("overwrite"))
    assert constraints(duck) == ({"id"}, {"positive"})
    assert DeltaTable(duck.lake.parse("main.t").location).to_pyarrow_table().to_pylist() == [{"id": 5, "Amount": 50}]
    with pytest.raises(InvalidConfig, match="constraints"):
        duck.commit_staged("main.t", files, WriteSpec("overwrite", constraints=HELD))
