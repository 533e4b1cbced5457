"""The features of Delta tables, each as a table of three rows, and the page that shows what both engines do with them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckrun
from duckrun.sql.names import transpile
from duckrun.sql.quoting import quote_identifier
from duckrun.values.tables import ColumnSpec, CreateSpec, Identity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "features.md"
ENGINES = ("duckdb", "spark")
STEPS = ("read", "append", "merge", "update, delete", "optimize", "alter", "restore")

YES = "yes"
OTHER = "Spark"
"""Refused, with a message that names the feature and says to run this with engine: spark."""
APPENDS_ONLY = "append-only"
"""Refused on both engines, since it is what the table is for."""


@dataclass(frozen=True)
class Extra:
    """A column beside id and v. ``value`` is SQL of its value in the row ``{id}``, None where rows come without it; ``holds`` is what is true of every
    row: both in Spark's SQL, or a pair in DuckDB's and in Spark's.
    """

    name: str = "x"
    value: str | tuple[str, str] | None = None
    holds: str | tuple[str, str] = "true"
    differ: bool = False
    """True if no two rows have the same."""

    @property
    def quoted(self) -> str:
        return "`" + self.name.replace("`", "``") + "`"

    def called(self, name: str) -> Extra:
        """The same column of another name."""
        holds = (self.holds,) if isinstance(self.holds, str) else self.holds
        renamed = tuple(re.sub(r"\bx\b", name, text) for text in holds)
        return replace(self, name=name, holds=renamed[0] if len(renamed) == 1 else renamed)


def for_engine(text: str | tuple[str, str], engine: str) -> tuple[str, str]:
    """SQL and its dialect."""
    return (text, "spark") if isinstance(text, str) else (text[ENGINES.index(engine)], engine)


@dataclass(frozen=True)
class Feature:
    """A table feature. ``made`` are statements of Spark's that make the table and its rows (1, a), (2, b), (3, c).

    ``spec`` is how the library is asked for it. ``broken`` is SQL of a row that the table has to refuse. ``says`` is what a refusal calls the feature, as a
    pattern, where that is not its name without blanks. Values of a column that is not ``arrow`` have no form in it.
    """

    name: str
    made: tuple[str, ...]
    spec: CreateSpec
    extras: tuple[Extra, ...] = ()
    broken: str | None = None
    says: str = ""
    appends_only: bool = False
    arrow: bool = True
    note: str = ""


TWO = (ColumnSpec("id", "BIGINT"), ColumnSpec("v", "VARCHAR"))
ODD = 'it\'s a "col" with spaces, ' + "and long " * 12 + "é"
ROWS = "INSERT INTO {t} (id, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')"


def _of_property(name: str, key: str, value: str = "true", note: str = "", says: str = "") -> Feature:
    made = (f"CREATE TABLE {{t}} (id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('{key}' = '{value}')", ROWS)
    return Feature(name, made, CreateSpec(TWO, table_properties={key: value}), note=note, says=says)


def _of_columns(name: str, columns: str, more: str = "", **rest: object) -> Feature:
    made = (f"CREATE TABLE {{t}} ({columns}) USING DELTA {more}", ROWS)
    return Feature(name, made, **rest)  # type: ignore[arg-type]


FEATURES = (
    _of_columns("none", "id BIGINT, v STRING", spec=CreateSpec(TWO)),
    Feature(
        "deletion vectors",
        (
            "CREATE TABLE {t} (id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
            "INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (0L, 'z'), (1L, 'a'), (2L, 'b'), (3L, 'c')",
            "DELETE FROM {t} WHERE id = 0",
        ),
        CreateSpec(TWO, table_properties={"delta.enableDeletionVectors": "true"}),
        note="DuckDB reads, writes and removes them ([which writes do](writing.md#how-rows-leave-a-table))",
    ),
    Feature(
        "column mapping by name",
        (
            "CREATE TABLE {t} (id BIGINT, old STRING) USING DELTA TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            "ALTER TABLE {t} RENAME COLUMN old TO v",
        ),
        CreateSpec(TWO, table_properties={"delta.columnMapping.mode": "name"}),
        says="columnMapping",
    ),
    _of_property("column mapping by id", "delta.columnMapping.mode", "id", says="columnMapping"),
    _of_property("row tracking", "delta.enableRowTracking"),
    _of_property(
        "change data feed",
        "delta.enableChangeDataFeed",
        note="both engines keep it ([change queries](changes.md#a-change-feed)); `writer: delta_rs` keeps what deltalake does",
    ),
    _of_columns("liquid clustering", "id BIGINT, v STRING", "CLUSTER BY (id)", spec=CreateSpec(TWO, cluster_by=("id",)), says="clustering"),
    Feature(
        "timestamp_ntz",
        ("CREATE TABLE {t} (id BIGINT, v STRING, x TIMESTAMP_NTZ) USING DELTA", ROWS),
        CreateSpec((*TWO, ColumnSpec("x", "TIMESTAMP"))),
        (Extra("x", "cast('2020-01-01 12:00:00.000001' as timestamp_ntz)", "x is null or x = cast('2020-01-01 12:00:00.000001' as timestamp_ntz)"),),
    ),
    Feature(
        "check constraint",
        ("CREATE TABLE {t} (id BIGINT, v STRING) USING DELTA", "ALTER TABLE {t} ADD CONSTRAINT few CHECK (id < 100)", ROWS),
        CreateSpec(TWO, checks={"few": "id < 100"}),
        broken="select cast(1000 as bigint) as id, 'x' as v",
    ),
    _of_columns(
        "not null",
        "id BIGINT NOT NULL, v STRING",
        spec=CreateSpec((ColumnSpec("id", "BIGINT", nullable=False), TWO[1])),
        broken="select cast(null as bigint) as id, 'x' as v",
    ),
    _of_columns(
        "generated column",
        "id BIGINT, v STRING, x BIGINT GENERATED ALWAYS AS (id * 2)",
        spec=CreateSpec((*TWO, ColumnSpec("x", "BIGINT", generated="id * 2"))),
        extras=(Extra(holds="x = id * 2"),),
        says="generated",
        broken="select cast(9 as bigint) as id, 'x' as v, cast(9 as bigint) as x",
        note="rows may come without it",
    ),
    _of_columns(
        "identity column",
        "id BIGINT, v STRING, x BIGINT GENERATED ALWAYS AS IDENTITY",
        spec=CreateSpec((*TWO, ColumnSpec("x", "BIGINT", identity=Identity()))),
        extras=(Extra(holds="x is not null", differ=True),),
        says="identity",
        note="rows come without it",
    ),
    _of_columns(
        "column default",
        "id BIGINT, v STRING DEFAULT 'q'",
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        spec=CreateSpec((TWO[0], ColumnSpec("v", "VARCHAR", default="'q'"))),
        says="[dD]efault",
        note="an INSERT that does not name the column fills it",
    ),
    Feature(
        "append-only",
        ("CREATE TABLE {t} (id BIGINT, v STRING) USING DELTA TBLPROPERTIES ('delta.appendOnly' = 'true')", ROWS),
        CreateSpec(TWO, table_properties={"delta.appendOnly": "true"}),
        appends_only=True,
    ),
    Feature(
        "type widening",
        (
            "CREATE TABLE {t} (id INT, v STRING) USING DELTA TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
            "ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",
            "INSERT INTO {t} VALUES (3, 'c')",
        ),
        CreateSpec(TWO, table_properties={"delta.enableTypeWidening": "true"}),
        note="on a table without it DuckDB and Spark widen a type too, by writing the table anew",
    ),
    _of_property("v2 checkpoints", "delta.checkpointPolicy", "v2", says="v2Checkpoint|checkpointPolicy"),
    _of_property("in-commit timestamps", "delta.enableInCommitTimestamps", says="inCommitTimestamp"),
    _of_columns(
        "variant",
        "id BIGINT, v STRING, x VARIANT",
        spec=CreateSpec((*TWO, ColumnSpec("x", "VARIANT"))),
        extras=(
            Extra(
                value=("""CAST(CAST('{"n": {id}}' AS JSON) AS VARIANT)""", """parse_json('{"n": {id}}')"""),
                holds=("x IS NULL OR CAST(x.n AS BIGINT) = id", "x is null or variant_get(x, '$.n', 'bigint') = id"),
            ),
        ),
        arrow=False,
        note="a column that is read as it is has no Arrow form: cast it in SQL, keep it in a PySpark DataFrame, or leave it out. Its values cannot be compared, so that change queries name their columns without it. JSON is cast (`::JSON::VARIANT`): without the cast DuckDB stores what it says, and Spark its text. Inside of a list, a map or a struct DuckDB reads it, and writes no file: that is refused by name, marking rows as deleted and altering the table are not",
    ),
    _of_property("vacuum protocol check", "delta.feature.vacuumProtocolCheck", "supported"),
    _of_columns(
        "partitioned",
        "id BIGINT, v STRING, x STRING",
        "PARTITIONED BY (x)",
        spec=CreateSpec((*TWO, ColumnSpec("x", "VARCHAR")), partition_by=("x",)),
        extras=(Extra("x", "concat('é ', {id} % 2)", "x is null or x = concat('é ', id % 2)"),),
    ),
    _of_columns(
        "nested columns",
        "id BIGINT, v STRING, x STRUCT<a: STRING, b: ARRAY<STRUCT<c: BIGINT>>>",
        spec=CreateSpec((*TWO, ColumnSpec("x", "STRUCT(a VARCHAR, b STRUCT(c BIGINT)[])"))),
        extras=(
            Extra(
                "x",
                "named_struct('a', 'n{id}', 'b', array(named_struct('c', cast({id} as bigint))))",
                ("x IS NULL OR (x.a = 'n' || id AND x.b[1].c = id)", "x is null or (x.a = concat('n', id) and x.b[0].c = id)"),
            ),
        ),
    ),
    _of_columns(
        "long and quoted names",
        f"id BIGINT, v STRING, `{ODD.replace('`', '``')}` BIGINT",
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        spec=CreateSpec((*TWO, ColumnSpec(ODD, "BIGINT")), table_properties={"delta.columnMapping.mode": "name"}),
        extras=(Extra(ODD, "cast({id} * 3 as bigint)", f"`{ODD.replace('`', '``')}` is null or `{ODD.replace('`', '``')}` = id * 3"),),
        note="which Delta has by column mapping",
    ),
)  # fmt: skip


def together(features: Sequence[Feature]) -> Feature:
    """A table that has all of some features; it is made by a spec."""
    specs = [feature.spec for feature in features]
    columns = [next((spec.columns[i] for spec in specs if spec.columns[i] != two), two) for i, two in enumerate(TWO)]
    extras: list[Extra] = []
    partition_by: tuple[str, ...] = ()
    for feature in features:
        for column, extra in zip(feature.spec.columns[2:], feature.extras, strict=True):
            own = extra.called(f"x{len(extras)}") if extra.name == "x" else extra
            columns.append(replace(column, name=own.name))
            extras.append(own)
            partition_by += (own.name,) if feature.spec.partition_by else ()
    spec = CreateSpec(
        tuple(columns),
        partition_by=partition_by,
        cluster_by=tuple(name for each in specs for name in each.cluster_by or ()),
        table_properties={key: value for each in specs for key, value in each.table_properties.items()},
        checks={name: text for each in specs for name, text in each.checks.items()},
    )
    return Feature(
        " + ".join(feature.name for feature in features),
        (),
        spec,
        tuple(extras),
        appends_only=any(feature.appends_only for feature in features),
        arrow=all(feature.arrow for feature in features),
    )


def source(feature: Feature, engine: str, *ids: int, v: str = "n") -> duckrun.SQL:
    """Rows of some ids, in an engine's dialect where they need it, with a value of each column that takes one; in the column v stand the letter and
    the id.
    """
    given = [extra for extra in feature.extras if extra.value is not None]
    values = [for_engine(extra.value or "", engine) for extra in given]
    dialect = "duckdb" if ("duckdb" in (said for _, said in values)) else "spark"
    columns = []
    for extra, (text, said) in zip(given, values, strict=True):
        name = extra.quoted if dialect == "spark" else quote_identifier(extra.name)
        columns.append(
            f"{text if said == dialect else transpile(text.replace('{id}', '1729'), said, dialect).replace('1729', '{id}')} as {name}"
        )
    row = ", ".join(["select cast({id} as bigint) as id", f"'{v}{{id}}' as v", *columns])
    return duckrun.SQL(" union all ".join(row.replace("{id}", str(i)) for i in ids), dialect)


def may_go_together(features: Sequence[Feature]) -> bool:
    """False for what the protocol forbids: two modes of column mapping, clusters with partitions."""
    modes = {
        each.spec.table_properties["delta.columnMapping.mode"]
        for each in features
        if "delta.columnMapping.mode" in each.spec.table_properties
    }
    return len(modes) < 2 and not (
        any(each.spec.partition_by for each in features) and any(each.spec.cluster_by for each in features)
    )


OPENING = """\
```python
import duckrun

s = duckrun.connect("lake/")
s.sql(
    "create table orders (id int not null, qty int, constraint some check (qty > 0)) using delta tblproperties ('delta.enableDeletionVectors' = 'true')",
    dialect="spark",
)
s.sql("insert into orders values (1, 10), (2, 20)")
s.sql("delete from orders where id = 2")
assert "deletionVectors" in s.table("orders").snapshot().writer_features
s.sql(
    "create table wide (id int, old int) using delta tblproperties ('delta.columnMapping.mode' = 'name')",
    dialect="spark",
)
s.sql("insert into wide values (1, 2)")
s.sql("alter table wide rename column old to new")  # metadata alone: no file is written anew
assert s.sql("select new from wide").collect()[0]["new"] == 2
```

<!-- rows: orders -->

| id | qty |
|---|---|
| 1 | 10 |

"""


def page(found: Mapping[tuple[str, str, str], str]) -> str:
    """docs/features.md from (feature, engine, step) -> what was found; the step "create" is there too."""
    head = f"""# Delta's features, on both engines

{OPENING}Written by `tests/engines/test_features.py`, which does each of these to a table with the feature and reads its rows after every step with both engines: they are the same, or the
step was refused and left the table as it was. The tables are made by Spark's SQL, and again by the library, and are then used by both. Pairs of features, and
all of them in one table, go through the same steps, each by one engine or the other.

- **{YES}**: done, and both engines read the same rows.
- **{OTHER}**: refused on DuckDB (`UnsupportedFeature`); the message names the feature and says to run this with `engine: spark`.
- **{APPENDS_ONLY}**: refused on both engines, since rows of such a table stay.

| feature | DuckDB: create | {" | ".join(STEPS)} | Spark: create | {" | ".join(STEPS)} |
"""
    lines = ["|---" * (3 + 2 * len(STEPS)) + "|"]
    for feature in FEATURES:
        cells = [found[feature.name, engine, step] for engine in ENGINES for step in ("create", *STEPS)]
        lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    notes = "\n".join(f"- **{feature.name}**: {feature.note}." for feature in FEATURES if feature.note)
    return head + "\n".join(lines) + "\n\n" + notes + "\n"
