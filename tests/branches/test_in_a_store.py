"""A branch of a lake in an object store: fork, write, publish, discard."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import CommitConflict, StorageError
from tests.fixtures_answers import VerifyingStore

pytestmark = pytest.mark.s3


def test_a_branch_in_a_store_is_written_and_published(
    s3_bucket: Callable[[str], str], s3_options: dict[str, str]
) -> None:
    root = s3_bucket(f"branches-{uuid.uuid4().hex}") + "/lake"
    with (
        duckrun.connect(root, storage_options=s3_options) as main,
        duckrun.connect(root, storage_options=s3_options, branch="pr-42") as branch,
    ):
        main.sql("create table sales.orders as select i as id, 'EU' as region from range(10) r(i)")
        main.sql("alter table sales.orders set tblproperties ('delta.enableDeletionVectors' = 'true')")
        branch.sql("delete from sales.orders where id = 3")
        branch.sql("insert into sales.orders values (100, 'US')")
        branch.sql("create table sales.made as select 1 as x")
        main.sql("delete from sales.orders where id = 4")
        main.sql("insert into sales.orders values (50, 'US')")
        assert branch.sql("from sales.orders").count() == 10
        assert branch.tables() == ["sales.made", "sales.orders"]
        assert main.tables() == ["sales.orders"]
        rows = {row["id"] for row in main.diff("pr-42").table("sales.orders").collect()}
        assert rows == {3, 100}
        assert main.publish("pr-42").versions == {"sales.made": 0, "sales.orders": 4}
        expected = [0, 1, 2, 5, 6, 7, 8, 9, 50, 100]
        assert [row["id"] for row in main.sql("from sales.orders order by id").collect()] == expected
        plain = DeltaTable(f"{root}/sales/orders", storage_options=s3_options)
        ids = QueryBuilder().register("t", plain).execute("select id from t").read_all().column(0).to_pylist()
        assert sorted(ids) == expected
        with pytest.raises(CommitConflict, match="takes no more"):
            branch.sql("insert into sales.orders values (101, 'US')")
        with duckrun.connect(root, storage_options=s3_options, branch="pr-43") as other:
            other.sql("delete from sales.orders where id = 0")
            main.discard("pr-43")
            assert other.sql("from sales.orders").count() == 10


def test_the_paths_of_a_branch_are_signed_as_they_are_sent(
    s3_endpoint: str, s3_bucket: Callable[[str], str], s3_options: dict[str, str]
) -> None:
    root = s3_bucket(f"branches-{uuid.uuid4().hex}") + "/lake"
    store = VerifyingStore(s3_endpoint, s3_options["AWS_SECRET_ACCESS_KEY"])
    options = {**s3_options, "AWS_ENDPOINT_URL": store.url}
    try:
        with (
            duckrun.connect(root, storage_options=options) as main,
            duckrun.connect(root, storage_options=options, branch="pr-42") as branch,
        ):
            main.sql("create table sales.orders (id bigint, region varchar) partitioned by (region)")
            main.sql("alter table sales.orders set tblproperties ('delta.enableDeletionVectors' = 'true')")
            main.sql("insert into sales.orders select i, ['E U', 'São/1+2'][1 + i % 2] from range(10) r(i)")
            branch.sql("delete from sales.orders where id = 3")
            branch.sql("insert into sales.orders values (100, 'a%20b')")
            expected = [0, 1, 2, 4, 5, 6, 7, 8, 9, 100]
            query = "from sales.orders order by id"
            assert [row["id"] for row in branch.sql(query).collect()] == expected
            main.publish("pr-42")
            assert [row["id"] for row in main.sql(query).collect()] == expected
        assert store.refused == []
        assert store.verified > 20
        wrong = {**options, "AWS_SECRET_ACCESS_KEY": "another"}
        with pytest.raises(StorageError), duckrun.connect(root, storage_options=wrong) as other:
            other.sql(query).collect()
        assert store.refused
    finally:
        store.close()


@pytest.mark.spark
def test_both_engines_write_to_a_branch_in_a_store(
    spark: Any, s3_bucket: Callable[[str], str], s3_options: dict[str, str]
) -> None:
    root = s3_bucket(f"branches-{uuid.uuid4().hex}") + "/lake"
    with (
        duckrun.connect(root, storage_options=s3_options) as main,
        duckrun.connect(root, storage_options=s3_options, branch="pr-42", engine="spark", spark=spark) as branch,
    ):
        main.sql("create table sales.orders as select i as id, 'E U' as region from range(10) r(i)")
        main.sql("alter table sales.orders set tblproperties ('delta.enableDeletionVectors' = 'true')")
        main.sql("create table sales.nested as select {'a': 1} as s")
        branch.sql("delete from sales.orders where id = 3")
        branch.on("duckdb").sql("delete from sales.orders where id = 4")
        branch.sql("update sales.orders set region = 'US' where id = 5")
        branch.sql("create table sales.made as select count(*) as n from sales.orders")
        branch.sql("insert into sales.nested select {'a': 2} as s")
        assert branch.sql("from sales.nested").count() == 2
        expected = [(i, "US" if i == 5 else "E U") for i in range(10) if i not in (3, 4)]
        for name in ("spark", "duckdb"):
            rows = branch.on(name).sql("from sales.orders order by id").collect()
            assert [tuple(row.values()) for row in rows] == expected
        main.publish("pr-42")
        for session in (main, main.on("spark")):
            rows = session.sql("from sales.orders order by id").collect()
            assert [tuple(row.values()) for row in rows] == expected
        assert main.sql("from sales.made").collect() == [{"n": 8}]
    branch_logs = [key["path"] for key in main.lake.storage.keys(root) if "_duckrun/scratch" in key["path"]]
    assert branch_logs == []
