"""Files that processes stage for a table of a DuckLake: one commit has the rows of all of them, and plain DuckDB reads them."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import InvalidConfig, UnsupportedFeature, WriteSpec
from duckrun.values.rows import AppTransaction, StagedFile
from tests.ducklake.plain import attached


def _of(*ids: int) -> pa.Table:
    days = [datetime.date(2024, 1 + each % 3, 1) for each in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array(days, pa.date32())})


def _read(root: Path, sql: str) -> list[tuple[Any, ...]]:
    with attached(root) as plain:
        return plain.execute(sql).fetchall()


def _files(root: Path) -> list[Path]:
    return sorted((root / "data").rglob("*.parquet"))


@pytest.mark.parametrize("keys", [(), ("day",), ("month(day)", "bucket(2, id)")])
def test_files_of_several_processes_are_one_commit(tmp_path: Path, keys: tuple[str, ...]) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake") as session:
        staged = [
            file
            for part in (_of(1, 2), _of(3), _of())
            for file in session.stage("main.t", part, partition_by=keys or None)
        ]
    assert len(_files(root)) == 2
    texts = [file.to_json() for file in staged]
    with duckrun.connect(root, format="ducklake") as session:
        assert session.tables() == []
        commit = session.commit_staged("main.t", [StagedFile.from_json(text) for text in texts], WriteSpec("error"))
        assert (commit.rows_inserted, commit.writer) == (3, "ducklake")
        assert session.table("main.t").snapshot().partition_keys == keys
        assert all(file.path not in map(str, _files(root)) for file in staged), "the rows lie in files of the lake"
        app = AppTransaction("load", 1)
        more = session.stage("main.t", _of(4, 5))
        first = session.commit_staged("main.t", more, WriteSpec("append", app=app))
        again = session.commit_staged("main.t", more, WriteSpec("append", app=app))
        assert (first.rows_inserted, again.replayed, again.version) == (2, True, first.version)
    assert _read(root, "select id, month(day) from lake.t order by all") == [(1, 2), (2, 3), (3, 1), (4, 2), (5, 3)]


def test_staged_files_whose_commit_never_comes_are_orphans(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    with duckrun.connect(root, format="ducklake") as session:
        session.sql("create table main.t as select 1 as id, date '2024-01-01' as day")
        kept = _files(root)
        files = session.stage("main.t", _of(2))
        with pytest.raises(InvalidConfig, match="append, overwrite or error"):
            session.commit_staged("main.t", files, WriteSpec("replace", predicate="true"))
        assert session.upkeep.orphans(older_than="0 days").removed == (files[0].path,)
    assert (_files(root), _read(root, "select id from lake.t")) == (kept, [(1,)])


def test_nothing_is_staged_beside_an_encrypted_lake(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    refused = pytest.raises(UnsupportedFeature, match=r"main\.t lies in an encrypted lake")
    with duckrun.connect(root, format="ducklake", encrypted=True) as session, refused:
        session.stage("main.t", _of(1))
    assert _files(root) == []
