"""A scan in parts reads each row of a DuckLake table once, in other processes too, wherever the rows lie; and says where they went meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import duckrun
from duckrun import StorageError, UnsupportedFeature
from duckrun.values.snapshot import Scan


def _ids(root: Path, parts: list[Scan]) -> list[int]:
    """The ids that sessions of their own read, one for each part."""
    found = []
    for part in parts:
        with duckrun.connect(root, format="ducklake") as other:
            found += [row["id"] for row in other.open(Scan.from_json(part.to_json())).collect()]
    return sorted(found)


def test_rows_in_the_catalog_are_of_one_part(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake", inline_rows=5) as session:
        session.sql("create table main.t as select range as id, 0 as n from range(2)")
        assert len(session.snapshot("t").files()) == 0
        assert _ids(root, session.snapshot("t").scan().split(4)) == [0, 1]
        for first in (10, 20, 30):
            session.sql(f"insert into main.t select range, 0 from range({first}, {first + 6})")
        session.sql("delete from main.t where id = 21")
        session.sql("alter table main.t add column m integer")
        session.sql("insert into main.t values (40, 0, 1)")
        parts = session.snapshot("t").scan().split(2)
        expected = [0, 1, *range(10, 16), 20, *range(22, 26), *range(30, 36), 40]
        assert len(parts) == 2 and _ids(root, parts) == expected
        whole = session.snapshot("t").scan()
        assert sorted(row["id"] for row in session.open(whole).collect()) == expected
        session.upkeep.flush("t")
        with pytest.raises(StorageError, match=r"main\.t: files of version .* plan it again"):
            _ids(root, parts)
        session.upkeep.merge_files("t")
        assert _ids(root, session.snapshot("t").scan().split(3)) == expected


def test_no_scan_is_planned_of_rows_that_are_not_committed(tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "lake", format="ducklake") as session:
        session.sql("create table main.t as select 1 as id")
        with session.transaction() as t:
            t.sql("insert into main.t values (2)")
            with pytest.raises(UnsupportedFeature, match=r"main\.t is written within a transaction"):
                session.snapshot("t").scan()
