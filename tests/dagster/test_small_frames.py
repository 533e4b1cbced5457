"""Frames without rows, contexts that tests build, and the counts that events carry.

Budget: 20 seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from duckrun.errors import SchemaMismatch
from duckrun_dagster import DeltaIOManager, DuckrunResource

PARTED = {"partition_expr": "k"}
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])


@pytest.fixture
def manager(tmp_path: Path) -> DeltaIOManager:
    return DeltaIOManager(duckrun=DuckrunResource(root_path=str(tmp_path / "lake")))


def rows(manager: DeltaIOManager, table: str) -> list[dict[str, Any]]:
    with manager.duckrun.session() as session:
        return session.sql(f"select * from {table} order by all").collect()


def materialized(
    asset: dg.AssetsDefinition, manager: DeltaIOManager, key: str | None = None
) -> dg.ExecuteInProcessResult:
    return dg.materialize([asset], partition_key=key, resources={"io_manager": manager})


# -- frames without rows


@pytest.mark.parametrize(
    "empty",
    [pd.DataFrame({"k": [], "v": [], "at": []}), pd.DataFrame(), pl.DataFrame({"k": [], "v": [], "at": []})],
    ids=["pandas", "pandas, no columns", "polars"],
)
def test_a_frame_without_rows_takes_the_types_of_the_table(manager: DeltaIOManager, empty: Any) -> None:
    content: list[Any] = [
        pd.DataFrame({"k": ["a", "a"], "v": [1, 2], "at": pd.to_datetime(["2026-01-01", "2026-01-02"])}),
        pd.DataFrame({"k": ["b"], "v": [3], "at": pd.to_datetime(["2026-01-03"])}),
    ]

    @dg.asset(key=["main", "t"], partitions_def=LETTERS, metadata=PARTED)
    def t() -> Any:
        return content.pop(0)

    assert materialized(t, manager, "a").success and materialized(t, manager, "b").success
    types = dict(described(manager))
    content.append(empty)
    assert materialized(t, manager, "a").success
    assert [row["k"] for row in rows(manager, "main.t")] == ["b"]
    assert dict(described(manager)) == types


def described(manager: DeltaIOManager) -> list[tuple[str, str]]:
    with manager.duckrun.session() as session:
        return [(field.name, str(field.type)) for field in session.table("main.t").snapshot().schema]


def test_an_overwrite_by_a_frame_without_rows_keeps_the_types(manager: DeltaIOManager) -> None:
    content = [pd.DataFrame({"name": ["x"], "n": [1]}), pd.DataFrame({"name": [], "n": []}), pd.DataFrame({"name": ["y"], "n": [2]})]  # fmt: skip

    @dg.asset(key=["main", "t"])
    def t() -> pd.DataFrame:
        return content.pop(0)

    for expected in ([{"name": "x", "n": 1}], [], [{"name": "y", "n": 2}]):
        assert materialized(t, manager).success
        assert rows(manager, "main.t") == expected


def test_floats_of_a_frame_without_rows_stay_floats(manager: DeltaIOManager) -> None:
    frame = pd.DataFrame({"price": [1.5, 2.5]})

    @dg.asset(key=["main", "t"])
    def t() -> pd.DataFrame:
        return frame[frame.price > 9].reset_index(drop=True)

    assert materialized(t, manager).success
    assert described(manager) == [("price", "double")]


@pytest.mark.parametrize("empty", [pd.DataFrame({"k": [], "v": []}), pl.DataFrame({"k": [], "v": []}), pd.DataFrame()])
def test_the_first_rows_of_a_partitioned_table_need_types(manager: DeltaIOManager, empty: Any) -> None:
    @dg.asset(key=["main", "t"], partitions_def=LETTERS, metadata=PARTED)
    def t() -> Any:
        return empty

    with pytest.raises(
        SchemaMismatch, match=r"Asset main/t has no rows, so its partition column 'k' has no type.*astype"
    ):
        materialized(t, manager, "a")
    assert not Path(str(manager.duckrun.root_path), "main", "t").exists()


def test_a_first_frame_without_rows_whose_columns_have_types_makes_the_table(manager: DeltaIOManager) -> None:
    @dg.asset(key=["main", "t"], partitions_def=LETTERS, metadata=PARTED)
    def t() -> pd.DataFrame:
        return pd.DataFrame({"k": [], "v": []}).astype({"k": "string", "v": "int64"})

    assert materialized(t, manager, "a").success
    assert [kind.removeprefix("large_") for _, kind in described(manager)] == ["string", "int64"]


# -- contexts that tests build


def test_an_input_is_built_from_the_output_that_wrote_it(manager: DeltaIOManager) -> None:
    output = dg.build_output_context(asset_key=["main", "t"])
    manager.handle_output(output, [{"x": 1}])
    assert manager.load_input(dg.build_input_context(upstream_output=output)).to_pylist() == [{"x": 1}]
    named = dg.build_input_context(name="t", upstream_output=output)
    assert manager.load_input(named).to_pylist() == [{"x": 1}]


@pytest.mark.parametrize("definition", [None, LETTERS], ids=["no definition", "definition"])
def test_a_context_with_a_partition_key_writes_and_reads_that_partition(
    manager: DeltaIOManager, definition: dg.PartitionsDefinition | None
) -> None:
    def output(key: str) -> dg.OutputContext:
        return dg.build_output_context(
            asset_key=["main", "p"], partition_key=key, asset_partitions_def=definition, definition_metadata=PARTED
        )

    for key, n in (("a", 1), ("b", 2), ("a", 3)):
        manager.handle_output(output(key), [{"k": key, "n": n}])
    assert rows(manager, "main.p") == [{"k": "a", "n": 3}, {"k": "b", "n": 2}]
    read: pa.Table = manager.load_input(dg.build_input_context(upstream_output=output("b")))
    assert read.to_pylist() == [{"k": "b", "n": 2}]
    chosen = dg.build_input_context(
        asset_key=["main", "p"], partition_key="a", asset_partitions_def=definition, upstream_output=output("b")
    )
    assert manager.load_input(chosen).to_pylist() == [{"k": "a", "n": 3}]


# -- events


@pytest.mark.parametrize("columns", [("k",), ("k", "n")], ids=["one column", "a folder for each"])
def test_events_of_a_range_have_the_rows_of_their_own_partition(
    manager: DeltaIOManager, columns: tuple[str, ...]
) -> None:
    @dg.asset(
        key=["main", "t"], partitions_def=LETTERS, metadata=PARTED, backfill_policy=dg.BackfillPolicy.single_run()
    )
    def t() -> pl.DataFrame:
        return pl.DataFrame({"k": ["a", "b", "b"], "n": [1, 2, 3]}).select(columns)

    tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
    result = dg.materialize([t], resources={"io_manager": manager}, tags=tags)
    events = result.asset_materializations_for_node("main__t")
    counts = {event.partition: event.metadata["dagster/partition_row_count"].value for event in events}
    assert counts == {"a": 1, "b": 2, "c": 0}
    assert all(next(iter(event.metadata)) == "dagster/row_count" for event in events)


def test_a_bare_list_is_rows(shop: Any) -> None:
    seen = []

    @dg.asset
    def items() -> list[dict[str, Any]]:
        return [{"x": 1}]

    @dg.asset
    def after(items: list) -> None:  # type: ignore[type-arg]
        seen.append(items)

    shop.run([items, after])
    assert seen == [[{"x": 1}]]
