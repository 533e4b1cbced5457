"""Tables of many files in a branch: main's log is read for main's files, and names for those of the branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteSpec, MergeSpec, OptimizeSpec, Session
from duckrun.formats.delta.branches import differences
from duckrun.formats.delta.branches.log_copies import ScanLogs
from tests.branches.rows import values

FILES = 210
MARKS = "'delta.enableDeletionVectors' = 'true'"
LAYOUTS = {
    "plain": "",
    "vectors": f"tblproperties ({MARKS})",
    "mapped": f"tblproperties ('delta.columnMapping.mode' = 'name', {MARKS})",
    "tracked": f"tblproperties ('delta.enableRowTracking' = 'true', {MARKS})",
}
TYPES = {"plain": ("'a b%'", "string"), "nested": ("{'x': i, 'y': [i]}", "struct<x: int, y: array<int>>")}
Rows = dict[int, tuple[int, Any]]


@pytest.fixture(params=[(layout, kind) for layout in LAYOUTS for kind in TYPES], ids="-".join)
def main(request: pytest.FixtureRequest, root: Path) -> Iterator[Session]:
    layout, kind = request.param
    value, name = TYPES[kind]
    with duckrun.connect(root) as session:
        session.sql(
            f"create table sales.orders (id int, p int, v {name}) using delta partitioned by (p) {LAYOUTS[layout]}",
            dialect="spark",
        )
        session.sql(f"insert into sales.orders select i, i % {FILES}, {value} from range({2 * FILES}) r(i)")
        session.sql("delete from sales.orders where id = 5")
        yield session


def rows_of(session: Session, where: str = "true", version: int | None = None) -> Rows:
    old = version is not None
    rows = (
        session.table("sales.orders").toDF(version=version) if old else session.sql(f"from sales.orders where {where}")
    ).collect()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["p"], row["v"]) for row in rows}


@pytest.mark.drawn(4)
def test_writes_and_reads_of_a_branch_equal_a_model(main: Session, branch: Session) -> None:
    before = rows_of(main)
    at = main.table("sales.orders").snapshot().version
    model = dict(before)

    def check() -> None:
        assert rows_of(branch) == model
        assert rows_of(branch, "id between 3 and 8") == {i: row for i, row in model.items() if 3 <= i <= 8}
        assert rows_of(branch, "p in (3, 7, 209)") == {i: r for i, r in model.items() if r[0] in (3, 7, 209)}
        assert values(branch, "select count(*) from sales.orders") == [(len(model),)]

    new = {1000: (3, model[3][1]), 1001: (4, model[4][1])}

    def of(rows: Rows) -> pa.Table:
        table = branch.sql("select id, p, v from sales.orders limit 0").toArrow()
        return pa.Table.from_pylist([{"id": i, "p": p, "v": v} for i, (p, v) in rows.items()], table.schema)

    branch.execute("sales.orders", duckrun.WriteSpec("append"), of(new))
    model |= new
    check()
    branch.execute("sales.orders", DeleteSpec("id in (3, 1001)"))
    del model[3], model[1001]
    check()
    branch.sql("update sales.orders set id = id + 2000 where id in (4, 6, 1000)")
    model |= {i + 2000: model.pop(i) for i in (4, 6, 1000)}
    check()
    branch.execute("sales.orders", MergeSpec(("id",)), of({7: (7, model[8][1]), 1002: (5, model[8][1])}))
    model |= {7: (7, model[8][1]), 1002: (5, model[8][1])}
    check()
    half = rows_of(branch)
    version = branch.table("sales.orders").snapshot().version
    branch.execute("sales.orders", OptimizeSpec(predicate="p < 5"))
    check()
    branch.sql("delete from sales.orders where p = 6")
    model = {i: row for i, row in model.items() if row[0] != 6}
    check()
    assert rows_of(branch, version=version) == half
    assert rows_of(branch, version=at) == rows_of(main) == before
    main.sql("delete from sales.orders where id = 11")
    del model[11]
    main.rebase("pr-42")
    check()
    main.publish("pr-42")
    assert rows_of(main) == model


def test_a_branch_that_rewrites_the_table_reads_its_own_files(main: Session, branch: Session) -> None:
    expected = rows_of(main)
    branch.execute("sales.orders", OptimizeSpec())
    branch.sql("alter table sales.orders add column n int")
    assert rows_of(branch) == expected
    branch.sql("create or replace table sales.orders as select 1::int as id, 1::int as p, 1::int as v")
    assert rows_of(branch) == {1: (1, 1)}


def test_a_first_delete_opens_and_lists_the_files_of_its_rows(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[int] = []

    def counting(write: Callable[..., Any]) -> Callable[..., Any]:
        def instead(logs: ScanLogs, snapshot: Any, names: frozenset[str]) -> Any:
            listed.append(len(names))
            return write(logs, snapshot, names)

        return instead

    monkeypatch.setattr(ScanLogs, "_written", counting(ScanLogs._written))
    with duckrun.connect(root) as main:
        main.sql(
            f"create table sales.orders (id int, v struct<x: int>) using delta {LAYOUTS['vectors']}", dialect="spark"
        )
        for number in range(4):
            main.sql(f"insert into sales.orders values ({number}, {{'x': 1}})")
    monkeypatch.setattr(differences, "_FEW", 1)
    with duckrun.connect(root, branch="pr-42") as branch:
        branch.sql("insert into sales.orders values (9, {'x': 2})")
        commit = branch.sql("delete from sales.orders where id in (2, 9)")
        assert commit.rows_deleted == 2
        assert values(branch, "select id from sales.orders") == [(0,), (1,), (3,)]
    assert listed and max(listed) <= 2


ODD = [
    "a b",
    "50%",
    "%20",
    "50%25",
    "ü",
    "x/y",
    "a=b",
    None,
    "a+b",
    "a&b",
    "#h",
    "?q",
    "[z]",
    "*",
    "it's",
    'q"q',
    "a:b",
    "a\\b",
]


@pytest.mark.parametrize("more", ["", "tblproperties ('delta.columnMapping.mode' = 'name')"], ids=["plain", "mapped"])
def test_files_of_odd_partitions_are_read_once(root: Path, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "_FEW", 1)
    table = pa.table({"id": pa.array(range(len(ODD)), pa.int32()), "p": ODD})
    with duckrun.connect(root) as main:
        main.sql(f"create table sales.orders (id int, p string) using delta partitioned by (p) {more}", dialect="spark")
        main.execute("sales.orders", duckrun.WriteSpec("append"), table)
        model = dict(enumerate(ODD))
        with duckrun.connect(root, branch="pr-42") as branch:
            for number in range(0, len(ODD), 2):
                branch.sql(f"update sales.orders set id = id + 100 where id = {number}")
                model[number + 100] = model.pop(number)
                assert {row["id"]: row["p"] for row in branch.sql("from sales.orders").collect()} == model
        main.publish("pr-42")
        assert {row["id"]: row["p"] for row in main.sql("from sales.orders").collect()} == model
