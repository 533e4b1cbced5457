"""The types of Delta, with their edges, and what else a source may hold; and the page that shows what becomes of both."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

PAGE = Path(__file__).resolve().parents[2] / "docs" / "types.md"
ENGINES = ("duckdb", "spark")
LIBRARIES = ("DuckDB", "Spark", "pyarrow", "polars", "pandas")
REFUSED = "refused"


@dataclass(frozen=True)
class Kind:
    """A type of Delta, and values at its edges; NULL is added to every one."""

    delta: str
    arrow: pa.DataType
    values: tuple[Any, ...]

    @property
    def column(self) -> str:
        """A name that is plain in every engine."""
        return "".join(c if c.isalnum() else "_" for c in self.delta)


def _integer(name: str, bits: int) -> Kind:
    return Kind(name, getattr(pa, f"int{bits}")(), (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))


_MOMENTS = (dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime.max)
_SCHEMA = pa.struct([("n", pa.int64()), ("words", pa.list_(pa.string()))])

KINDS = (
    Kind("boolean", pa.bool_(), (True, False)),
    _integer("byte", 8),
    _integer("short", 16),
    _integer("integer", 32),
    _integer("long", 64),
    Kind("float", pa.float32(), (0.5, float("nan"), float("inf"), 2.0**-149)),
    Kind("double", pa.float64(), (0.1, float("nan"), float("-inf"), 1.7976931348623157e308)),
    Kind("decimal(1,0)", pa.decimal128(1, 0), (Decimal(9), Decimal(-9))),
    Kind("decimal(18,3)", pa.decimal128(18, 3), (Decimal("999999999999999.999"), Decimal("-0.001"))),
    Kind("decimal(38,0)", pa.decimal128(38, 0), (Decimal("9" * 38), Decimal("-" + "9" * 38))),
    Kind("decimal(38,38)", pa.decimal128(38, 38), (Decimal("0." + "9" * 38), Decimal("-1E-38"))),
    Kind("string", pa.string(), ("", "ü 😀 'q' \"d\"\n\t\\", "x" * 5000, "NULL")),
    Kind("binary", pa.binary(), (b"", b"\x00\xff")),
    Kind("date", pa.date32(), (dt.date.min, dt.date(1969, 12, 31), dt.date.max)),
    Kind("timestamp", pa.timestamp("us", "UTC"), tuple(m.replace(tzinfo=dt.UTC) for m in _MOMENTS)),
    Kind("timestamp_ntz", pa.timestamp("us"), _MOMENTS),
    Kind("array<long>", pa.list_(pa.int64()), ([], [2**63 - 1, None, -(2**63)])),
    Kind("map<string,long>", pa.map_(pa.string(), pa.int64()), ([], [("a", 2**63 - 1), ("b", None)])),
    Kind("struct<n: long, words: array<string>>", _SCHEMA, ({"n": None, "words": None}, {"n": 1, "words": ["", None]})),
)  # fmt: skip
ROWS = max(len(kind.values) for kind in KINDS) + 1


def table(rows: int = ROWS) -> pa.Table:
    """One column for each type, with its values and NULL below them; ``id`` says which row is which."""
    columns = {"id": pa.array(range(ROWS), pa.int64())}
    for kind in KINDS:
        columns[kind.column] = pa.array([*kind.values, *[None] * (ROWS - len(kind.values))], kind.arrow)
    return pa.table(columns).slice(0, rows)


@dataclass(frozen=True)
class Odd:
    """What Delta has no type for. ``sql`` is DuckDB's literal, where DuckDB alone has the type; ``stored`` is the Delta type
    that holds it, None where it has to be refused; ``found`` what is read back. ``spark`` is what Spark makes of it where
    that is something else."""

    name: str
    stored: str | None
    arrow: pa.Array | None = None
    sql: str | None = None
    found: Any = None
    spark: str | None = None

    @property
    def engines(self) -> tuple[str, ...]:
        return ENGINES if self.arrow is not None else ENGINES[:1]

    def outcome(self, engine: str) -> str:
        """What a column of it has to become: a Delta type, or REFUSED."""
        return (engine == "spark" and self.spark) or self.stored or REFUSED


_NOON = dt.datetime(2020, 1, 1, 12)
_STRUCT_TIME = pa.array([{"t": dt.time(1)}], pa.struct([("t", pa.time64("us"))]))

ODD = (
    Odd("uint8", "smallint", pa.array([255], pa.uint8()), found=255),
    Odd("uint16", "int", pa.array([2**16 - 1], pa.uint16()), found=2**16 - 1),
    Odd("uint32", "bigint", pa.array([2**32 - 1], pa.uint32()), found=2**32 - 1),
    Odd("uint64", "decimal(20,0)", pa.array([2**64 - 1], pa.uint64()), found=Decimal(2**64 - 1)),
    Odd("hugeint of 38 digits", "decimal(38,0)", sql=f"{'9' * 38}::HUGEINT", found=Decimal("9" * 38)),
    Odd("hugeint of 39 digits", None, sql="170141183460469231731687303715884105727::HUGEINT"),
    Odd("uhugeint of 39 digits", None, sql="340282366920938463463374607431768211455::UHUGEINT"),
    Odd("bignum", None, sql="1::BIGNUM"),
    Odd("decimal256, a value of 40 digits", None, pa.array([Decimal("9" * 40)], pa.decimal256(40, 0))),
    Odd("float16", None, pa.array([0.5], pa.float16()), found=0.5, spark="float"),
    Odd("large_string, string_view", "string", pa.array(["ü"], pa.large_string()), found="ü"),
    Odd("dictionary, category, enum", "string", pa.array(["a"]).dictionary_encode(), found="a"),
    Odd("uuid", "string", sql="'6fa459ea-ee8a-3ca4-894e-db77e160355e'::UUID", found="6fa459ea-ee8a-3ca4-894e-db77e160355e"),
    Odd("json", "string", sql="'[1]'::JSON", found="[1]"),
    Odd("bit", "string", sql="'101'::BIT", found="101"),
    Odd("large_binary", "binary", pa.array([b"\xff"], pa.large_binary()), found=b"\xff"),
    Odd("fixed_size_binary", "binary", pa.array([b"ab"], pa.binary(2)), found=b"ab"),
    Odd("fixed_size_list, large_list", "array<bigint>", pa.array([[1, 2]], pa.list_(pa.int64(), 2)), found=[1, 2]),
    Odd("timestamp in s or ms", "timestamp_ntz", pa.array([_NOON], pa.timestamp("ms")), found=_NOON),
    Odd("timestamp in ns, whole microseconds", "timestamp_ntz", pa.array([_NOON], pa.timestamp("ns")), found=_NOON),
    Odd("timestamp in ns, with nanoseconds", None, pa.array([1], pa.timestamp("ns"))),
    Odd("instant in ns, whole microseconds", "timestamp", pa.array([_NOON], pa.timestamp("ns", "UTC")), found=_NOON.replace(tzinfo=dt.UTC)),
    Odd("instant in ns, with nanoseconds", None, pa.array([1], pa.timestamp("ns", "UTC"))),
    Odd("timestamp with another zone", "timestamp", pa.array([_NOON], pa.timestamp("us", "Europe/Berlin")),
        found=_NOON.replace(tzinfo=dt.UTC)),
    Odd("time", None, pa.array([dt.time(1)], pa.time64("us"))),
    Odd("time inside of a struct", None, _STRUCT_TIME),
    Odd("duration, interval", None, pa.array([dt.timedelta(1)], pa.duration("us"))),
    Odd("a column of NULL without a type", None, pa.nulls(1)),
)  # fmt: skip


WIDER = """
Where Delta keeps a type as a wider one, the table's column is of the wider type from then on, and takes what the source's own type would not. DuckDB's own tables would refuse it; a
[CHECK constraint](sql.md) does here too.

| made as | is | and then takes |
|---|---|---|
| `UTINYINT`, `USMALLINT`, `UINTEGER` | the next wider signed integer | negative numbers, 300 in a `UTINYINT` |
| `UBIGINT`, `HUGEINT`, `UHUGEINT` | a decimal without places | negative numbers, up to 20 or 38 digits; `//` and bit operators are not for decimals: cast to `HUGEINT` |
| `INTEGER[3]` | a list | lists of any length |
| `JSON`, `UUID`, `ENUM`, `BIT` | a text | any text; JSON functions work on it |
| `TIMESTAMP_S`, `TIMESTAMP_MS` | microseconds | fractions of a second |
| `VARCHAR(3)` | a text | any length, as in DuckDB |

In Spark's dialect `CHAR(n)` and `VARCHAR(n)` are limits, nested too. Every write of either engine refuses a longer value, trailing spaces included.
`CHAR` is stored as it is written and read with spaces up to n, so compare it with them: `k = 'a    '` (Spark pads a literal itself, DuckDB does not).
An overwrite keeps the limits of columns that keep their type; `CREATE OR REPLACE` makes the table anew. deltalake reads the values without spaces.
"""
VALUES = """
## Values at the ends
`tests/engines/test_values.py` writes every value of `tests/alphabet.py` as a value of a column and of a partition: DuckDB, deltalake and Spark read and find each, and merge, update, delete
and replace change it by itself. What not every reader has is `SchemaMismatch`, before anything is written:

- **Dates and times** outside of the years 1 to 9999, infinity among them: NULL or 9999-12-31 stands for never. On Spark `UPDATE` and the clauses of a `MERGE` compute values that are not looked at, nor are those inside of
  lists, maps and structs on either engine. Tables of others with such years can be read and changed.
- **Partition values**: the texts `''`, `NULL` and `__HIVE_DEFAULT_PARTITION__`, which a reader takes for NULL; on DuckDB a text that makes a folder's name longer than 255 bytes; and columns of type binary, for whose
  values no two readers have the same text, or of a nested type.
- **Negative decimals as partition values** are right in the log, and DuckDB and Spark read them; deltalake's own dataset (`to_pyarrow_table`) takes -1.10 for -1.-10 and fails, whoever wrote them. So delta_rs never writes tables that are
  partitioned by decimals or floating numbers.
"""
FRAMES = """
## What a frame may hold
The same for pandas, polars, Arrow and DuckDB on both engines, and in Dagster; `refused` is `SchemaMismatch`, which names the column.

- **Names.** Two columns of one name, or of names that differ in case only, are refused: Delta has one column of them. `collect()`, `pl()` and `show()` of a query with two columns `x` give the second as `x_1`. Any other name is taken, with spaces, commas, dots, quotes and letters of any alphabet; only a column that is new in a table is refused on Spark where its name holds a space or one of `,;{}()=` (`SchemaMismatch`).
- **A column of nothing but NULL**, also inside of lists, maps and structs, takes the type of the table's column, also in an overwrite. A new column is refused until it is cast. `select null as x` in DuckDB's SQL
  makes an `INTEGER`, as DuckDB's own `create table as` does; on Spark it is refused.
- **The index of a pandas frame** is kept where `to_parquet()` keeps it: as a column of its name, or `__index_level_0__` without one. An index without a name that is a `RangeIndex` counts the rows and is left out. It comes
  back as a column. Filtered or concatenated frames have an index that is no range: `reset_index(drop=True)` leaves it out.
- **pandas**: periods and intervals are refused (`.dt.to_timestamp()`, `.astype(str)`), in categories and Arrow data too, and labels of several levels; values of several types name both types and the first row of each.
- **Python's dates and times**, in objects of pandas and in rows (`list[dict]`), are of one type in a column: dates beside times, and times with a zone beside times without one, are refused, nested too. So are nanoseconds of `pd.Timestamp` and `pd.Timedelta`.
- **Arrow**: on DuckDB a dictionary of structs, of lists of one length or of dictionaries, run ends of any of these or of lists, and a dense union are refused: decode them. A struct has a field, and each a name of its own.
"""


OPENING = """\
```python
import duckrun
import pandas as pd

s = duckrun.connect("lake/")
s.register("df", pd.DataFrame({"id": [1, 2], "day": pd.to_datetime(["2026-01-01", None])}))
s.sql("create table days as select id, day::date as day, [id, null] as parts from df")
assert s.table("days").toDF().toArrow().schema.field("day").type == "date32[day]"
```

<!-- rows: days -->

| id | day | parts |
|---|---|---|
| 1 | 2026-01-01 | [1, None] |
| 2 | NULL | [2, None] |

"""


def page(types: Mapping[str, Mapping[str, str]], odd: Mapping[tuple[str, str], str]) -> str:
    """docs/types.md. ``types``: Delta type -> library -> its type; ``odd``: (source type, engine) -> what became of it."""
    head = f"""# Types

{OPENING}Written by `tests/engines/test_types.py`, whose tests fill the tables: every type of Delta is written by both engines with its smallest and largest values, NaN, infinities and NULL,
and read by both into each library; the values are equal in every cell. The same with pandas and polars frames as the source, with no rows, and with 1,000 columns.

## Delta's types, and what reads them
"""
    lines = [f"| Delta | {' | '.join(LIBRARIES)} |", "|---" * (len(LIBRARIES) + 1) + "|"]
    lines += [
        f"| {delta} | {' | '.join(f'`{each[library]}`' for library in LIBRARIES)} |" for delta, each in types.items()
    ]
    middle = """
- **pandas** has no NULL in integers, booleans and floats: an integer with NULLs is `float64` as everywhere in pandas, unless a value is beyond 2⁵³ and would become another: then it is
  `Int64` (inside of lists, a list of Python's integers). A NULL among floats is NaN, so the two cannot be told apart there: read such a column as Arrow or polars. Booleans with NULLs are objects.
- **pandas** has no map: it is a list of its pairs. A pandas column of maps is refused as a source, by its name: Arrow does not know what it is.
- Timestamps are microseconds. A `variant` has no Arrow form: cast it in SQL, keep it in a PySpark DataFrame, or leave it out (`UnsupportedFeature`, which names the column).

## What Delta has no type for
`refused` is `SchemaMismatch`, which names the column, before anything is written. A value that its column cannot hold (300 in a byte, 39 digits in a decimal) is an error too, on both engines.

"""
    odds = ["| source | duckdb | spark |", "|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in odd):
        odds.append(f"| {name} | {odd.get((name, 'duckdb'), '')} | {odd.get((name, 'spark'), '–')} |")
    return head + "\n".join(lines) + "\n" + middle + "\n".join(odds) + "\n" + WIDER + VALUES + FRAMES
