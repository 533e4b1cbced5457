"""The features of Delta tables, each as a table of three rows, and the page that shows what both engines do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from duckrun.values.tables import ColumnSpec, CreateSpec, Identity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "features.md"
ENGINES = ("duckdb", "spark")
STEPS = ("read", "append", "merge", "update, delete", "optimize")

YES = "yes"
OTHER = "Spark"
"""Refused, with a message that names the feature and says to run this with engine: spark."""
APPENDS_ONLY = "append-only"
"""Refused on both engines, since it is what the table is for."""


@dataclass(frozen=True)
class Feature:
    """A table feature. ``made`` are statements of Spark's that make the table and its rows (1, a), (2, b), (3, c).

    ``spec`` is how the library is asked for it, where it can be. ``x`` is SQL of a third column's value; None where rows come
    without it. ``broken`` is SQL of a row that the table has to refuse. ``says`` is what a refusal calls the feature, as a
    pattern, where that is not its name without blanks. Values of a column that is not ``arrow`` have no form in it: on DuckDB they are written as NULL.
    """

    name: str
    made: tuple[str, ...]
    spec: CreateSpec | None = None
    x: str | None = None
    broken: str | None = None
    says: str = ""
    appends_only: bool = False
    arrow: bool = True
    note: str = ""


TWO = (ColumnSpec("id", "BIGINT"), ColumnSpec("v", "VARCHAR"))
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
        x="cast('2020-01-01 12:00:00.000001' as timestamp_ntz)",
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
        says="generated",
        broken="select cast(9 as bigint) as id, 'x' as v, cast(9 as bigint) as x",
        note="rows may come without it",
    ),
    _of_columns(
        "identity column",
        "id BIGINT, v STRING, x BIGINT GENERATED ALWAYS AS IDENTITY",
        spec=CreateSpec((*TWO, ColumnSpec("x", "BIGINT", identity=Identity()))),
        says="identity",
        note="rows come without it",
    ),
    _of_columns(
        "column default",
        "id BIGINT, v STRING DEFAULT 'q'",
        "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
        spec=CreateSpec((TWO[0], ColumnSpec("v", "VARCHAR", default="'q'"))),
        says="[dD]efault",
        note="an INSERT that does not name the column fills it on Spark",
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
        x="parse_json('{\"n\": 1}')",
        arrow=False,
        note="a column that is read as it is has no Arrow form: cast it in SQL, keep it in a PySpark DataFrame, or leave it out",
    ),
    _of_property("vacuum protocol check", "delta.feature.vacuumProtocolCheck", "supported"),
)  # fmt: skip


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
try:
    s.sql("create table wide (id int) using delta tblproperties ('delta.columnMapping.mode' = 'name')", dialect="spark")
except duckrun.UnsupportedFeature as error:
    print(error)  # names the feature, and says engine: spark
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
step was refused and left the table as it was. The tables are made by Spark's SQL, and again by the embedded engine where it can, and are then used by both.

- **{YES}**: done, and both engines read the same rows.
- **{OTHER}**: refused on DuckDB (`UnsupportedFeature`); the message names the feature and says to run this with `engine: spark`.
- **SQL**: made by a statement of Spark's SQL; `CreateSpec` and `table_properties` have no word for it.

| feature | DuckDB: create | {" | ".join(STEPS)} | Spark: create | {" | ".join(STEPS)} |
"""
    lines = ["|---" * (3 + 2 * len(STEPS)) + "|"]
    for feature in FEATURES:
        cells = [found[feature.name, engine, step] for engine in ENGINES for step in ("create", *STEPS)]
        lines.append(f"| {feature.name} | {' | '.join(cells)} |")
    notes = "\n".join(f"- **{feature.name}**: {feature.note}." for feature in FEATURES if feature.note)
    return head + "\n".join(lines) + "\n\n" + notes + "\n"
