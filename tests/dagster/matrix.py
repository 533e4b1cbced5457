"""What the matrix is made of: types of values, kinds of partitions, and the five things that are done with each pair.

test_matrix.py runs it; docs/dagster_matrix.md is what ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin
from zoneinfo import ZoneInfo

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

import duckrun
from duckrun_dagster import DeltaIOManager, DuckrunResource, SparkResource

ACTIONS = ("write", "rewrite", "load one", "load range", "load all")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "dagster_matrix.md"
NEW_YORK = ZoneInfo("America/New_York")
SINGLE_RUN = dg.BackfillPolicy.single_run()


# ---------------------------------------------------------------- types


@dataclass(frozen=True)
class Type:
    """A type as a user names it: how rows become one of its values, and how its values become rows."""

    name: str
    annotation: Callable[[], Any]
    make: Callable[[pa.Table, Any], Any] | None
    rows: Callable[[Any], pa.Table] | None
    spark: bool = False
    handle: bool = False
    column: str | None = None
    """The one column that is loaded, by the metadata of the input."""
    fan_in: bool = False
    """A value for each partition, so none of what has no partitions."""

    @property
    def holds(self) -> type:
        """The class that a loaded value is of."""
        annotation = self.annotation()
        plain = [each for each in get_args(annotation) if isinstance(annotation, UnionType) and each is not type(None)]
        return get_origin(annotation) or annotation if not plain else plain[0]


def _spark_frame() -> Any:
    from pyspark.sql import DataFrame

    return DataFrame


def _relation(rows: pa.Table, lake: Any) -> Any:
    session = lake.session()
    session.register("given", rows)
    return session.sql("select * from given").native


def _query(rows: pa.Table, lake: Any) -> Any:
    lake.session().register("given", rows)
    return duckrun.SQL("select * from given")


def _spark_rows(rows: pa.Table, spark: Any) -> Any:
    return spark.createDataFrame(rows)


TYPES = (
    Type("pyarrow.Table", lambda: pa.Table, lambda rows, _: rows, lambda value: value),
    Type(
        "pyarrow.RecordBatchReader",
        lambda: pa.RecordBatchReader,
        lambda rows, _: rows.to_reader(),
        lambda value: value.read_all(),
    ),
    Type(
        "pyarrow.dataset.Dataset", lambda: ds.Dataset, lambda rows, _: ds.dataset(rows), lambda value: value.to_table()
    ),
    Type(
        "pandas.DataFrame",
        lambda: pd.DataFrame,
        lambda rows, _: rows.to_pandas(),
        lambda value: pa.Table.from_pandas(value, preserve_index=False),
    ),
    Type("polars.DataFrame", lambda: pl.DataFrame, lambda rows, _: pl.from_arrow(rows), lambda value: value.to_arrow()),
    Type(
        "polars.LazyFrame",
        lambda: pl.LazyFrame,
        lambda rows, _: pl.from_arrow(rows).lazy(),  # type: ignore[union-attr]
        lambda value: value.collect().to_arrow(),
    ),
    Type("duckdb.DuckDBPyRelation", lambda: duckdb.DuckDBPyRelation, _relation, lambda value: value.to_arrow_table()),
    Type("duckrun.Frame", lambda: duckrun.Frame, lambda rows, lake: _frame(rows, lake), lambda value: value.toArrow()),
    Type("duckrun.SQL", lambda: duckrun.SQL, _query, None),
    Type("duckrun.Table", lambda: duckrun.Table, None, lambda value: value.toDF().toArrow(), handle=True),
    Type("deltalake.DeltaTable", lambda: DeltaTable, None, lambda value: value.to_pyarrow_table(), handle=True),
    Type(
        "pyarrow.RecordBatch",
        lambda: pa.RecordBatch,
        lambda rows, _: rows.combine_chunks().to_batches()[0],
        lambda value: pa.Table.from_batches([value]),
    ),
    Type("list[dict]", lambda: list[dict], lambda rows, _: rows.to_pylist(), lambda value: pa.Table.from_pylist(value)),
    Type("pandas.Series", lambda: pd.Series, None, lambda value: pa.table({value.name: value}), column="n"),
    Type("polars.Series", lambda: pl.Series, None, lambda value: pa.table({value.name: value.to_arrow()}), column="n"),
    Type("Optional[pandas.DataFrame]", lambda: pd.DataFrame | None, None, lambda value: pa.Table.from_pandas(value)),
    Type(
        "dict[str, polars.DataFrame]",
        lambda: dict[str, pl.DataFrame],
        None,
        lambda value: pa.concat_tables(each.to_arrow() for each in value.values()),
        fan_in=True,
    ),
    Type("list[pyarrow.Table]", lambda: list[pa.Table], None, lambda value: pa.concat_tables(value), fan_in=True),
    Type("pyspark DataFrame", _spark_frame, _spark_rows, lambda value: value.toArrow(), spark=True),
)


def _frame(rows: pa.Table, lake: Any) -> Any:
    session = lake.session()
    session.register("given", rows)
    return session.sql("select * from given")


# ---------------------------------------------------------------- partitions


@dataclass(frozen=True)
class Kind:
    """A kind of partitions: three keys of it, and the rows of each. ``keys`` is empty for an asset without partitions."""

    name: str
    definition: Callable[[], dg.PartitionsDefinition] | None
    keys: tuple[Any, ...]
    column: str | Mapping[str, str] | None
    values: Callable[[Any], dict[str, list[Any]]]
    types: Mapping[str, pa.DataType]

    def rows(self, keys: tuple[Any, ...], run: int) -> pa.Table:
        """Two rows a partition: its columns, a number, and which run made them."""
        parts = [self.values(key) for key in keys]
        columns = {name: [value for part in parts for value in part[name]] for name in self.types}
        count = len(next(iter(columns.values())))
        arrays = {name: pa.array(values, self.types[name]) for name, values in columns.items()}
        return pa.table({**arrays, "n": pa.array(range(count)), "run": pa.array([run] * count)})


def _times(key: str, fmt: str, *after: timedelta, zone: Any = None) -> list[datetime]:
    start = datetime.strptime(key, fmt)
    if zone is None:
        return [start + each for each in after]
    return [start.replace(tzinfo=zone).astimezone(UTC) + each for each in after]


STATIC = ("it's", "a/b %", "é")
GRID = tuple(
    dg.MultiPartitionKey({"day": day, "store": store})
    for day, store in (("2024-01-01", "a"), ("2024-01-01", "b"), ("2024-01-02", "a"))
)

KINDS = (
    Kind("none", None, (), None, lambda _: {"at": ["x", "y"]}, {"at": pa.string()}),
    Kind(
        "daily, dates",
        lambda: dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04"),
        ("2024-01-01", "2024-01-02", "2024-01-03"),
        "at",
        lambda key: {"at": [day.date() for day in _times(key, "%Y-%m-%d", timedelta(0), timedelta(0))]},
        {"at": pa.date32()},
    ),
    Kind(
        "daily, texts",
        lambda: dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-04"),
        ("2024-01-01", "2024-01-02", "2024-01-03"),
        "at",
        lambda key: {"at": [key, key]},
        {"at": pa.string()},
    ),
    Kind(
        "hourly, in New York",
        lambda: dg.HourlyPartitionsDefinition(
            "2024-03-10-00:00", end_date="2024-03-10-04:00", timezone="America/New_York"
        ),
        ("2024-03-10-00:00", "2024-03-10-01:00", "2024-03-10-03:00"),
        "at",
        lambda key: {"at": _times(key, "%Y-%m-%d-%H:%M", timedelta(0), timedelta(minutes=59), zone=NEW_YORK)},
        {"at": pa.timestamp("us", "UTC")},
    ),
    Kind(
        "weekly, timestamps",
        lambda: dg.WeeklyPartitionsDefinition("2024-01-07", end_date="2024-01-28"),
        ("2024-01-07", "2024-01-14", "2024-01-21"),
        "at",
        lambda key: {"at": _times(key, "%Y-%m-%d", timedelta(0), timedelta(days=6, hours=23))},
        {"at": pa.timestamp("us")},
    ),
    Kind(
        "monthly, whole numbers",
        lambda: dg.MonthlyPartitionsDefinition("202401", end_date="202404", fmt="%Y%m"),
        ("202401", "202402", "202403"),
        "at",
        lambda key: {"at": [int(key), int(key)]},
        {"at": pa.int64()},
    ),
    Kind(
        "static",
        lambda: dg.StaticPartitionsDefinition(list(STATIC)),
        STATIC,
        "at",
        lambda key: {"at": [key, key]},
        {"at": pa.string()},
    ),
    Kind(
        "multi: day and store",
        lambda: dg.MultiPartitionsDefinition(
            {
                "day": dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-03"),
                "store": dg.StaticPartitionsDefinition(["a", "b"]),
            }
        ),
        GRID,
        {"day": "at", "store": "store"},
        lambda key: {
            "at": [datetime.fromisoformat(key.keys_by_dimension["day"]).date()] * 2,
            "store": [key.keys_by_dimension["store"]] * 2,
        },
        {"at": pa.date32(), "store": pa.string()},
    ),
    Kind(
        "dynamic",
        lambda: dg.DynamicPartitionsDefinition(name="matrix"),
        ("one", "two", "three"),
        "at",
        lambda key: {"at": [key, key]},
        {"at": pa.string()},
    ),
)


# ---------------------------------------------------------------- a cell


class Cell:
    """One type with one kind of partitions: runs the five actions on an empty lake and says what each gave."""

    def __init__(self, kind: Kind, of: Type, root: str, options: Mapping[str, str], spark: Any) -> None:
        self.kind, self.of, self.spark = kind, of, spark
        self.lake = DuckrunResource(root_path=root, storage_options=dict(options))
        manager = DeltaIOManager(duckrun=self.lake, spark=SparkResource() if spark is not None else None, preview=False)
        self.resources = {"io_manager": manager}
        self.instance = dg.DagsterInstance.ephemeral()
        self.definition = kind.definition() if kind.definition else None
        if isinstance(self.definition, dg.DynamicPartitionsDefinition):
            self.instance.add_dynamic_partitions("matrix", list(kind.keys))
        self.made = 0
        self.loaded: list[Any] = []

    def run(self) -> dict[str, str]:
        """Action -> what the page shows: yes, handle, or — for what a type is not for. Raises what fails."""
        found = dict.fromkeys(ACTIONS, "—")
        writer = self.of if self.of.make is not None else TYPES[0]
        everything = self.kind.keys or (None,)
        for key in everything:
            self.write(writer, key)
        assert self.count() == 2 * len(everything)
        self.write(writer, everything[0])
        assert self.count() == 2 * len(everything)
        assert self.runs_of(everything[0]) == {self.made}
        if self.of.make is not None:
            found |= {"write": "yes", "rewrite": "yes"}
        if self.of.rows is None or (self.of.fan_in and not self.kind.keys):
            return found
        yes = "handle" if self.of.handle else "yes"
        if self.kind.keys:
            found["load one"] = self.load(self.kind.keys[1], 2, yes)
            found["load range"] = self.load((self.kind.keys[0], self.kind.keys[1]), 4, yes)
        found["load all"] = self.load(None, 2 * len(everything), yes)
        return found

    def write(self, of: Type, key: Any) -> None:
        self.made += 1
        kind, made, spark, lake = self.kind, self.made, self.spark, self.lake

        @dg.asset(name="cell", partitions_def=self.definition, metadata=self.metadata)
        def cell() -> Any:
            assert of.make is not None
            return of.make(kind.rows((key,), made), spark if of.spark else lake)

        self.materialize([cell], key)

    def load(self, key: Any, rows: int, yes: str) -> str:
        """Load one partition, a range (a pair) or everything (None), and look at the rows."""
        loaded = self.loaded

        def body(cell: Any) -> None:
            loaded.append((type(cell), self.of.rows(cell) if self.of.rows else None))

        body.__annotations__ = {"cell": self.of.annotation(), "return": None}
        definition = None if key is None else self.definition
        narrowed = {} if self.of.column is None else {"columns": self.of.column}
        mapping = dg.AllPartitionMapping() if key is None and self.definition is not None else None
        upstream = dg.AssetSpec("cell", partitions_def=self.definition, metadata=self.metadata)
        reader = dg.asset(
            name="reader",
            partitions_def=definition,
            backfill_policy=SINGLE_RUN if definition is not None else None,
            ins={"cell": dg.AssetIn(partition_mapping=mapping, metadata=narrowed)},
        )(body)
        self.materialize([reader, upstream], key)
        as_type, table = loaded[-1]
        assert issubclass(as_type, self.of.holds), as_type
        everything = 2 * len(self.kind.keys or (None,))
        expected = everything if self.of.handle else rows
        assert table.num_rows == expected, f"{table.num_rows} rows, not {expected}"
        assert set(table.column_names) == ({self.of.column} if self.of.column else {*self.kind.types, "n", "run"})
        return yes

    def materialize(self, assets: Any, key: Any) -> None:
        tags = {}
        if isinstance(key, tuple):
            tags = {"dagster/asset_partition_range_start": key[0], "dagster/asset_partition_range_end": key[1]}
        result = dg.materialize(
            assets,
            instance=self.instance,
            resources=self.resources,
            partition_key=key if isinstance(key, str) else None,
            tags=tags,
        )
        assert result.success

    @property
    def metadata(self) -> dict[str, Any]:
        return {} if self.kind.column is None else {"partition_expr": self.kind.column}

    def count(self) -> int:
        with self.lake.session() as session:
            return session.sql("select * from cell").count()

    def runs_of(self, key: Any) -> set[int]:
        """Which runs made the rows of a partition, by the numbers that it was written with."""
        mine = self.kind.rows((key,), 0).to_pylist()
        names = list(self.kind.types)
        with self.lake.session() as session:
            rows = session.sql("select * from cell").collect()
        return {
            row["run"] for row in rows if any(all(_plain(row[c]) == _plain(each[c]) for c in names) for each in mine)
        }


def _plain(value: Any) -> Any:
    """Spark makes a timestamp without a zone one of its session's zone, which is UTC here."""
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


# ---------------------------------------------------------------- the page


OPENING = """\
```python
import dagster as dg
import pyarrow as pa

import duckrun
from duckrun_dagster import DeltaIOManager, DuckrunResource

days = dg.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])


@dg.asset(partitions_def=days, metadata={"partition_expr": "day"})
def sales(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key], "qty": [10]})


resources = {"io_manager": DeltaIOManager(duckrun=DuckrunResource(root_path="lake/"))}
for day in days.get_partition_keys():
    assert dg.materialize([sales], partition_key=day, resources=resources).success
```

<!-- rows: sales -->

| day | qty |
|---|---|
| 2026-01-01 | 10 |
| 2026-01-02 | 10 |
"""


def page(found: Mapping[tuple[str, str, str], Mapping[str, str]]) -> str:
    """The page of what ran: (where, type, kind) -> action -> what it gave."""
    lines = [
        "# What the matrix test ran",
        "",
        *OPENING.split("\n"),
        "Written by `tests/dagster/test_matrix.py`, which fails when this page differs from what ran. Each cell is one pair of type and kind of",
        "partitions, run on an empty lake: three partitions written, the first written again, then one, a range of two and everything loaded.",
        "",
        "Letters: **w**rite, **r**ewrite, load **o**ne, load a range (**g**), load **a**ll. A capital **H** instead of letters for loads: a handle of the",
        "whole table, with which nothing is loaded. No letter: the type has no such thing (a SQL value is not loaded, a handle is not written), or the",
        "asset no partitions. A series is loaded here as one column of the table (metadata `columns`); it is written too, as a table of that column.",
    ]  # fmt: skip
    for where in dict.fromkeys(key[0] for key in found):
        here = {key[1:]: value for key, value in found.items() if key[0] == where}
        types = list(dict.fromkeys(key[0] for key in here))
        kinds = list(dict.fromkeys(key[1] for key in here))
        lines += ["", f"## {where}", "", f"| type | {' | '.join(kinds)} |", f"|{'---|' * (len(kinds) + 1)}"]
        for name in types:
            cells = [_shown(here[name, kind]) if (name, kind) in here else "" for kind in kinds]
            lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(cell: Mapping[str, str]) -> str:
    letters = dict(zip(ACTIONS, "wroga", strict=True))
    text = "".join(letters[action] for action in ACTIONS if cell[action] == "yes")
    return text + ("H" if "handle" in cell.values() else "")
