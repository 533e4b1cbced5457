"""A branch of a lake in an object store: fork, write, publish, discard."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import CommitConflict

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
