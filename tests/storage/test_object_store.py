"""The lake on S3: the same verbs, one set of credentials, fences by put-if-absent. The server is moto's, on loopback."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pyarrow as pa
import pytest

import duckrun
from duckrun import AppTransaction, Lake, MergeClause, MergeSpec, WriteSpec
from duckrun.lake.lake import ViewDefinition
from duckrun.values.rows import DeleteSpec, UpdateSpec
from tests.lake import rows_of
from tests.store_features import lives_through

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": [1, 2], "day": ["mon", "o'x/y %"]})


@pytest.fixture
def bucket(s3_bucket: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    return s3_bucket(request.node.name.replace("_", "-")[:60]) + "/root"


def test_every_verb_works_and_a_fresh_process_sees_it(bucket: str, s3_options: dict[str, str]) -> None:
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        s.execute("main.t", WriteSpec("error", partition_by=("day",)), ROWS)
        s.execute("main.t", WriteSpec("append"), pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches()))
        s.execute("main.t", WriteSpec("replace", predicate="day = 'mon'"), pa.table({"id": [5], "day": ["mon"]}))
        s.execute("main.t", MergeSpec(("id",)), pa.table({"id": [5, 6], "day": ["mon", "tue"]}))
        s.execute("main.t", MergeSpec(("id",), (MergeClause("not_matched_by_source_delete", "target.id = 6"),)), ROWS)
        s.execute("main.t", UpdateSpec({"id": "id * 10"}, "day <> 'mon'"))
        s.execute("main.t", DeleteSpec("id = 5"))
        s.lake.put_definition(s.lake.parse("main.v"), ViewDefinition("select count(*) as n from main.t"))
        assert rows_of(s.scan("main.t")) == [(20, "o'x/y %"), (20, "o'x/y %")]
    with duckrun.connect(bucket, storage_options=s3_options) as fresh:
        assert fresh.tables() == ["main.t", "main.v"]
        assert fresh.sql("select n from main.v").collect() == [{"n": 2}]
        fresh.table("main.t").restoreToVersion(0)
        assert rows_of(fresh.scan("main.t")) == rows_of(ROWS)
        fresh.lake.drop_table(fresh.lake.parse("main.t"))
        assert fresh.lake.tables("main") == []


def test_a_small_table_is_read_by_its_files_and_every_commit_is_seen(bucket: str, s3_options: dict[str, str]) -> None:
    with (
        duckrun.connect(bucket, storage_options=s3_options) as s,
        duckrun.connect(bucket, storage_options=s3_options) as other,
    ):
        other.execute("main.t", WriteSpec("error"), pa.table({"n": [1], "v": ["a"]}))
        for number in range(2, 5):
            assert "delta_scan" not in s.engine._scan_sql(s.snapshot("main.t"))  # type: ignore[attr-defined]
            assert rows_of(s.sql("select n, v from main.t")) == [(n, "a") for n in range(1, number)]
            other.execute("main.t", WriteSpec("append"), pa.table({"n": [number], "v": ["a"]}))
        other.sql("drop table main.t")
        other.execute("main.t", WriteSpec("error"), pa.table({"v": [7], "n": ["b"]}))
        assert rows_of(s.sql("select n, v from main.t")) == [("b", 7)]


def test_a_table_of_features_keeps_what_it_says_of_its_rows(bucket: str, s3_options: dict[str, str]) -> None:
    lives_through(bucket, s3_options)


def test_a_table_of_a_store_is_not_renamed(bucket: str, s3_options: dict[str, str]) -> None:
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        with pytest.raises(duckrun.UnsupportedFeature, match=r"main\.t"):
            s.sql("alter table t rename to u")
        assert s.tables() == ["main.t"]
        assert rows_of(s.scan("main.t")) == rows_of(ROWS)


def test_a_write_does_not_begin_from_what_was_read_before_another_writer(
    bucket: str, s3_options: dict[str, str]
) -> None:
    with (
        duckrun.connect(bucket, storage_options=s3_options) as s,
        duckrun.connect(bucket, storage_options=s3_options) as other,
    ):
        s.execute("main.t", WriteSpec("error"), pa.table({"n": [1]}))
        s.snapshot("main.t")
        other.sql("insert into main.t values (2)")
        s.execute("main.t", WriteSpec("append"), pa.table({"n": [3]}))
        assert rows_of(s.scan("main.t")) == [(1,), (2,), (3,)]
        s.snapshot("main.t")
        other.lake.drop_table(other.lake.parse("main.t"))  # another table comes to the place, with as many versions
        for mode, x in (("error", "a"), ("append", "b"), ("append", "c")):
            other.execute("main.t", WriteSpec(mode), pa.table({"x": [x]}))
        with pytest.raises(duckrun.SchemaMismatch):
            s.execute("main.t", WriteSpec("append"), pa.table({"n": [4]}))
        assert rows_of(s.scan("main.t")) == [("a",), ("b",), ("c",)]


def test_credentials_do_not_show(s3_options: dict[str, str]) -> None:
    lake = Lake("s3://bucket/x", storage_options={**s3_options, "AWS_SECRET_ACCESS_KEY": "hush"})
    assert "hush" not in repr(lake) + repr(lake.storage) + repr(vars(lake.storage))


def processes(number: int) -> ProcessPoolExecutor:
    """Processes of their own; one that dies is an error, where a multiprocessing.Pool would wait for it forever."""
    return ProcessPoolExecutor(number, mp_context=get_context("spawn"))


def _append(root: str, s3_options: dict[str, str], number: int) -> int:
    with duckrun.connect(root, storage_options=s3_options) as s:
        spec = WriteSpec("append", app=AppTransaction(f"writer/{number}"))
        return s.execute("main.t", spec, pa.table({"n": [number]})).version


@pytest.mark.slow
def test_writers_at_once_all_land_though_the_table_is_new(bucket: str, s3_options: dict[str, str]) -> None:
    with processes(4) as pool:
        versions = [pool.submit(_append, bucket, s3_options, n) for n in range(4)]
    assert sorted(version.result() for version in versions) == [0, 1, 2, 3]
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        assert rows_of(s.scan("main.t")) == [(0,), (1,), (2,), (3,)]


def test_two_merges_of_one_new_key_at_once_make_one_row(bucket: str, s3_options: dict[str, str]) -> None:
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        s.execute("main.t", WriteSpec("error"), pa.table({"n": [0]}))
    with processes(2) as pool:
        merges = [pool.submit(_merge, bucket, s3_options) for _ in range(2)]
    for merge in merges:
        merge.result()
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        assert rows_of(s.scan("main.t")) == [(0,), (7,)]


def _merge(root: str, s3_options: dict[str, str]) -> None:
    with duckrun.connect(root, storage_options=s3_options) as s:
        s.execute("main.t", MergeSpec(("n",)), pa.table({"n": [7]}))
