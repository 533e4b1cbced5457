"""A DuckLake whose data lies in a store: S3, by moto's server on loopback. Its catalog is a local file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import InvalidConfig, MergeSpec, WriteSpec
from duckrun.storage import scratch

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": [1, 2], "day": ["mon", "o'x/y %"]})


def rows(session: duckrun.Session, query: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


def test_data_lies_in_a_store_and_the_catalog_beside(
    s3_bucket: Callable[[str], str], s3_options: dict[str, str], tmp_path: Path
) -> None:
    root = s3_bucket("ducklake-data") + "/root"
    with pytest.raises(InvalidConfig, match="name its catalog"):
        duckrun.connect(root, storage_options=s3_options, format="ducklake").tables()
    here = {"storage_options": s3_options, "format": "ducklake", "catalog": f"sqlite:{tmp_path / 'catalog.sqlite'}"}
    with duckrun.connect(root, **here) as s:
        s.execute("main.t", WriteSpec("error", partition_by=("day",)), ROWS)
        first = s.table("main.t").snapshot().version
        s.execute("main.t", WriteSpec("append"), pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()))
        s.execute("main.t", WriteSpec("replace", predicate="day = 'mon'"), pa.table({"id": [5], "day": ["mon"]}))
        s.execute("main.t", MergeSpec(("id",)), pa.table({"id": [5, 6], "day": ["mon", "tue"]}))
        s.sql("create view v as select count(*) as n from main.t")
        with s.transaction():
            s.sql("update main.t set id = id * 10 where day <> 'mon'")
            s.sql("create table main.u as select max(id) as id from main.t")
        assert all(
            key["path"].startswith("data/") for key in s.lake.storage.keys(root) if key["path"].endswith(".parquet")
        )
    with duckrun.connect(root, **here) as fresh:
        assert rows(fresh, "from main.t order by all") == [(5, "mon"), (20, "o'x/y %"), (20, "o'x/y %"), (60, "tue")]
        assert rows(fresh, "select u.id, v.n from main.u, v") == [(60, 4)]
        fresh.table("main.t").restoreToVersion(first)
        assert rows(fresh, "from main.t order by all") == [(1, "mon"), (2, "o'x/y %")]
        fresh.maintain(duckrun.MergeFilesSpec(), "main.t")
        assert rows(fresh, "from main.t order by all") == [(1, "mon"), (2, "o'x/y %")]
        fresh.sql("drop table main.u")
        assert fresh.tables() == ["main.t", "main.v"]


def test_what_lies_in_scratch_of_a_store_goes_by_its_age(
    s3_bucket: Callable[[str], str], s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = s3_bucket("ducklake-scratch") + "/root"
    here = {"storage_options": s3_options, "format": "ducklake", "catalog": f"sqlite:{tmp_path / 'catalog.sqlite'}"}
    with duckrun.connect(root, **here) as s:
        s.sql("create table t as select 1 as id")
        with scratch.scratch(s.lake.storage) as folder:
            place = folder.removeprefix(f"{root}/")
            s.lake.storage.put(f"{place}/a.parquet", b"rows")
            assert s.upkeep.orphans(older_than="0 seconds").removed == ()
        assert s.lake.storage.read(f"{place}/a.parquet") is None
        s.lake.storage.put(f"{place}/a.parquet", b"of a process that was killed")
        assert s.upkeep.orphans(older_than="0 seconds").removed == ()
        monkeypatch.setattr(scratch, "YOUNGEST", -timedelta(minutes=1))
        moment = datetime.now(UTC) + timedelta(minutes=1)
        assert s.upkeep.orphans(older_than=moment, dry_run=True).removed == (f"{root}/{place}/a.parquet",)
        assert s.upkeep.orphans(older_than=moment).removed == (f"{root}/{place}/a.parquet",)
        assert s.lake.storage.read(f"{place}/a.parquet") is None
