"""Each kind of partitions, written in each way: what lies outside of the run's partitions stays as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from duckrun import WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource
from tests.dagster.slices import KINDS, WAYS, Kind, Row, Way, rows_before, rows_written, table_of

SINGLE_RUN = dg.BackfillPolicy.single_run()
BY_NAME = {"ids": lambda each: each.name}


def pairs(*, other: bool) -> list[Any]:
    """Each way with one kind, so that each kind comes up too; or the pairs beside those."""
    near = {(KINDS[number % len(KINDS)].name, way.name) for number, way in enumerate(WAYS)}
    return [
        pytest.param(kind, way, id=f"{kind.name}-{way.name}")
        for kind in KINDS
        for way in WAYS
        if ((kind.name, way.name) in near) is not other
    ]


PAIRS, OTHER_PAIRS = pairs(other=False), pairs(other=True)


class Slices:
    """A lake whose tables hold rows of four partitions and of none."""

    def __init__(self, root: Path, kind: Kind, **settings: Any) -> None:
        self.root, self.kind, self.instance = root, kind, kind.instance()
        self.lake = DuckrunResource(root_path=str(root))
        manager = DeltaIOManager(duckrun=self.lake, schema="main", preview=False, **settings)
        self.resources = {"duckrun": self.lake, "io_manager": manager}

    def make(self, name: str, *, partitioned: bool) -> None:
        columns = self.kind.columns if partitioned else ()
        with self.lake.session() as session:
            session.execute(name, WriteSpec("error", partition_by=columns), table_of(self.kind, rows_before(self.kind)))

    def asset(self, name: str, rows: Sequence[Row], **metadata: Any) -> dg.AssetsDefinition:
        @dg.asset(name=name, partitions_def=self.kind.definition(), backfill_policy=SINGLE_RUN, metadata=metadata)
        def written() -> pa.Table:
            return table_of(self.kind, rows)

        return written

    def run(self, assets: Sequence[Any], keys: Sequence[str], **arguments: Any) -> dg.ExecuteInProcessResult:
        tags = {}
        if len(keys) > 1:
            tags = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
        return dg.materialize(
            assets,
            instance=self.instance,
            resources=self.resources,
            partition_key=keys[0] if len(keys) == 1 else None,
            tags=tags,
            **arguments,
        )

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """The rows of a table, read by delta_rs."""
        table = DeltaTable(str(self.root / "main" / name)).to_pyarrow_table()
        return counted([tuple(row[c] for c in ("id", "v", *self.kind.columns)) for row in table.to_pylist()])

    def version(self, name: str) -> int:
        return DeltaTable(str(self.root / "main" / name)).version()


def counted(rows: Sequence[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    def plain(value: Any) -> Any:
        return value.astimezone(UTC).isoformat() if isinstance(value, datetime) and value.tzinfo else value

    return Counter(tuple(plain(value) for value in row) for row in rows)


def check(slices: Slices, way: Way, *, layouts: Sequence[tuple[bool, int]]) -> None:
    """Write one partition, or a range of two, of tables of each layout, and look at all of their rows."""
    kind = slices.kind
    for partitioned, count in layouts:
        name, keys = f"t_{partitioned}_{count}".lower(), kind.keys[1 : 1 + count]
        slices.make(name, partitioned=partitioned)
        source = rows_written(kind, keys)
        slices.run([slices.asset(name, source, **way.metadata(kind))], keys)
        expected = counted([row.values for row in way.after(rows_before(kind), source, keys)])
        found = slices.rows(name)
        assert found == expected, f"{name}, partitions {keys}: lost {expected - found}, beside them {found - expected}"


@pytest.mark.matrix
@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "way"), OTHER_PAIRS)
def test_what_lies_outside_of_the_run_s_partitions_stays_as_it_was(tmp_path: Path, kind: Kind, way: Way) -> None:
    check(Slices(tmp_path, kind), way, layouts=[(True, 1), (False, 1), (True, 2), (False, 2)])


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "way"), PAIRS)
def test_every_day_too_what_lies_outside_stays_as_it_was(tmp_path: Path, kind: Kind, way: Way) -> None:
    check(Slices(tmp_path, kind), way, layouts=[(True, 1), (False, 1), (True, 2), (False, 2)])


@pytest.mark.matrix
@pytest.mark.spark
@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "way"), PAIRS)
def test_on_spark_too_what_lies_outside_stays_as_it_was(tmp_path: Path, spark: Any, kind: Kind, way: Way) -> None:
    slices = Slices(tmp_path, kind, spark=SparkResource(), engine="spark")
    check(slices, way, layouts=[(True, 1), (False, 2)])


@pytest.mark.spark
@pytest.mark.matrix
@pytest.mark.whole  # half an hour
@pytest.mark.parametrize(("kind", "way"), OTHER_PAIRS)
def test_on_spark_the_other_pairs_stay_as_they_were(tmp_path: Path, spark: Any, kind: Kind, way: Way) -> None:
    slices = Slices(tmp_path, kind, spark=SparkResource(), engine="spark")
    check(slices, way, layouts=[(True, 1), (False, 2)])


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore", "safeappend"])
def test_modes_that_know_no_partition_leave_the_table_as_it_is(tmp_path: Path, mode: str) -> None:
    """The first two are refused for a table that is there, and the last one is none of an asset's modes."""
    slices = Slices(tmp_path, KINDS[0])
    slices.make("t", partitioned=True)
    source = rows_written(slices.kind, slices.kind.keys[1:2])
    asset = slices.asset("t", source, **Way(mode, mode).metadata(slices.kind))
    result = slices.run([asset], slices.kind.keys[1:2], raise_on_error=False)
    assert result.success is (mode == "ignore")
    assert slices.version("t") == 0


@pytest.mark.drawn(5)
@pytest.mark.parametrize("kind", KINDS, **BY_NAME)
def test_each_partition_is_read_as_the_rows_that_were_made_for_it(tmp_path: Path, kind: Kind) -> None:
    """One, a range, all that exist, and the whole table: which rows of no partition are in it, too."""
    slices, before = Slices(tmp_path, kind), rows_before(kind)
    slices.make("t", partitioned=False)
    upstream = dg.AssetSpec("t", partitions_def=kind.definition(), metadata={"partition_expr": kind.partition_expr})
    seen: list[list[tuple[Any, ...]]] = []

    def reader(definition: dg.PartitionsDefinition | None, mapping: dg.PartitionMapping | None = None) -> Any:
        ins = {"t": dg.AssetIn(partition_mapping=mapping, metadata={"allow_missing_partitions": True})}

        @dg.asset(partitions_def=definition, backfill_policy=SINGLE_RUN if definition else None, ins=ins)
        def reader(t: pa.Table) -> None:
            seen.append([tuple(row[c] for c in ("id", "v", *kind.columns)) for row in t.to_pylist()])

        return reader

    def expect(found: Any, keys: Sequence[str | None]) -> None:
        wanted = [row.values for row in before if row.partition in keys]
        assert counted(seen.pop()) == counted(wanted), found

    def some(keys: Sequence[str], *through: Any) -> None:
        slices.run([upstream, reader(kind.definition(), *through)], keys)

    for count in (1, 2):
        some(kind.keys[1 : 1 + count])
        expect(count, kind.keys[1 : 1 + count])
    some(kind.keys[1:2], dg.AllPartitionMapping())
    expect("all of them, by a partition", kind.keys)
    for mapping in (None, dg.AllPartitionMapping()):
        slices.run([upstream, reader(None, mapping)], ())
        expect("the whole table", [*kind.keys, None])
    slices.run([upstream, reader(None, dg.SpecificPartitionsPartitionMapping(list(kind.keys)))], ())
    expect("named partitions", kind.keys)
