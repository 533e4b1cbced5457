"""The files of a scan: those that may hold rows for its predicate, whose rows are then those of a plain filter."""

from __future__ import annotations

import datetime
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import ReadSpec, Scan, Session, VersionNotReadable, WriteSpec
from tests.lake import rows_of

DAYS = [datetime.date(2026, 1, 1 + i % 5) if i % 7 else None for i in range(40)]
ROWS = pa.table(
    {
        "id": pa.array(range(40), pa.int64()),
        "day": pa.array(DAYS, pa.date32()),
        "part": pa.array([None if i % 9 == 0 else i % 4 for i in range(40)], pa.int32()),
        "note": pa.array([None if i % 11 == 0 else f"n{i % 6}" for i in range(40)], pa.string()),
        "v": pa.array([float("nan") if i % 13 == 0 else i / 3 for i in range(40)], pa.float64()),
    }
)
PREDICATES = [
    "part = 2", "part <> 2", "part in (1, 3)", "part is null", "part is not null and id > 30", "not (part = 1)", "part = 1 or part is null",
    "part = 1 or id = 7", "part = 1 and (id < 5 or id > 30)", "2 >= part", "id between 10 and 12", "12 < id", "id = -1", "id in (3, 39)",
    "id = 5 and random() >= 0", "note = 'n3'", "note > 'n4'", "note like 'n1%'", "day = '2026-01-03'", "day >= date '2026-01-04'",
    "day = '2026-01-03' and part = 2", "v > 10", "isnan(v)", "id + 0 = 4", "(part = 2)", "part = 2 and part = 3", "PART = 2", "true", "false",
    "part = 2.0", "part = '2'", "id in (select 3)", "coalesce(part, 9) = 9", "part between 1 and 2 and day is not null", "id < 1e9",
]  # fmt: skip


@pytest.fixture(params=[(), ("day", "part")], ids=["no partitions", "two"])
def table(duck: Session, request: pytest.FixtureRequest) -> Session:
    """Rows in four commits, so that also without partitions the bounds of files differ."""
    for first in range(0, 40, 10):
        duck.execute("main.t", WriteSpec("append", partition_by=request.param or None), ROWS.slice(first, 10))
    return duck


@cache
def plain(predicate: str) -> list[tuple[object, ...]]:
    return rows_of(_held().execute(f"SELECT * FROM held WHERE {predicate}").to_arrow_table())


@cache
def _held() -> duckdb.DuckDBPyConnection:
    own = duckdb.connect()
    own.register("given", ROWS)
    return own.execute("CREATE TABLE held AS FROM given")  # a filter over Arrow orders NaN in another way


@pytest.mark.formats(3)
def test_the_parts_of_a_scan_have_the_rows_of_a_plain_filter(table: Session) -> None:
    snapshot = table.table("t").snapshot()
    pruned = 0
    for predicate in PREDICATES:
        scan = snapshot.scan(ReadSpec(predicate=predicate))
        pruned += len(scan.files) < len(snapshot.files())
        parts = [Scan.from_json(part.to_json()) for part in scan.split(2)]
        rows = [table.open(part).toArrow() for part in parts]
        found = pa.concat_tables(rows) if rows else ROWS.slice(0, 0)
        assert rows_of(found) == plain(predicate), predicate
    if not table.lake.has_catalog:
        assert pruned > 5


def test_partitions_decide_a_predicate_alone_and_the_rest_is_the_residual(session: Session) -> None:
    session.execute("main.t", WriteSpec("error", partition_by=("part",)), ROWS)
    snapshot = session.table("t").snapshot()
    scan = snapshot.scan(ReadSpec(predicate="part = 2"))
    assert scan.residual is None and {file.partition_values["part"] for file in scan.files} == {"2"}
    scan = snapshot.scan(ReadSpec(predicate="part = 2 and id < 20"))
    assert scan.residual == "(id < 20)" and len(scan.files) == 1
    assert snapshot.scan(ReadSpec(predicate="part = 2 or id < 20")).residual == "part = 2 or id < 20"
    for predicate in ("part = 2", "part = 2 and id < 20", "part = 2 or id < 20", "day = '2026-01-03' and part is null"):
        parts = snapshot.scan(ReadSpec(predicate=predicate)).split(2)
        rows = pa.concat_tables([session.open(Scan.from_json(part.to_json())).toArrow() for part in parts])
        assert rows_of(rows) == plain(predicate), predicate
    assert snapshot.scan().residual is None and len(snapshot.scan().files) == len(snapshot.files())
    assert len(snapshot.scan(ReadSpec(predicate="part = 2", dialect="spark")).files) == 1


def test_a_part_is_as_long_as_its_files_are_many(duck: Session) -> None:
    rows = duckrun.SQL("select range as id, (range % 200)::int as day from range(400)")
    duck.execute("main.t", WriteSpec("error", partition_by=("day",)), rows)
    snapshot = duck.table("t").snapshot()
    lengths = {parts: [len(p.to_json()) for p in snapshot.scan().split(parts)] for parts in (1, 10)}
    assert max(lengths[10]) < lengths[1][0] / 5
    scan = snapshot.scan(ReadSpec(predicate="day = 7"))
    assert len(scan.files) == 1 and len(scan.to_json()) < lengths[1][0] / 50


def test_a_scan_of_a_table_that_was_made_anew_is_refused(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("error"), ROWS)
    text = duck.table("t").snapshot().scan().to_json()
    duck.sql("drop table t")
    with pytest.raises((duckrun.TableNotFound, VersionNotReadable)):
        duck.open(Scan.from_json(text)).collect()
    duck.execute("main.t", WriteSpec("error"), ROWS)
    with pytest.raises(VersionNotReadable, match=r"main\.t was dropped and created again"):
        duck.open(Scan.from_json(text)).collect()


def test_an_older_versions_files_stay_those_of_that_version(duck: Session, root: Path) -> None:
    duck.execute("main.t", WriteSpec("error", partition_by=("part",)), ROWS)
    scan = duck.table("t").snapshot().scan(ReadSpec(predicate="part = 2"))
    duck.sql("delete from t where id = 2")
    assert rows_of(duck.open(scan)) == plain("part = 2")
    assert (2,) not in rows_of(duck.open(duck.table("t").snapshot().scan(ReadSpec(("id",), "part = 2"))))
