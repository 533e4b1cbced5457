"""Changes over versions between which a column went and came back."""

from __future__ import annotations

import pytest

from duckrun import SchemaMismatch, Session


@pytest.mark.parametrize("between", [None, "update m set id = id", "reorg table m apply (purge)"])
def test_a_column_that_was_dropped_and_came_back_by_restore_is_refused_by_name(
    duck: Session, between: str | None
) -> None:
    """Its values lie in files of versions that do not have it, on a table with column mapping."""
    duck.sql("create table m (id bigint, v varchar) with ('delta.columnMapping.mode' = 'name')")
    duck.sql("insert into m values (1, 'x'), (2, 'y')")
    dropped = duck.sql("alter table m drop column v").version
    if between is not None:
        duck.sql(between)
    duck.sql("restore table m to version as of 1")
    table = duck.table("m")
    restored = table.snapshot().version
    refused = [(kind, begin) for kind in ("min_delta", "full_delta", "upsert") for begin in (dropped, restored - 1)]
    for kind, begin in [*refused, ("full_delta", 1)]:
        with pytest.raises(SchemaMismatch, match=r"column v was dropped.*RESTORE"):
            table.changes(kind, begin, key=["id"]).collect()  # type: ignore[arg-type]
    assert table.changes("min_delta", 1, key=["id"]).collect() == []
    assert table.changes("min_delta", dropped, key=["id"], columns=["id"]).collect() == []
    duck.sql("insert into m values (3, 'z')")
    (row,) = table.changes("min_delta", restored, key=["id"]).collect()
    assert (row["id"], row["v"]) == (3, "z")
    duck.sql("alter table m add column w int")
    assert [row["w"] for row in table.changes("min_delta", restored, key=["id"]).collect()] == [None]
