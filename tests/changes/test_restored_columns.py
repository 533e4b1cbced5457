"""Changes over versions between which a column went and came back. Budget: 5 s, and 40 s on Spark."""

from __future__ import annotations

import pytest

from duckrun import SchemaMismatch, Session


@pytest.mark.parametrize("between", [None, "update m set id = id", "reorg table m apply (purge)"])
def test_a_column_that_was_dropped_and_came_back_by_restore_is_refused_by_name(
    session: Session, between: str | None
) -> None:
    """Its values lie in files of versions that do not have it, on a table with column mapping."""
    session.sql("create table m (id bigint, v varchar) with ('delta.columnMapping.mode' = 'name')")
    session.sql("insert into m values (1, 'x'), (2, 'y')")
    dropped = session.sql("alter table m drop column v").version
    if between is not None:
        session.sql(between)
    session.sql("restore table m to version as of 1")
    table = session.table("m")
    restored = table.snapshot().version
    refused = [(kind, begin) for kind in ("min_delta", "full_delta", "upsert") for begin in (dropped, restored - 1)]
    for kind, begin in [*refused, ("full_delta", 1)]:
        with pytest.raises(SchemaMismatch, match=r"column v was dropped.*RESTORE"):
            table.changes(kind, begin, key=["id"]).collect()  # type: ignore[arg-type]
    assert table.changes("min_delta", 1, key=["id"]).collect() == []
    assert table.changes("min_delta", dropped, key=["id"], columns=["id"]).collect() == []
    session.sql("insert into m values (3, 'z')")
    (row,) = table.changes("min_delta", restored, key=["id"]).collect()
    assert (row["id"], row["v"]) == (3, "z")
    session.sql("alter table m add column w int")
    assert [row["w"] for row in table.changes("min_delta", restored, key=["id"]).collect()] == [None]


def test_files_that_were_compacted_without_a_restored_column_leave_its_values(session: Session) -> None:
    session.sql("create table m (id bigint, v varchar) with ('delta.columnMapping.mode' = 'name')")
    first = session.sql("insert into m values (1, 'x')").version
    second = session.sql("insert into m values (2, 'y')").version
    session.sql("alter table m drop column v")
    assert session.sql("optimize m").files_added == 1
    session.sql(f"restore table m to version as of {second}")
    table = session.table("m")
    for key in (["id"], ()):
        assert table.changes("min_delta", second, key=key).collect() == []
        (row,) = table.changes("min_delta", first, key=key).collect()
        assert (row["id"], row["v"], row["_change_type"]) == (2, "y", "insert")
    session.sql("update m set v = 'z' where id = 1")
    rows = table.changes("min_delta", second, key=["id"]).collect()
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, "x"), (1, "z")]
