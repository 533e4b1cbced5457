"""Assets and dbt models that process just what changed, with outputs and upstreams in a DuckLake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, Session, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource, LakeConfig
from duckrun_dagster.upkeep.unseen import unseen_changes
from tests.dbt.conftest import Project, make_project  # noqa: F401  a fixture
from tests.ducklake.test_change_histories import plain
from tests.ducklake.test_dbt import lake_rows

pytestmark = pytest.mark.drawn(3)

RAW = dg.AssetSpec("raw").with_io_manager_key("io_manager")
INS = {"raw": dg.AssetIn(metadata={"changes": "min_delta", "key": ["id"]})}


@dg.asset(ins=INS, metadata={"merge_keys": "id"})
def copy(raw: pa.Table) -> pa.Table:
    """Equal to raw, always."""
    return raw


@dg.asset(ins={"raw": dg.AssetIn(metadata={"changes": "full_delta", "key": ["id"]})},
          metadata={"mode": "scd2", "merge_keys": "id", "sequence_by": "_commit_version"})  # fmt: skip
def past(raw: pa.Table) -> pa.Table:
    return raw


class Shop:
    def __init__(self, root: Path) -> None:
        self.root, self.instance = root / "lake", dg.DagsterInstance.ephemeral()
        self.lake = DuckrunResource(
            root_path=str(self.root), format="ducklake", lakes={"old": LakeConfig(root_path=str(root / "delta"))}
        )
        self.manager = DeltaIOManager(duckrun=self.lake)
        with self.session() as session:
            session.execute("raw", WriteSpec("overwrite"), SQL("select range as id, range * 10 as v from range(5)"))

    def session(self) -> Session:
        return duckrun.connect(self.root, format="ducklake")

    def do(self, *statements: str) -> None:
        with self.session() as session:
            for statement in statements:
                session.sql(statement)

    def run(self, *assets: Any, fails: bool = False, **arguments: Any) -> dict[str, Any]:
        result = dg.materialize(
            [RAW, *assets],
            instance=self.instance,
            resources={"io_manager": self.manager},
            raise_on_error=not fails,
            **arguments,
        )
        if fails:
            error = next(event for event in result.all_events if event.is_step_failure).step_failure_data.error
            return {"error": str((error.cause or error).message if error else "")}
        found = result.asset_materializations_for_node(assets[-1].key.path[-1])[0].metadata
        return {name: getattr(value, "value", value) for name, value in found.items()}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.session() as session:
            return [tuple(row.values()) for row in session.sql(sql).collect()]

    def equal(self) -> None:
        assert self.rows("from copy order by id") == self.rows("from raw order by id")

    def unseen(self) -> bool:
        return bool(unseen_changes(copy, self.manager, lambda key: {}))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_an_asset_follows_a_table_of_its_lake(shop: Shop) -> None:
    assert shop.unseen()
    first = shop.run(copy)
    shop.equal()
    assert (first["raw_from"], first["changes_whole"], shop.unseen()) == (-1, True, False)
    shop.do("update raw set v = 7 where id = 1", "delete from raw where id = 2", "insert into raw values (9, 90)")
    assert shop.unseen()
    second = shop.run(copy)
    shop.equal()
    told = {kind: second[f"raw_{kind}"] for kind in ("insert", "delete", "update_preimage", "update_postimage")}
    assert told == dict.fromkeys(told, 1) and second["raw_source"] == "the table"
    assert (second["rows_inserted"], second["rows_updated"], second["rows_deleted"]) == (1, 1, 1)
    before = len(shop.rows("select * from snapshots()"))
    third = shop.run(copy)
    assert third["raw_from"] == third["raw_to"] == second["raw_to"]
    assert len(shop.rows("select * from snapshots()")) == before, "nothing changed, and there is another snapshot"
    applied = "select app_id, version from _duckrun.applied where name = 'main.copy' order by snapshot"
    with plain(shop.root) as (connection, _):
        assert connection.execute(applied).fetchall() == [("changes:copy", 0), ("changes:copy", 1)]


def test_a_compaction_of_an_upstream_is_nothing_to_run_for(shop: Shop) -> None:
    shop.run(copy)
    shop.do("create table other as select 1 as n")
    with shop.session() as session:
        session.upkeep.merge_files("raw")
        session.upkeep.rewrite_files("raw", delete_threshold=0.01)
    with plain(shop.root) as (connection, _):
        connection.execute("call lake.set_option('data_inlining_row_limit', 10)")
        connection.execute("insert into raw values (9, 90)")
    assert shop.unseen()
    shop.run(copy)
    with plain(shop.root) as (connection, _):
        connection.execute("delete from raw where id = 9")
    shop.run(copy)
    with plain(shop.root) as (connection, _):  # another program's flush, which notes nothing
        connection.execute("call ducklake_flush_inlined_data('lake')")
        connection.execute("call ducklake_merge_adjacent_files('lake')")
    assert not shop.unseen()
    shop.equal()


def test_a_restored_output_reads_again_what_came_since(shop: Shop) -> None:
    shop.run(copy)
    with shop.session() as session:
        version = session.table("copy").snapshot().version
    shop.do("update raw set v = 7 where id = 1")
    shop.run(copy)
    with shop.session() as session:
        session.table("copy").restoreToVersion(version)
    assert shop.unseen()
    found = shop.run(copy)
    assert (found["raw_update_postimage"], found["changes_whole"]) == (1, False)
    shop.equal()


def older(session: Session) -> list[int]:
    """The snapshots before the newest version of raw."""
    newest = session.table("raw").snapshot().version
    return [entry["snapshot_id"] for entry in session.snapshots() if entry["snapshot_id"] < newest]


def test_only_a_full_refresh_goes_on_where_the_catalog_does_not_tell(shop: Shop) -> None:
    shop.run(copy)
    shop.do("insert into raw values (8, 8)", "insert into raw values (9, 9)")
    with shop.session() as session:
        spared = session.upkeep.expire(older(session))
        assert any("changes:copy" in warning for warning in spared.warnings)
    shop.run(copy)
    shop.equal()
    shop.do("insert into raw values (10, 10)", "insert into raw values (11, 11)")
    with shop.session() as session:
        session.upkeep.expire(older(session), spare_consumers=False)
    assert "full refresh" in shop.run(copy, fails=True)["error"]
    shop.run(copy, tags={"duckrun/full_refresh": "true"})
    shop.equal()
    shop.do("drop table raw", "create table raw as select 1 as id, 2 as v")
    assert "is another table now" in shop.run(copy, fails=True)["error"] and not shop.unseen()
    shop.run(copy, tags={"duckrun/full_refresh": "copy"})
    shop.equal()
    shop.do("drop table copy")
    assert shop.run(copy)["changes_whole"] is True
    shop.equal()


def test_an_output_that_is_renamed_goes_on(shop: Shop) -> None:
    shop.run(copy)
    shop.do("insert into raw values (8, 8)", "alter table copy rename to kept")
    kept = dg.asset(name="copy", ins=INS, metadata={"merge_keys": "id", "table": "kept"})(lambda raw: raw)
    found = shop.run(kept)
    assert (found["changes_whole"], found["raw_insert"]) == (False, 1)
    assert shop.rows("from kept order by id") == shop.rows("from raw order by id")


def test_a_history_is_kept(shop: Shop) -> None:
    shop.run(past)
    shop.do("update raw set v = 7 where id = 1", "update raw set v = 8 where id = 1", "delete from raw where id = 2")
    shop.run(past)
    assert shop.rows("select id, v from past where valid_to is null order by id") == shop.rows("from raw order by id")
    assert shop.rows("select v from past where id = 1 order by valid_from") == [(10,), (7,), (8,)]


@pytest.mark.parametrize("output", ["ducklake", "delta"])
def test_upstream_and_output_may_be_of_both_formats(shop: Shop, output: str) -> None:
    with shop.session() as session:
        session.attach(shop.root.parent / "delta", name="old")
        session.sql("create table old.main.raw as select * from raw")
    there = {"lake": "old"}
    raw = dg.AssetSpec("raw", metadata=there if output == "ducklake" else {}).with_io_manager_key("io_manager")
    own = {"merge_keys": "id", **(there if output == "delta" else {})}
    followed = dg.asset(name="copy", ins=INS, metadata=own)(lambda raw: raw)
    table, target = ("old.main.raw", "copy") if output == "ducklake" else ("raw", "old.main.copy")
    for statement in (None, f"update {table} set v = 7 where id = 1", f"delete from {table} where id = 3"):
        with shop.session() as session:
            session.attach(shop.root.parent / "delta", name="old")
            if statement is not None:
                session.sql(statement)
        dg.materialize([raw, followed], instance=shop.instance, resources={"io_manager": shop.manager})
        with shop.session() as session:
            session.attach(shop.root.parent / "delta", name="old")
            left, right = (session.sql(f"select id, v from {name} order by id").collect() for name in (table, target))
        assert left == right


def test_a_dbt_model_reads_changes(make_project: Callable[..., Project]) -> None:  # noqa: F811
    follow = "select id, item, price, _change_type from {{ changes(ref('raw'), 'min_delta', key=['id']) }}"
    raw = (
        "{{ config(materialized='incremental', unique_key='id', incremental_strategy='merge') }}"
        "select * from (values (1, 'fig', {{ var('n') }}), ({{ var('n') }}, 'pear', 0)) v(id, item, price)"
    )
    project = make_project(
        {
            "models/raw.sql": raw,
            "models/kept.sql": "{{ config(materialized='incremental', unique_key='id') }} " + follow,
            "models/states.sql": "{{ config(materialized='incremental', incremental_strategy='scd2', unique_key='id', sequence_by='_commit_version') }} "
            + follow.replace("min_delta", "full_delta").replace("price,", "price, _commit_version,"),
        },
        format="ducklake",
    )
    for n in (2, 3, 3):
        project.run("build", "--vars", f"n: {n}")
        assert lake_rows(project.lake, "from kept order by id") == lake_rows(project.lake, "from raw order by id")
    assert lake_rows(project.lake, "select price from states where id = 1 order by valid_from") == [(2,), (3,)]
    project.run("build", "--vars", "n: 4", "--full-refresh")
    assert lake_rows(project.lake, "from kept order by id") == lake_rows(project.lake, "from raw order by id")
