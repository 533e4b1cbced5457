"""Tables that one writer made and another changes: how each makes them, what a step does, and what a plain model says of it.

The model is a list of Python rows. A step is said once for the model and once for a session; nothing of ours computes what is
expected.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from duckrun import MergeClause, MergeSpec, Session, WriteSpec
from duckrun.storage.extensions import extension_path
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, UpdateSpec
from duckrun.values.tables import OptimizeSpec
from tests.alphabet import TEXTS, VALUES

Row = dict[str, Any]
SPARK_TYPES = {"VARCHAR": "STRING", "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMPTZ": "TIMESTAMP", "BLOB": "BINARY"}
KINDS = tuple(dict.fromkeys(value.kind for value in VALUES))
REFUSED_TEXTS = ("", "NULL", "__HIVE_DEFAULT_PARTITION__")
"""Texts that some reader of a partition takes for NULL: a write may refuse them, and says so."""

LONGEST = 250
"""Letters of a value that a folder's name holds behind that of its column."""

PROPERTIES: dict[str, dict[str, str]] = {
    "none": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "checkpoints": {"delta.checkpointInterval": "2"},
    "v2 checkpoints": {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"},
    "struct statistics": {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false", "delta.checkpointInterval": "1"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "mapping": {"delta.columnMapping.mode": "name"},
    "row tracking": {"delta.enableRowTracking": "true"},
}  # fmt: skip
EMBEDDED_REFUSES = ("in-commit timestamps", "mapping", "row tracking", "v2 checkpoints")
"""Features of tables that the embedded engine may refuse to write, by name."""


def plain(value: Any) -> Any:
    """A value as equality means it: NaN equals itself, zeros have no sign, instants are in UTC."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def multiset(rows: Sequence[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(row[name]) for name in ("id", "p", "v", "x")) for row in rows)


@dataclass
class Case:
    """One table: who makes it, who changes it, by which column it is partitioned."""

    number: int
    rng: random.Random
    maker: str
    engine: str
    kind: str
    partitioned: bool
    feature: str
    log: list[str] = field(default_factory=list)
    model: list[Row] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    @classmethod
    def drawn(cls, number: int, rng: random.Random) -> Case:
        maker = rng.choice(("plain spark", "plain spark", "plain deltalake", "duckdb", "spark"))
        engine = rng.choice(("duckdb", "duckdb", "spark"))
        feature = rng.choice(tuple(PROPERTIES)) if maker == "plain spark" else "none"
        kind = rng.choice(("VARCHAR", *KINDS))
        partitioned = rng.random() < 0.7 and (kind != "BLOB" or maker == "plain spark")
        case = cls(number, rng, maker, engine, kind, partitioned, feature)
        found = [value.value for value in VALUES if value.kind == kind]
        case.values = rng.sample(found, min(4, len(found)))
        return case

    def __str__(self) -> str:
        layout = "partitioned by" if self.partitioned else "with"
        return f"{self.number}: {self.maker} makes it, {self.engine} changes it; {layout} {self.kind} {self.values!r}; {self.feature}"

    @property
    def may_refuse(self) -> bool:
        """True where a refusal by name is an answer too."""
        if self.engine == "duckdb" and self.feature in EMBEDDED_REFUSES:
            return True
        odd = self.kind == "BLOB" or any(value in REFUSED_TEXTS for value in self.values)
        odd = odd or any(isinstance(value, str) and len(quote(value, safe="")) > LONGEST for value in self.values)
        years = any(isinstance(value, datetime) and value.year in (1, 9999) for value in self.values)
        return self.partitioned and (odd or years)

    @property
    def wraps(self) -> bool:
        """True where Spark writes instants that do not fit nanoseconds, as INT96: plain pyarrow reads those as others."""
        years = {value.year for value in self.values if isinstance(value, datetime)}
        return self.engine == "spark" and not self.partitioned and any(not 1678 <= year <= 2261 for year in years)

    # -- rows

    def rows(self, ids: Sequence[int]) -> pa.Table:
        """Rows with these ids and random values: Arrow, with the types of the columns."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE r (id BIGINT, p {self.kind}, v VARCHAR, x DOUBLE)")
        for number in ids:
            value = self.rng.choice([*self.values, None])
            text = self.rng.choice(TEXTS)
            connection.execute(
                "INSERT INTO r VALUES (?, ?, ?, ?)",
                [number, value, text, self.rng.choice((0.5, -0.0, math.nan, 1e300, None))],
            )
        table = connection.execute("FROM r").to_arrow_table()
        connection.close()
        return table

    def literal(self, value: Any) -> str:
        """A value of the column p in the SQL of the engine."""
        spark = self.engine == "spark"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'" if spark else "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
        text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
        text = text.replace("'", "''")
        if spark:
            text = text.replace("\\", "\\\\").replace("''", "\\'")
        return f"CAST('{text}' AS {SPARK_TYPES.get(self.kind, self.kind) if spark else self.kind})"


# -- making


def make(case: Case, location: Path, rows: pa.Table, spark: Any, session: Session, name: str) -> None:
    """The first rows of a table, by its maker."""
    by = ["p"] if case.partitioned else []
    if case.maker == "plain deltalake":
        write_deltalake(str(location), rows, partition_by=by or None)
    elif case.maker == "plain spark":
        file = location.with_name(f"{location.name}.parquet")
        pq.write_table(rows, file)
        kinds = {"id": "BIGINT", "p": SPARK_TYPES.get(case.kind, case.kind), "v": "STRING", "x": "DOUBLE"}
        columns = ", ".join(f"{column} {kind}" for column, kind in kinds.items())
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES[case.feature].items())
        spark.sql(
            f"CREATE TABLE delta.`{location}` ({columns}) USING DELTA"
            + (" PARTITIONED BY (p)" if by else "")
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )
        frame = spark.read.parquet(str(file))
        frame.selectExpr(*(f"CAST({column} AS {kind}) AS {column}" for column, kind in kinds.items())).write.format(
            "delta"
        ).mode("append").save(str(location))
        if case.feature == "vectors":
            gone = case.model.pop(0)["id"]
            spark.sql(f"DELETE FROM delta.`{location}` WHERE id = {gone}")
        file.unlink()
    else:
        session.execute(name, WriteSpec("append", partition_by=tuple(by)), rows)


# -- reading, by readers that are not ours


def by_delta_scan(location: Path, spark: Any) -> list[Row]:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"LOAD '{extension_path('delta').as_posix()}'")
    found = connection.execute("FROM delta_scan(?)", [f"file://{location}"]).to_arrow_table().to_pylist()
    connection.close()
    return found


def by_deltalake(location: Path, spark: Any) -> list[Row]:
    table = DeltaTable(str(location))
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise NotImplementedError("to_pyarrow_table reads no vectors")
    try:
        return table.to_pyarrow_table().to_pylist()
    except pa.ArrowInvalid as error:
        if "is not a valid decimal128 number" in str(error):
            raise NotImplementedError("to_pyarrow_table takes -1.10 for -1.-10 (docs/types.md)") from error
        raise


def by_spark(location: Path, spark: Any) -> list[Row]:
    return spark.read.format("delta").load(str(location)).toArrow().to_pylist()


READERS: dict[str, Callable[[Path, Any], list[Row]]] = {
    "plain delta_scan": by_delta_scan,
    "plain deltalake": by_deltalake,
    "plain spark": by_spark,
}

# -- steps: each changes the model, and gives what the session is to do

Step = Callable[[Case], tuple[str, Callable[[Session, str], Any]]]


def _ids(case: Case, new: int, old: int) -> list[int]:
    present = sorted({row["id"] for row in case.model})
    first = max([*present, 0]) + 1
    return [*case.rng.sample(present, min(old, len(present))), *range(first, first + new)]


def _by_id(rows: pa.Table) -> dict[int, Row]:
    return {row["id"]: row for row in rows.to_pylist()}


def append(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 3, 0))
    case.model += rows.to_pylist()
    return "append", lambda session, name: session.execute(name, WriteSpec("append"), rows)


def overwrite(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 4, 2))
    case.model = rows.to_pylist()
    return "overwrite", lambda session, name: session.execute(name, WriteSpec("overwrite"), rows)


def replace_partitions(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 2, 0))
    touched = {plain(row["p"]) for row in rows.to_pylist()}
    case.model = [row for row in case.model if plain(row["p"]) not in touched] + rows.to_pylist()
    return "replace partitions", lambda session, name: session.execute(name, WriteSpec("replace"), rows)


def replace_where(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 2, 1))
    low = min(row["id"] for row in rows.to_pylist())
    case.model = [row for row in case.model if row["id"] < low] + rows.to_pylist()
    spec = WriteSpec("replace", predicate=f"id >= {low}", dialect=case.engine)
    return f"replace id >= {low}", lambda session, name: session.execute(name, spec, rows)


def merge(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 2, 2))
    source = _by_id(rows)
    case.model = [source.pop(row["id"], row) for row in case.model] + list(source.values())
    return "merge by id", lambda session, name: session.execute(name, MergeSpec(("id",)), rows)


def merge_clauses(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 1, 3))
    source, kept = _by_id(rows), []
    odd = {row["id"] for row in case.model if row["id"] % 2}
    for row in case.model:
        if row["id"] not in source:
            if row["id"] not in odd:
                kept.append(row)
            continue
        given = source.pop(row["id"])
        kept.append({**row, "v": given["v"], "p": given["p"]} if row["id"] in odd else row)
    case.model = kept + list(source.values())
    clauses = (
        MergeClause("matched_update", "target.id % 2 = 1", set={"v": "source.v", "p": "source.p"}),
        MergeClause("not_matched_insert"),
        MergeClause("not_matched_by_source_delete", "target.id % 2 = 1"),
    )
    spec = MergeSpec(("id",), clauses, dialect=case.engine)
    return "merge with clauses", lambda session, name: session.execute(name, spec, rows)


def delete_insert(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    rows = case.rows(_ids(case, 1, 2))
    source = _by_id(rows)
    case.model = [row for row in case.model if row["id"] not in source] + rows.to_pylist()
    return "delete+insert", lambda session, name: session.execute(name, DeleteInsertSpec(("id",)), rows)


def update(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    some = case.rng.choice([row["id"] for row in case.model] or [0])
    case.model = [{**row, "v": "changed"} if row["id"] <= some else row for row in case.model]
    spec = UpdateSpec({"v": "'changed'"}, f"id <= {some}", dialect=case.engine)
    return f"update id <= {some}", lambda session, name: session.execute(name, spec)


def move(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    value = case.rng.choice(case.values)
    some = case.rng.choice([row["id"] for row in case.model] or [0])
    stored = case.rows([0]).schema.field("p").type
    exact = pa.array([value], stored)[0].as_py()
    case.model = [{**row, "p": exact} if row["id"] == some else row for row in case.model]
    spec = UpdateSpec({"p": case.literal(value)}, f"id = {some}", dialect=case.engine)
    return f"update p of id {some} to {value!r}", lambda session, name: session.execute(name, spec)


def delete(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    some = case.rng.choice([row["id"] for row in case.model] or [0])
    case.model = [row for row in case.model if row["id"] != some]
    spec = DeleteSpec(f"id = {some}", dialect=case.engine)
    return f"delete id {some}", lambda session, name: session.execute(name, spec)


def delete_value(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    value = case.rng.choice(case.values)
    stored = case.rows([0]).schema.field("p").type
    exact = plain(pa.array([value], stored)[0].as_py())
    case.model = [row for row in case.model if plain(row["p"]) != exact]
    spec = DeleteSpec(f"p = {case.literal(value)}", dialect=case.engine)
    return f"delete p = {value!r}", lambda session, name: session.execute(name, spec)


def delete_null(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    case.model = [row for row in case.model if row["p"] is not None]
    return "delete p IS NULL", lambda session, name: session.execute(name, DeleteSpec("p IS NULL", dialect=case.engine))


def optimize(case: Case) -> tuple[str, Callable[[Session, str], Any]]:
    return "optimize", lambda session, name: session.execute(name, OptimizeSpec())


def steps(case: Case) -> list[Step]:
    """Four to six steps of all kinds."""
    every: list[Step] = [
        append, overwrite, replace_where, merge, merge, merge_clauses, delete_insert, update, move, delete, delete_value, delete_null, optimize,
    ]  # fmt: skip
    if case.partitioned:
        every += [replace_partitions] * 3
    return case.rng.sample(every, case.rng.randint(4, 6))
