"""An asset of changes with partitions: each partition applies its own changes, in any order, and rows move between them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

import duckrun
from duckrun import ApplySpec, InvalidConfig, RowsOutsidePartition
from duckrun_dagster import DeltaIOManager, DuckrunResource, check_definitions
from tests.drawing import seed

DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]
TWO_DAYS = {"early": DAYS[:2], "late": DAYS[2:]}
BY_DAY = dg.StaticPartitionsDefinition(DAYS)
BY_WINDOW = dg.DailyPartitionsDefinition(start_date=DAYS[0], end_date="2026-01-04")
BY_PART = dg.StaticPartitionsDefinition(list(TWO_DAYS))
RUNS, STEPS = 2, 5


class Model:
    """The upstream's rows in Python, and the same statements for the lake."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.rows, self._next = chance, dict[int, tuple[str, int]](), 0

    def statement(self) -> str:
        """One change of the rows: what it does is in the model when it is returned."""
        kind = self.chance.choice(["insert", "insert", "update", "move", "delete", "again"])
        key = self.chance.choice(sorted(self.rows)) if self.rows else -1
        day, value = self.chance.choice(DAYS), self.chance.randrange(100)
        if kind == "insert" or key < 0:
            self._next += 1
            self.rows[self._next] = (day, value)
            return f"insert into raw values ({self._next}, '{day}', {value})"
        if kind == "again":  # a row of the same key comes back in another partition
            self.rows[key] = (day, value)
            return f"delete from raw where id = {key}; insert into raw values ({key}, '{day}', {value})"
        if kind == "delete":
            del self.rows[key]
            return f"delete from raw where id = {key}"
        self.rows[key] = (day if kind == "move" else self.rows[key][0], value)
        return f"update raw set day = '{self.rows[key][0]}', v = {value} where id = {key}"


def consumer(changes: str, partitions: Any, *, mapped: bool = False) -> dg.AssetsDefinition:
    mapping = dg.StaticPartitionMapping(dict(zip(DAYS, ["early", "early", "late"], strict=True))) if mapped else None
    expression = "part" if mapped else "day"

    @dg.asset(
        key=["shop", "copy"],
        partitions_def=partitions,
        ins={
            "raw": dg.AssetIn(["shop", "raw"], partition_mapping=mapping, metadata={"changes": changes, "key": ["id"]})
        },
        metadata={"merge_keys": "id", "partition_expr": expression},
    )
    def copy(raw: pl.DataFrame) -> pl.DataFrame:
        if not mapped:
            return raw
        part = pl.when(pl.col("day") < DAYS[2]).then(pl.lit("early")).otherwise(pl.lit("late"))
        return raw.with_columns(part.alias("part"))

    return copy


@pytest.mark.drawn(3)
@pytest.mark.parametrize("lake_format", ["delta", "ducklake"])
@pytest.mark.parametrize(
    ("changes", "partitions", "mapped"),
    [
        ("min_delta", BY_DAY, False),
        ("min_delta", BY_WINDOW, False),
        ("min_delta", BY_PART, True),
    ],
    ids=["days", "windows", "mapped"],
)
def test_when_all_partitions_have_run_the_table_is_the_upstreams(
    tmp_path: Path, lake_format: str, changes: str, partitions: Any, mapped: bool
) -> None:
    chance = random.Random(f"{seed()} {lake_format} {changes} {mapped}")
    lake = DuckrunResource(root_path=str(tmp_path), format=lake_format)
    resources = {"io_manager": DeltaIOManager(duckrun=lake, preview=False)}
    instance, model = dg.DagsterInstance.ephemeral(), Model(chance)
    asset = consumer(changes, partitions, mapped=mapped)
    upstream = BY_DAY if mapped else partitions
    raw = dg.AssetSpec(["shop", "raw"], partitions_def=upstream, metadata={"partition_expr": "day"})
    keys = partitions.get_partition_keys()

    def run(key: str) -> None:
        dg.materialize(
            [raw.with_io_manager_key("io_manager"), asset],
            selection=[asset], partition_key=key, resources=resources, instance=instance,
        )  # fmt: skip

    def rows(session: Any, columns: str, table: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in session.sql(f"select {columns} from {table}").collect())

    with duckrun.connect(tmp_path, format=lake_format, schema="shop") as session:
        session.sql("create table raw as select 0 as id, '2026-01-01' as day, 0 as v")
        model.rows[0] = ("2026-01-01", 0)
        for _ in range(RUNS):
            for _ in range(STEPS):
                session.sql(model.statement())
                if chance.random() < 0.3:
                    run(chance.choice(keys))  # a rerun too, with nothing new
            for key in chance.sample(keys, len(keys)):
                run(key)
            expected = sorted((key, *values) for key, values in model.rows.items())
            assert rows(session, "id, day, v", "raw") == expected
            assert rows(session, "id, day, v", "copy") == expected, f"seed {seed()}"
            wanted = {"id", "day", "v"} | ({"part"} if mapped else set())
            assert {name.lower() for name in session.table("copy").toDF().columns} == wanted


def test_changes_are_applied_within_a_part_of_a_table(root: Path) -> None:
    def row(key: int, day: str, kind: str) -> dict[str, Any]:
        return {"id": key, "day": day, "_change_type": kind}

    within = ApplySpec(("id",), within="day = 'a'")
    with duckrun.connect(root) as session:
        session.sql("create table main.t as select * from (values (1, 'a'), (1, 'b'), (2, 'a')) t(id, day)")
        session.execute("main.t", within, pl.DataFrame([row(1, "a", "delete"), row(3, "a", "insert")]))
        held = sorted(tuple(each.values()) for each in session.sql("select * from main.t").collect())
        assert held == [(1, "b"), (2, "a"), (3, "a")]
        with pytest.raises(RowsOutsidePartition, match=r"main\.t"):
            session.execute("main.t", within, pl.DataFrame([row(1, "b", "delete")]))
        with pytest.raises(InvalidConfig, match="leave out within"):
            ApplySpec(("id",), "at", scd=2, within="day = 'a'")


def test_delete_and_insert_does_not_store_what_is_deleted(tmp_path: Path) -> None:
    @dg.asset(
        key=["shop", "copy"],
        ins={"raw": dg.AssetIn(["shop", "raw"], metadata={"changes": "min_delta", "key": ["id"]})},
        metadata={"merge_keys": "id", "mode": "delete+insert"},
    )
    def copy(raw: pl.DataFrame) -> pl.DataFrame:
        return raw

    lake = DuckrunResource(root_path=str(tmp_path))
    with duckrun.connect(tmp_path) as session:
        session.sql("create table shop.raw as select 1 as id")
    raw = dg.AssetSpec(["shop", "raw"]).with_io_manager_key("io_manager")
    result = dg.materialize(
        [raw, copy], selection=[copy], resources={"io_manager": DeltaIOManager(duckrun=lake)}, raise_on_error=False
    )
    [failed] = [event for event in result.all_events if event.is_step_failure]
    assert "'_change_type' says which are deleted" in str(failed.step_failure_data.error.cause.message)


def test_a_mode_of_sequences_is_refused_on_partitions_when_definitions_load(tmp_path: Path) -> None:
    @dg.asset(
        key=["shop", "copy"],
        partitions_def=BY_DAY,
        ins={"raw": dg.AssetIn(["shop", "raw"], metadata={"changes": "full_delta", "key": ["id"]})},
        metadata={"merge_keys": "id", "mode": "scd1", "sequence_by": "_commit_version", "partition_expr": "day"},
    )
    def copy(raw: pl.DataFrame) -> pl.DataFrame:
        return raw

    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(tmp_path)))
    with pytest.raises(InvalidConfig, match=r"Asset shop/copy: mode 'scd1' .* without partitions"):
        check_definitions(dg.Definitions([copy], resources={"io_manager": manager}))


@pytest.mark.parametrize(
    "policy", [dg.BackfillPolicy.single_run(), dg.BackfillPolicy.multi_run(2), dg.BackfillPolicy.multi_run(), None]
)
def test_runs_of_several_partitions_are_refused_when_definitions_load(
    tmp_path: Path, policy: dg.BackfillPolicy | None
) -> None:
    @dg.asset(
        key=["shop", "copy"],
        partitions_def=BY_WINDOW,
        ins={"raw": dg.AssetIn(["shop", "raw"], metadata={"changes": "min_delta", "key": ["id"]})},
        metadata={"merge_keys": "id", "partition_expr": "day"},
        backfill_policy=policy,
    )
    def copy(raw: pl.DataFrame) -> pl.DataFrame:
        return raw

    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(tmp_path)))
    definitions = dg.Definitions([copy], resources={"io_manager": manager})
    if policy is None or policy.max_partitions_per_run == 1:
        check_definitions(definitions)
    else:
        with pytest.raises(InvalidConfig, match=r"Asset shop/copy: .* several of them into one run\. .*multi_run\(\)"):
            check_definitions(definitions)


REGIONS = ["north", "south"]


def refreshing(root: Path, upstream: Any, metadata: dict[str, Any], partitions: Any, **settings: Any) -> Any:
    """A run of one partition of an asset that hands on the changes of shop.raw: a function of the key and the run's tags."""
    raw = dg.AssetSpec(["shop", "raw"], partitions_def=upstream, metadata=metadata).with_io_manager_key("io_manager")

    @dg.asset(
        key=["shop", "copy"],
        partitions_def=partitions,
        ins={"raw": dg.AssetIn(["shop", "raw"], metadata={"changes": "min_delta", "key": ["id"]})},
        metadata={"merge_keys": "id", **metadata},
    )
    def copy(raw: pl.DataFrame) -> pl.DataFrame:
        if upstream is not None:
            return raw
        return raw.filter(pl.col("day") == dg.AssetExecutionContext.get().partition_key)

    manager = DeltaIOManager(duckrun=DuckrunResource(root_path=str(root)), preview=False, **settings)
    instance = dg.DagsterInstance.ephemeral()

    def run(key: Any, **tags: str) -> None:
        dg.materialize(
            [raw, copy], selection=[copy], partition_key=key, instance=instance, tags=tags, resources={"io_manager": manager}
        )  # fmt: skip

    return run


def present(session: Any, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in session.sql(f"select id, day, region, v from {table}").collect())


BY_BOTH = dg.MultiPartitionsDefinition(
    {
        "day": dg.DailyPartitionsDefinition(start_date=DAYS[0], end_date=DAYS[2]),
        "region": dg.StaticPartitionsDefinition(REGIONS),
    }
)
TWO_DIMENSIONS = {"partition_expr": {"day": "day", "region": "region"}}
ONE = {"partition_expr": "day"}
FIRST_TWO = dg.StaticPartitionsDefinition(DAYS[:2])


def follows(
    root: Path, upstream: Any, metadata: dict[str, Any], partitions: Any, *, rounds: int = 2, **settings: Any
) -> None:
    """Rows move between days and regions. Behind each round the copy is the upstream, in whatever order the partitions ran."""
    chance = random.Random(seed())
    run, keys = refreshing(root, upstream, metadata, partitions, **settings), partitions.get_partition_keys()
    changes = [
        "update shop.raw set day = '2026-01-02', v = 7 where id = 0; update shop.raw set region = 'south' where id = 2; "
        "delete from shop.raw where id = 3; update shop.raw set v = 8 where id = 4",
        "update shop.raw set day = '2026-01-01' where id = 0; insert into shop.raw values (3, '2026-01-02', 'north', 9)",
    ]
    with duckrun.connect(root) as session:
        session.sql(
            "create table shop.raw as select i as id, '2026-01-0' || (1 + i % 2) as day, "
            "case when i < 4 then 'north' else 'south' end as region, i as v from range(8) t(i)"
        )
        for statements in ("", *changes[:rounds]):
            if statements:
                session.sql(statements)
            for key in chance.sample(keys, len(keys)):
                run(key)
            assert present(session, "shop.copy") == present(session, "shop.raw"), f"seed {seed()}"
        if rounds < len(changes):
            return
        version = session.snapshot("shop.copy").version
        run(keys[0], **{"duckrun/full_refresh": "true"})
        assert session.snapshot("shop.copy").version > version
        assert present(session, "shop.copy") == present(session, "shop.raw")


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    ("upstream", "metadata", "partitions"),
    [(BY_BOTH, TWO_DIMENSIONS, BY_BOTH), (None, ONE, FIRST_TWO)],
    ids=["two dimensions", "filtered by the asset"],
)
def test_rows_that_move_between_partitions_are_in_one_of_them(
    tmp_path: Path, upstream: Any, metadata: dict[str, Any], partitions: Any
) -> None:
    follows(tmp_path, upstream, metadata, partitions)


@pytest.mark.spark
def test_spark_applies_changes_within_a_partition(tmp_path: Path, with_spark: dict[str, Any]) -> None:
    follows(tmp_path, FIRST_TWO, ONE, FIRST_TWO, rounds=1, engine="spark", **with_spark)
