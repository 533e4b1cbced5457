"""Heads of logs, which listings read, against deltalake's own reading of the same logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import StorageError
from duckrun.values.snapshot import Snapshot
from tests.lake import rows_of

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "tue", None], "parts": [[{"x": 1}], [], None]})


def _young(location: str) -> None:
    write_deltalake(location, ROWS, partition_by=["day"], description='it\'s "protocol" and "metaData"')


def _altered(location: str) -> None:
    _young(location)
    write_deltalake(location, ROWS.append_column("n", ROWS["id"]), mode="append", schema_mode="merge")
    DeltaTable(location).alter.add_constraint({"positive": "id > 0"})
    DeltaTable(location).delete("id = 2")


def _with_checkpoint(location: str) -> None:
    _altered(location)
    DeltaTable(location).create_checkpoint()


def _after_a_checkpoint(location: str) -> None:
    _with_checkpoint(location)
    write_deltalake(location, ROWS, mode="append", schema_mode="merge")
    DeltaTable(location).alter.set_table_description("another")


def _without_first_commits(location: str) -> None:
    _after_a_checkpoint(location)
    for version in range(3):
        Path(location, "_delta_log", f"{version:020d}.json").unlink()


def _by_duckrun(location: str) -> None:
    root = location.rsplit("/", 2)[0]
    with duckrun.connect(root) as s:
        s.sql("create table main.t (id int not null, day varchar default 'mon')")
        s.sql("alter table main.t set tblproperties ('delta.columnMapping.mode' = 'name')", dialect="spark")
        s.sql("alter table main.t rename column day to weekday")
        s.sql("comment on column main.t.id is 'the key'")


LOGS = (_young, _altered, _with_checkpoint, _after_a_checkpoint, _without_first_commits, _by_duckrun)


def _told(snapshot: Snapshot) -> dict[str, object]:
    names = (
        "version", "table_id", "schema", "partition_columns", "properties", "reader_features", "writer_features",
        "checks", "description",
    )  # fmt: skip
    return {name: getattr(snapshot, name) for name in names}


@pytest.mark.parametrize("make", LOGS)
def test_a_listing_describes_a_table_as_its_open_log_does(make: Callable[[str], None], tmp_path: Path) -> None:
    make(f"{tmp_path}/main/t")
    with duckrun.connect(tmp_path) as s:
        ref = s.table("main.t").ref
        logs = s.lake.format.logs
        assert logs is not None
        listed, opened = logs.listed(ref), s.lake.snapshot(ref)
        assert listed is not None
        assert _told(listed) == _told(opened)
        assert listed.schema.equals(opened.schema, check_metadata=True)
        assert sorted(f.spelled for f in listed.files()) == sorted(f.spelled for f in opened.files())


@pytest.mark.parametrize("damaged", ['"metaData"', '{"metaData": {"id": "x"}}', '["protocol"]', '{"protocol":'])
def test_a_damaged_log_is_an_error_of_a_listing_that_names_the_table(damaged: str, tmp_path: Path) -> None:
    location = f"{tmp_path}/main/t"
    _altered(location)
    Path(location, "_delta_log", f"{4:020d}.json").write_text(damaged)
    with duckrun.connect(tmp_path) as s:
        logs = s.lake.format.logs
        assert logs is not None
        assert logs.listed(s.table("main.t").ref) is None
        with pytest.raises(StorageError, match=r"main\.t"):
            s.sql("from information_schema.columns").collect()


def test_a_log_with_a_gap_is_left_to_deltalake(tmp_path: Path) -> None:
    _altered(f"{tmp_path}/main/t")
    Path(tmp_path, "main/t/_delta_log", f"{1:020d}.json").unlink()
    with duckrun.connect(tmp_path) as s:
        logs = s.lake.format.logs
        assert logs is not None
        assert logs.listed(s.table("main.t").ref) is None


def test_a_listing_within_a_branch_has_the_branch_s_columns(tmp_path: Path) -> None:
    _young(f"{tmp_path}/main/t")
    with duckrun.connect(tmp_path, branch="pr") as s:
        s.sql("alter table main.t add column n int")
        names = "select column_name from information_schema.columns"
        assert ("n",) in rows_of(s.sql(names))
    with duckrun.connect(tmp_path) as s:
        assert ("n",) not in rows_of(s.sql(names))
