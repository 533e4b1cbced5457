"""Random sequences of operations, and the tables that DuckDB itself makes of them.

The model is a native DuckDB table: expressions, NULL, NaN and merges mean there what they must mean on the lake.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import duckdb
import pyarrow as pa

from duckrun import MergeClause, MergeSpec, WriteSpec
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, RowSpec, UpdateSpec

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("q", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("ts", pa.timestamp("us")),
    ]
)
COLUMNS = SCHEMA.names
VALUES: dict[str, list[Any]] = {
    "id": [None, 0, 1, 2, 3, 4, 5, 6, 7, -1, 2**53 + 1],
    "p": [None, "a", "A", "b c", "é/ü", "o'clock", 'say "x"', "100%", "k=v", "日本", "%20", "+", "a:b", "#1"],
    "q": [None, 0, 1, -7],
    "x": [math.nan, None, 0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300, 5e-324],
    "s": [None, "", "x", "X", "O'Brien", 'a "b"', "ünïcode ☃", "a\nb", "long " * 12, "long " * 11 + "lonh", "NULL", "\U0001f600"],
    "d": [None, date(1969, 12, 31), date(2024, 2, 29), date(2024, 3, 1)],
    "ts": [None, datetime(2024, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1, 12, 30, 0, 123456)],
}  # fmt: skip
PARTITIONS = [(), (), ("p",), ("q",), ("p", "q"), ("d",)]
TRANSFORMED = [("year(d)",), ("month(ts)", "p"), ("day(ts)",), ("bucket(3, id)",), ("q", "bucket(2, s)")]
"""Partitions that a DuckLake has beside those."""
ROW_PREDICATES = [
    "id > 3",
    "id IS NULL",
    "id % 2 = 0 OR x > 1",
    "x > 1e10",
    "isnan(x)",
    "x = 0",
    "x <= -1 AND id < 5",
    "s = 'O''Brien'",
    "s > 'long long long long long long long long long long long lonh'",
    "s LIKE '%\"%'",
    "s = '' OR s IS NULL",
    "length(s) > 5",
    "d >= DATE '2024-03-01'",
    "ts > TIMESTAMP '2024-01-01'",
    "ts < TIMESTAMP '1970-01-01'",
    "id IN (SELECT max(i) FROM range(4) r(i))",
    "true",
    "false",
    "id / 2 > 1.4",
    "p = s OR q = id",
]
PARTITION_PREDICATES = {
    "p": ["p = 'a'", "p IS NULL", "p IN ('b c', 'é/ü', '100%')", "p = 'o''clock'", "p > 'a'", "upper(p) = 'A'"],
    "q": ["q = 0", "q < 0", "q IS NULL", "q + 1 = 2", "q IN (0, 1)"],
    "d": ["d = DATE '2024-02-29'", "d IS NULL", "d < DATE '2000-01-01'", "year(d) = 2024"],
    "ts": ["ts = TIMESTAMP '2024-01-01'", "ts IS NULL", "month(ts) = 12", "ts::DATE = DATE '2024-01-01'"],
    "id": ["id = 3", "id IS NULL", "id IN (1, 2, 9007199254740993)"],
    "s": ["s = 'x'", "s IS NULL", "s IN ('', 'NULL')"],
}
EXPRESSIONS: dict[str, list[str]] = {
    "x": ["x / 2", "x + coalesce(id, 0)", "7 / 2", "NULL", "-x", "'nan'::DOUBLE", "CASE WHEN id > 2 THEN x ELSE 0 END"],
    "s": ["upper(s)", "concat(s, '·', id)", "NULL", "'it''s'", "CAST(ts AS VARCHAR)", "list_aggregate(['b', s], 'string_agg', '-')"],
    "q": ["q + 1", "length(s)", "NULL", "coalesce(q, 0) % 3"],
    "d": ["d + 1", "DATE '2024-02-29'", "NULL"],
    "id": ["id + 1", "coalesce(id, 99)"],
}  # fmt: skip
KEYS = [("id",), ("id",), ("id", "p"), ("s",), ("x",), ("d", "q"), ("ts",), ("p", "q"), ("p",)]
MATCHED = [
    None,
    None,
    "source.id > 2",
    "target.x > source.x",
    "source.s IS DISTINCT FROM target.s",
    "target.q IS NULL",
    "isnan(source.x)",
    "source.id / 2 > 1",
]
NOT_MATCHED = [
    None,
    None,
    "source.id > 2",
    "source.s <> 'x'",
    "source.x IS NOT NULL",
    "isnan(source.x) OR source.q = 0",
]
BY_SOURCE = [None, "target.id > 3", "target.x IS NULL", "target.p = 'a'"]
ON = ["target.q = source.q", "source.id > 1", "target.x >= 0", "target.p = 'a'"]


@dataclass
class Operation:
    """One step: a spec with its rows, or a restore, or files staged in parts."""

    kind: str
    spec: RowSpec | None = None
    rows: pa.Table | None = None
    parts: int = 0
    version: int = 0  # its position among those so far
    as_stream: bool = False

    def __str__(self) -> str:
        rows = "" if self.rows is None else "\n      " + "\n      ".join(map(repr, self.rows.to_pylist()))
        extra = "".join(
            f" {name}={value}"
            for name, value in (("parts", self.parts), ("version", self.version), ("stream", self.as_stream))
            if value
        )
        return f"{self.kind}{extra} {self.spec or ''}{rows}"


def some_rows(rng: random.Random, count: int, partition_by: Sequence[str]) -> pa.Table:
    data = {c: [rng.choice(VALUES[c]) for _ in range(count)] for c in COLUMNS}
    if count and rng.random() < 0.2:  # a row twice
        for values in data.values():
            values.append(values[0])
    return pa.table(data, schema=SCHEMA)


def column_of(key: str) -> str:
    """The column of a partition key: ``ts`` of ``month(ts)``, ``id`` of ``bucket(3, id)``."""
    return key.rstrip(")").replace(",", "(").split("(")[-1].strip()


def predicate(rng: random.Random, partition_by: Sequence[str]) -> str:
    own = [p for c in partition_by for p in PARTITION_PREDICATES[column_of(c)]]
    if own and rng.random() < 0.5:
        return rng.choice(own)
    chosen = rng.choice(ROW_PREDICATES)
    return f"({chosen}) AND ({rng.choice(own)})" if own and rng.random() < 0.3 else chosen


def operation(rng: random.Random, partition_by: Sequence[str], versions: int, more: Sequence[str] = ()) -> Operation:
    """A step after as many versions; ``more`` are kinds of steps that change no row, of the lake's format."""
    kinds = [
        "append",
        "overwrite",
        "replace",
        "replace",
        "merge",
        "merge",
        "merge",
        "merge",
        "delete+insert",
        "update",
        "delete",
        "staged",
    ]
    kinds += ["replace_partitions"] * 2 if partition_by else []
    kinds += ["restore"] if versions > 1 else []
    kinds += more
    kind = rng.choice(kinds)  # fmt: skip
    if kind in more:
        return Operation(kind)
    rows = some_rows(rng, rng.choice([0, 1, 3, 6, 10]), partition_by)
    stream = rng.random() < 0.3
    if kind in ("append", "overwrite"):
        return Operation(kind, WriteSpec(kind), rows, as_stream=stream)
    if kind == "replace":
        where = predicate(rng, partition_by)
        fitting = duckdb.sql(f"SELECT * FROM rows WHERE ({where}) IS TRUE").to_arrow_table().cast(SCHEMA)
        return Operation(kind, WriteSpec("replace", predicate=where), fitting, as_stream=stream)
    if kind == "replace_partitions":
        return Operation(kind, WriteSpec("replace"), rows, as_stream=stream)
    if kind == "merge":
        return Operation(kind, merge_spec(rng), rows, as_stream=stream)
    if kind == "delete+insert":
        return Operation(kind, DeleteInsertSpec(rng.choice(KEYS)), rows, as_stream=stream)
    if kind == "update":
        chosen = rng.sample(sorted(EXPRESSIONS), rng.choice([1, 1, 2]))
        where = None if rng.random() < 0.1 else predicate(rng, partition_by)
        return Operation(kind, UpdateSpec({c: rng.choice(EXPRESSIONS[c]) for c in chosen}, where))
    if kind == "delete":
        return Operation(kind, DeleteSpec(None if rng.random() < 0.05 else predicate(rng, partition_by)))
    if kind == "staged":
        rows = some_rows(rng, rng.choice([2, 6, 10]), partition_by)
        return Operation(
            kind, WriteSpec(rng.choice(["append", "append", "overwrite"])), rows, parts=rng.choice([1, 2, 3])
        )
    return Operation("restore", version=rng.randrange(versions))


def merge_spec(rng: random.Random) -> MergeSpec:
    keys = rng.choice(KEYS)
    other = [c for c in COLUMNS if c not in keys]
    clauses: list[MergeClause] = []

    def values(kind: str, condition: str | None) -> MergeClause:
        style = rng.random()
        if style < 0.5 or kind == "not_matched_by_source_update":
            if kind == "not_matched_by_source_update":
                column = rng.choice(sorted(EXPRESSIONS))
                return MergeClause(kind, condition, set={column: qualified(rng.choice(EXPRESSIONS[column]), "target")})
            return MergeClause(kind, condition)
        if style < 0.75:
            columns = tuple(rng.sample(other, 2))
            return MergeClause(kind, condition, columns=(*keys, *columns) if kind.endswith("insert") else columns)
        column = rng.choice([c for c in sorted(EXPRESSIONS) if c not in keys])
        assigned = {column: qualified(rng.choice(EXPRESSIONS[column]), "source")}
        if kind.endswith("insert"):
            assigned |= {key: f"source.{key}" for key in keys}
        elif column == "x" and rng.random() < 0.5:
            assigned = {"x": "target.x + source.x"}
        return MergeClause(kind, condition, set=assigned)

    for condition in conditions(rng, MATCHED):
        clauses.append(
            MergeClause("matched_delete", condition) if rng.random() < 0.3 else values("matched_update", condition)
        )
    for condition in conditions(rng, NOT_MATCHED):
        clauses.append(values("not_matched_insert", condition))
    if rng.random() < 0.25:
        condition = rng.choice(BY_SOURCE)
        clauses.append(
            MergeClause("not_matched_by_source_delete", condition)
            if rng.random() < 0.5
            else values("not_matched_by_source_update", condition)
        )
    if not clauses:
        clauses = [MergeClause("matched_update"), MergeClause("not_matched_insert")]
    return MergeSpec(keys, tuple(clauses), on=rng.choice(ON) if rng.random() < 0.2 else None)


def conditions(rng: random.Random, pool: Sequence[str | None]) -> list[str | None]:
    """None to two conditions; only the last may be none at all (DuckDB refuses an unconditional clause before another)."""
    first = [c for c in pool if c is not None]
    return {0: [], 1: [rng.choice(pool)], 2: [rng.choice(first), rng.choice(pool)]}[rng.choice([0, 1, 1, 2])]


def qualified(expression: str, alias: str) -> str:
    """The bare columns of an expression, qualified."""
    import sqlglot
    from sqlglot import exp

    tree = sqlglot.parse_one(expression, read="duckdb")
    for column in tree.find_all(exp.Column):
        column.set("table", exp.to_identifier(alias))
    return tree.sql(dialect="duckdb")


@dataclass
class Model:
    """The table as native DuckDB keeps it, and what it was at each version of the lake's table."""

    connection: duckdb.DuckDBPyConnection
    partition_by: Sequence[str] = ()
    versions: dict[int, Counter[str]] = field(default_factory=dict)
    tables: dict[int, pa.Table] = field(default_factory=dict)

    def reset(self, partition_by: Sequence[str]) -> None:
        self.partition_by, self.versions, self.tables = partition_by, {}, {}
        self.connection.execute("DROP TABLE IF EXISTS model")
        self.given(SCHEMA.empty_table())
        self.connection.execute("CREATE TABLE model AS FROM source_rows")

    def given(self, rows: pa.Table) -> None:
        """Rows as a table of DuckDB's own: of Arrow data its filters leave NaN out."""
        self.connection.register("arrow_rows", rows)
        self.connection.execute("CREATE OR REPLACE TABLE source_rows AS FROM arrow_rows")

    def rows(self) -> pa.Table:
        return self.connection.execute("FROM model").to_arrow_table()

    def at(self, version: int) -> None:
        """The lake's table is at this version now."""
        if version not in self.versions:
            self.tables[version] = self.rows()
            self.versions[version] = multiset(self.tables[version])

    def asked(self, query: str, version: int) -> Counter[str]:
        """The answer to a question() of the table as it was at a version."""
        self.given(self.tables[version])
        return answer(self.connection.execute(query.replace("{}", "source_rows")).to_arrow_table())

    def breaks_merge(self, op: Operation) -> bool:
        """True where the source holds a key more than once."""
        assert isinstance(op.spec, MergeSpec)
        assert op.rows is not None
        self.given(op.rows)
        keys = ", ".join(op.spec.keys)
        present = " AND ".join(f"{k} IS NOT NULL" for k in op.spec.keys)
        found = self.connection.execute(
            f"SELECT 1 FROM source_rows WHERE {present} GROUP BY {keys} HAVING count(*) > 1"
        ).fetchone()
        return found is not None

    def apply(self, op: Operation) -> None:
        run, spec = self.connection.execute, op.spec
        self.given(op.rows if op.rows is not None else SCHEMA.empty_table())
        if op.kind == "restore":
            self.given(self.tables[sorted(self.tables)[op.version]])
            run("DELETE FROM model")
        elif op.kind == "delete":
            assert isinstance(spec, DeleteSpec)
            run(f"DELETE FROM model WHERE {spec.predicate or 'true'}")
        elif op.kind == "update":
            assert isinstance(spec, UpdateSpec)
            sets = ", ".join(f"{c} = {e}" for c, e in spec.set.items())
            run(f"UPDATE model SET {sets} WHERE {spec.predicate or 'true'}")
        elif isinstance(spec, MergeSpec):
            run(merge_sql(spec))
            return
        elif isinstance(spec, DeleteInsertSpec):
            on = " AND ".join(f"model.{k} = s.{k}" for k in spec.keys)
            run(f"DELETE FROM model WHERE EXISTS (FROM source_rows s WHERE {on})")
        elif op.kind == "replace":
            assert isinstance(spec, WriteSpec)
            run(f"DELETE FROM model WHERE {spec.predicate}")
        elif op.kind == "replace_partitions":
            same = " AND ".join(f"model.{c} IS NOT DISTINCT FROM s.{c}" for c in self.partition_by)
            run(f"DELETE FROM model WHERE EXISTS (FROM source_rows s WHERE {same})")
        elif isinstance(spec, WriteSpec) and spec.mode == "overwrite":
            run("DELETE FROM model")
        if op.kind not in ("delete", "update"):
            run("INSERT INTO model FROM source_rows")


def merge_sql(spec: MergeSpec) -> str:
    """The MERGE that DuckDB itself runs."""
    on = " AND ".join([f"target.{k} = source.{k}" for k in spec.keys] + ([f"({spec.on})"] if spec.on else []))
    parts = [f"MERGE INTO model AS target USING source_rows AS source ON {on}"]
    for clause in spec.clauses:
        when = {
            "matched": "WHEN MATCHED",
            "not_matched": "WHEN NOT MATCHED BY TARGET",
            "not_matched_by_source": "WHEN NOT MATCHED BY SOURCE",
        }[clause.kind.rsplit("_", 1)[0]]
        condition = f" AND ({clause.condition})" if clause.condition else ""
        assigned = clause.set or {c: f"source.{c}" for c in clause.columns or COLUMNS}
        if clause.kind.endswith("delete"):
            action = "DELETE"
        elif clause.kind.endswith("insert"):
            action = f"INSERT ({', '.join(assigned)}) VALUES ({', '.join(assigned.values())})"
        else:
            action = "UPDATE SET " + ", ".join(f"{c} = {e}" for c, e in assigned.items())
        parts.append(f"{when}{condition} THEN {action}")
    return "\n".join(parts)


def question(rng: random.Random) -> str:
    """A query of a table, ``{}``, whose answer a reader could leave rows out of, by what it takes for true of values."""
    pool = [*ROW_PREDICATES, *(each for own in PARTITION_PREDICATES.values() for each in own)]
    column, where = rng.choice(COLUMNS), rng.choice(pool)
    return rng.choice(
        [
            f"SELECT * FROM {{}} WHERE {where}",
            f"SELECT * FROM {{}} WHERE {where}",
            f"SELECT {', '.join(f'min({c}), max({c}), count({c})' for c in COLUMNS)} FROM {{}}",
            f"SELECT {column}, count(*) FROM {{}} WHERE {where} GROUP BY {column}",
            f"SELECT * FROM {{}} ORDER BY {column} LIMIT 1000",
            f"SELECT a.id, b.id, b.s FROM {{}} AS a JOIN {{}} AS b ON a.{column} = b.{column}",
        ]
    )


def answer(table: pa.Table) -> Counter[str]:
    """The rows of a query, as multiset() has those of a table."""
    columns = [[v + 0.0 if isinstance(v, float) else v for v in column.to_pylist()] for column in table.columns]
    return Counter(map(repr, zip(*columns, strict=True)))


def multiset(table: pa.Table) -> Counter[str]:
    """Rows with how often each occurs. repr() takes NaN for equal to itself.

    -0.0 counts as 0.0: they are equal in SQL, and DuckDB keeps the sign neither in its own tables nor in Parquet (seen
    with 1.5.5: ``COPY (FROM (VALUES (0.0::DOUBLE), (2.0), (-0.0)) t(x))`` reads back as 0.0, 2.0, 0.0).
    """
    return answer(table.select(COLUMNS))
