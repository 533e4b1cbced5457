"""A write that was given a part of a table stays inside of it: rows of the table elsewhere are as if they were not there."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from duckrun import MergeClause, MergeSpec, RowsOutsidePartition, WriteSpec
from duckrun.session import Session
from duckrun.values.rows import UPSERT, DeleteInsertSpec
from tests.lake import rows_of

pytestmark = pytest.mark.formats(10)

# The key 1 is in both days, 3 in the other one, 4 in none: its day is NULL.
TABLE = [(1, "mon", 10), (2, "mon", 20), (1, "tue", 11), (3, "tue", 30), (4, None, 40)]
ELSEWHERE = [row for row in TABLE if row[1] != "mon"]
SOURCE = [(1, "mon", 100), (3, "mon", 300), (4, "mon", 400)]
UPSERTED = [(1, "mon", 100), (2, "mon", 20), (3, "mon", 300), (4, "mon", 400)]
MON = "day = 'mon'"


def table(rows: list[tuple[int, str | None, int]]) -> pa.Table:
    ids, days, values = zip(*rows, strict=True)
    return pa.table({"id": ids, "day": pa.array(days, pa.string()), "v": values})


@pytest.fixture
def days(session: Session) -> Session:
    """A session with TABLE by day, as main.days, and in one file, as main.flat."""
    session.execute("main.days", WriteSpec("error", partition_by=("day",)), table(TABLE))
    session.execute("main.flat", WriteSpec("error"), table(TABLE))
    return session


@pytest.mark.parametrize("name", ["main.days", "main.flat"])
def test_rows_of_other_parts_are_neither_matched_nor_changed_nor_deleted(days: Session, name: str) -> None:
    """One merge after the other on one table; the day itself is what each of them says."""
    by_source = (*UPSERT, MergeClause("not_matched_by_source_update", "target.v > 5", set={"v": "-1"}))
    steps: list[tuple[MergeSpec | DeleteInsertSpec, list[tuple[int, str, int]]]] = [
        (MergeSpec(("id",), within=MON), UPSERTED),
        (MergeSpec(("id", "day"), within=MON), UPSERTED),
        (
            MergeSpec(("id",), by_source, within=MON),
            [(1, "mon", 100), (2, "mon", -1), (3, "mon", 300), (4, "mon", 400)],
        ),
        (
            MergeSpec(("id", "day"), (*UPSERT, MergeClause("not_matched_by_source_delete")), within=MON),
            [(1, "mon", 100), (3, "mon", 300), (4, "mon", 400)],
        ),
        (MergeSpec(("id",), (MergeClause("matched_delete", "source.v < 400"),), within=MON), [(4, "mon", 400)]),
        (DeleteInsertSpec(("id",), within=MON), [(1, "mon", 100), (3, "mon", 300), (4, "mon", 400)]),
        (
            MergeSpec(
                ("id",),
                (MergeClause("not_matched_by_source_delete", "target.id > 0"),),
                on="source.v > 999",
                within=MON,
            ),
            [],
        ),
    ]
    for spec, inside in steps:
        days.execute(name, spec, table(SOURCE))
        assert rows_of(days.scan(name)) == rows_of(table([*inside, *ELSEWHERE])), spec


@pytest.mark.parametrize(
    "clause",
    [
        MergeClause("matched_update", set={"day": "'tue'"}),
        MergeClause("not_matched_insert", columns=("id", "v")),
        MergeClause("not_matched_insert", set={"id": "source.id", "day": "NULL", "v": "source.v"}),
        MergeClause("not_matched_by_source_update", set={"day": "concat(target.day, 's')"}),
    ],
    ids=["moves a row", "leaves the day out", "sets the day to NULL", "moves a row that the source has not"],
)
def test_a_clause_that_makes_a_row_of_another_part_is_refused(days: Session, clause: MergeClause) -> None:
    for name, key in (("main.days", ("id",)), ("main.flat", ("id", "day"))):
        before = days.table(name).snapshot().version
        with pytest.raises(RowsOutsidePartition, match=rf"(?s){name}.*outside the part being written \(day = 'mon'\)"):
            days.execute(name, MergeSpec(key, (clause,), within=MON), table(SOURCE))
        assert days.table(name).snapshot().version == before


def test_a_clause_that_makes_no_row_of_another_part_may_name_its_columns(days: Session) -> None:
    clauses = (
        MergeClause("matched_update", set={"v": "target.v + source.v"}),
        MergeClause("not_matched_insert", set={"id": "source.id", "day": "lower('MON')", "v": "0"}),
        MergeClause("not_matched_by_source_update", set={"v": "target.v + 1", "day": "target.day"}),
    )
    days.execute("main.days", MergeSpec(("id",), clauses, within=MON), table(SOURCE))
    inside = [(1, "mon", 110), (2, "mon", 21), (3, "mon", 0), (4, "mon", 0)]
    assert rows_of(days.scan("main.days")) == rows_of(table([*inside, *ELSEWHERE]))


def test_a_merge_that_makes_its_table_keeps_to_its_part_too(session: Session) -> None:
    insert = MergeClause("not_matched_insert", set={"id": "source.id", "day": "'tue'"})
    for clause, source in ((insert, SOURCE), (UPSERT[1], [*SOURCE, (9, "tue", 9)])):
        with pytest.raises(RowsOutsidePartition, match=r"main\.new"):
            session.execute("main.new", MergeSpec(("id",), (clause,), within=MON), table(source))
        assert not session.lake.exists(session.lake.parse("main.new"))


def test_new_columns_come_with_a_merge_that_keeps_to_its_part(days: Session) -> None:
    wide = table(SOURCE).append_column("note", pa.array(["x", "y", "z"]))
    days.execute("main.days", MergeSpec(("id",), within=MON, schema_mode="append_new_columns"), wide)
    days.execute("main.flat", DeleteInsertSpec(("id",), within=MON, schema_mode="sync_all_columns"), wide.drop(["v"]))
    noted = {1: "x", 3: "y", 4: "z"}
    assert rows_of(days.scan("main.days"), "id", "day", "v", "note") == sorted(
        [(*row, noted[row[0]] if row[1] == "mon" and row[0] != 2 else None) for row in [*UPSERTED, *ELSEWHERE]],
        key=repr,
    )
    kept = [(2, "mon", None), *((i, day, None) for i, day, _ in ELSEWHERE)]
    assert rows_of(days.scan("main.flat"), "id", "day", "note") == sorted(
        [*((i, "mon", noted[i]) for i, _, _ in SOURCE), *kept], key=repr
    )


def test_the_part_is_told_by_values_as_the_table_stores_them(session: Session) -> None:
    """A date of the source is a moment in the table, midnight."""
    at = pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 12), datetime(2024, 1, 2)], pa.timestamp("us"))
    session.execute("main.moments", WriteSpec("error"), pa.table({"id": [1, 2, 3], "at": at}))
    dated = pa.table({"id": [3], "at": [date(2024, 1, 1)]})
    within = "\"at\" >= TIMESTAMP '2024-01-01' AND \"at\" < TIMESTAMP '2024-01-01 12:00:00'"
    session.execute("main.moments", MergeSpec(("id",), within=within), dated)
    session.execute("main.moments", DeleteInsertSpec(("id",), within=within), dated)
    session.execute("main.moments", WriteSpec("append", within=within), dated)
    assert [row[0] for row in rows_of(session.scan("main.moments"), "id")] == [1, 2, 3, 3, 3]
    with pytest.raises(RowsOutsidePartition):
        session.execute("main.moments", MergeSpec(("id",), within="\"at\" = DATE '2024-01-02'"), dated)
