"""Short logs in a store, which are read commit by commit, against deltalake's own reading of them."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import duckrun
from duckrun import AppTransaction, StorageError, WriteSpec
from duckrun.formats.delta.versions.short_logs import MOST, short_log
from duckrun.storage.storage import Storage
from duckrun.values.rows import DeleteSpec
from duckrun.values.snapshot import TableRef
from tests.lake import rows_of

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "tue", None]})
TWO_ON_MONDAY = pa.table({"id": [1, 2], "day": ["mon", "mon"]})


@pytest.fixture
def bucket(s3_bucket: Callable[[str], str], request: pytest.FixtureRequest) -> str:
    return s3_bucket(request.node.name.replace("_", "-").replace("[", "-").rstrip("]")[-40:].strip("-")) + "/root"


def _by_deltalake(location: str, options: dict[str, str]) -> None:
    write_deltalake(location, ROWS, partition_by=["day"], storage_options=options)
    app = CommitProperties(app_transactions=[Transaction("theirs", 7)])
    write_deltalake(location, ROWS.slice(0, 1), mode="append", storage_options=options, commit_properties=app)
    DeltaTable(location, storage_options=options).delete("id = 2")


def _by_vectors(location: str, options: dict[str, str]) -> None:
    with duckrun.connect(location.rsplit("/", 2)[0], storage_options=options) as other:
        properties = {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
        other.execute("main.t", WriteSpec("error", partition_by=("day",), table_properties=properties), ROWS)
        other.execute("main.t", WriteSpec("append", app=AppTransaction("theirs", 7)), TWO_ON_MONDAY)
        other.execute("main.t", DeleteSpec("id = 2", merge_mode="deletion_vectors"))


@pytest.mark.parametrize("make", [_by_deltalake, _by_vectors])
def test_a_fresh_session_reads_a_short_log_as_deltalake_does(
    make: Callable[[str, dict[str, str]], None], bucket: str, s3_options: dict[str, str]
) -> None:
    location = f"{bucket}/main/t"
    make(location, s3_options)
    theirs = DeltaTable(location, storage_options=s3_options)
    adds = pa.table(theirs.get_add_actions(flatten=False)).to_pylist()
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        ref = s.table("main.t").ref
        assert short_log(s.lake.storage, ref) is not None
        snapshot = s.snapshot("main.t")
        assert snapshot.version == theirs.version()
        assert snapshot.table_id == str(theirs.metadata().id)
        assert snapshot.schema.names == [field.name for field in theirs.schema().fields]
        assert sorted((f.spelled, f.size, f.rows) for f in snapshot.files()) == sorted(
            (add["path"], add["size_bytes"], add["num_records"]) for add in adds
        )
        assert {f.partition_values[snapshot.partition_columns[0]] for f in snapshot.files()} == {"mon", None}
        assert any(f.deletion_vector for f in snapshot.files()) == (make is _by_vectors)
        assert s.sql("select id from main.t order by id").toArrow()["id"].to_pylist() == [1, 1, 3]
        assert s.execute(
            "main.t", WriteSpec("append", app=AppTransaction("theirs", 7)), _like(snapshot.schema)
        ).replayed
        assert not s.execute(
            "main.t", WriteSpec("append", app=AppTransaction("ours", 1)), _like(snapshot.schema)
        ).replayed
        assert s.execute("main.t", WriteSpec("append", app=AppTransaction("ours", 1)), _like(snapshot.schema)).replayed


def _like(schema: pa.Schema) -> pa.Table:
    return pa.table({schema.names[0]: [9], schema.names[1]: ["mon"]})


def test_a_log_with_more_commits_or_a_checkpoint_is_left_to_deltalake(bucket: str, s3_options: dict[str, str]) -> None:
    location, storage = f"{bucket}/main/t", Storage(bucket, s3_options)
    ref = TableRef("main", "t", location)
    for _ in range(MOST):
        write_deltalake(location, ROWS, mode="append", storage_options=s3_options)
    log = short_log(storage, ref)
    assert log is not None and len(log.commits) == MOST
    write_deltalake(location, ROWS, mode="append", storage_options=s3_options)
    assert short_log(storage, ref) is None
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        assert s.sql("select count(*) as n from main.t").collect() == [{"n": 3 * MOST + 3}]
    other = f"{bucket}/main/u"
    write_deltalake(other, ROWS, storage_options=s3_options)
    DeltaTable(other, storage_options=s3_options).create_checkpoint()
    assert short_log(storage, TableRef("main", "u", other)) is None
    with duckrun.connect(bucket, storage_options=s3_options) as s:
        assert rows_of(s.scan("main.u")) == rows_of(ROWS)


def test_a_damaged_short_log_is_an_error_that_names_the_table(bucket: str, s3_options: dict[str, str]) -> None:
    location = f"{bucket}/main/t"
    write_deltalake(location, ROWS, storage_options=s3_options)
    obstore.put(Storage(bucket, s3_options).store_at(location), "_delta_log/00000000000000000000.json", b'{"add":')
    with duckrun.connect(bucket, storage_options=s3_options) as s, pytest.raises(StorageError, match=r"main\.t"):
        s.sql("select * from main.t").collect()


def test_a_table_made_here_and_replaced_by_others_is_read_anew(bucket: str, s3_options: dict[str, str]) -> None:
    location = f"{bucket}/main/t"
    with (
        duckrun.connect(bucket, storage_options=s3_options) as s,
        duckrun.connect(bucket, storage_options=s3_options) as other,
    ):
        s.execute("main.t", WriteSpec("error"), ROWS)
        s.execute("main.u", WriteSpec("error"), ROWS)
        other.sql("drop table main.t")
        write_deltalake(location, pa.table({"v": ["theirs"]}), storage_options=s3_options)
        assert s.sql("select * from main.t").collect() == [{"v": "theirs"}]
        s.execute("main.t", WriteSpec("append"), pa.table({"v": ["ours"]}))
        assert rows_of(other.scan("main.t")) == [("ours",), ("theirs",)]
        s.sql("drop table main.t")
        s.execute("main.t", WriteSpec("error"), ROWS)
        assert rows_of(s.scan("main.t")) == rows_of(other.scan("main.t")) == rows_of(ROWS)


def test_a_merge_and_a_delete_read_the_files_of_a_store_by_name(
    bucket: str, s3_options: dict[str, str], tmp_path: Path
) -> None:
    """The same statements on a store and on a local disk, where delta_scan() reads the table."""
    amounts = pa.array([Decimal(1), None, Decimal(3), Decimal(4)], pa.decimal128(10, 2))
    rows = pa.table(
        {"id": [1, 2, 3, 4], "x": [1.5, float("nan"), None, -0.0], "d": amounts, "p": ["a", "b", None, "a"]}
    )
    statements = (
        "MERGE INTO main.t USING (SELECT 2 AS id, 9.5 AS x UNION ALL SELECT 9, 1) AS s ON t.id = s.id AND t.d IS NULL "
        "WHEN MATCHED THEN UPDATE SET x = s.x WHEN NOT MATCHED THEN INSERT (id, x) VALUES (s.id, s.x)",
        "DELETE FROM main.t WHERE x > 2 AND p = 'b'",
        "UPDATE main.t SET d = d + 1 WHERE p = 'a' OR p IS NULL",
    )
    results = []
    for root, options in ((bucket, s3_options), (str(tmp_path), None)):
        for parts in ((), ("p",)):
            with duckrun.connect(root, storage_options=options) as s:
                s.execute("main.t", WriteSpec("overwrite", partition_by=parts), rows)
                s.execute("main.t", WriteSpec("append"), rows.slice(0, 2))
                for statement in statements:
                    s.sql(statement)
                results.append(sorted(map(repr, rows_of(s.scan("main.t")))))
                s.sql("drop table main.t")
    assert results[0] == results[1] == results[2] == results[3]
    assert len(results[0]) == 5
