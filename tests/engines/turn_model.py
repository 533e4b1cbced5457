"""A Delta table with features that are drawn at random, and a plain model of its rows: what steps that write it have to come to."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import duckrun
from tests.engines.turn_types import DRAWN, FOR_PARTITIONS, KINDS, as_arrow

TABLE = "main.t"
NEW = "a number that the table gives"
"""The value of an identity column in the model, until the table is read."""
START, STEP = 10, 3
TRACKED, MAPPED, FEED = "delta.enableRowTracking", "delta.columnMapping.mode", "delta.enableChangeDataFeed"
WIDENED, VECTORS, TIMED = "delta.enableTypeWidening", "delta.enableDeletionVectors", "delta.enableInCommitTimestamps"
LATER = {MAPPED: "name", TRACKED: "true", VECTORS: "true", WIDENED: "true", FEED: "true", TIMED: "true"}
STATISTICS = "spark.databricks.delta.stats.collect"
PLAIN = "plain Spark"
"""The name of Spark without our code, which writes too."""
OF_ARROW = ("append_arrow", "delete_insert", "overwrite", "overwrite_columns", "replace", "staged_over", "raced")
OF_SESSIONS = (*OF_ARROW, "optimize_full", "restart")
DEFAULT = "it's d\u00e9f"

Row = dict[str, Any]


@dataclass
class Column:
    """``role`` tells a column for good; ``name`` may change."""

    role: str
    name: str
    type: str
    more: str = ""
    """What CREATE TABLE says of it after its type."""


@dataclass
class State:
    """What a version holds: rows by the id of the model; in ``row_ids`` what Spark read of them."""

    columns: list[Column]
    rows: dict[int, Row]
    tokens: dict[int, object]
    """For each row a thing that stays the same as long as it is the same row."""
    row_ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    tracked: bool = False

    def copy(self) -> State:
        """With the same tokens."""
        return State(deepcopy(self.columns), deepcopy(self.rows), dict(self.tokens), dict(self.row_ids), self.tracked)


class Modelled:
    """One table from its first step to its last; close() is for its sessions."""

    def __init__(self, called: str, root: Path, spark: Any, *, few: float = 0.35, few_reads: bool = False) -> None:
        self.called, self.rng, self.few_reads = called, random.Random(called), few_reads
        self.root, self.spark = root, spark
        self.open()
        self.location = Path(self.sessions["duckdb"].ref(TABLE).location)
        self.log: list[str] = []
        self.taken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.history: dict[int, State] = {}
        self.numbers: set[int] = set()
        self.next_id, self.engine = 1, "duckdb"
        self.mark = -1
        self.tokens_of_ids: dict[int, object] = {}
        self.touched: set[int] = set()
        self.exact: dict[str, Counter[str]] | None = None
        self.fed = False
        self._draw(few)

    def open(self) -> None:
        """A session of each engine, by its name."""
        self.sessions = {
            "duckdb": duckrun.connect(self.root),
            "spark": duckrun.connect(self.root, engine="spark", spark=self.spark),
        }

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()

    def told(self, error: Exception) -> str:
        """What went wrong, and all steps until then."""
        where = [] if isinstance(error, AssertionError) else traceback.format_exception(error)
        return "\n".join([f"sequence {self.called}: {type(error).__name__}: {error}", *self.log, *where])

    # -- the table

    def _draw(self, few: float) -> None:
        has = lambda: self.rng.random() < few  # noqa: E731
        self.properties = {key: "true" for key in (TRACKED, VECTORS, TIMED, FEED, WIDENED) if has()}
        if has() or has():
            self.properties[MAPPED] = self.rng.choice(["name", "id"])
        if has():
            self.properties["delta.checkpointPolicy"] = "v2"
        if has():
            self.properties["delta.checkpointInterval"] = "2"
        mapped = MAPPED in self.properties
        odd, field_name = ("v w, (x)", "a b") if mapped else ("v", "ab")
        self.field_name = field_name
        columns = [Column("id", "id", "BIGINT")]
        self.strict = has()
        columns.append(Column("v", odd, "STRING", "NOT NULL" if self.strict else ""))
        columns.append(Column("m", "m", "INT"))
        if has():
            columns.append(Column("n", "n", "INT"))
        if has():
            columns.append(Column("s", "S tru" if mapped else "Stru", f"STRUCT<`{field_name}`: INT, `c.d`: STRING>"))
        self.generated = has()
        if self.generated:
            columns.append(Column("g", "g", "BIGINT", "GENERATED ALWAYS AS (CAST(m + 1 AS BIGINT))"))
        self.defaulted = has()
        if self.defaulted:
            columns.append(Column("d", "d", "STRING", 'DEFAULT "it\'s d\u00e9f"'))
            self.properties["delta.feature.allowColumnDefaults"] = "supported"
        self.always = self.rng.random() < 0.5
        if has():
            kind = "ALWAYS" if self.always else "BY DEFAULT"
            columns.append(
                Column("k", "k", "BIGINT", f"GENERATED {kind} AS IDENTITY (START WITH {START} INCREMENT BY {STEP})")
            )
        if has():
            columns.append(Column("x", "x", "VARIANT"))
        drawn = self.rng.sample(sorted(DRAWN), self.rng.choice([0, 1, 2, 3]))
        columns += [Column(f"t{at}", f"t {at}" if mapped else f"t{at}", kind) for at, kind in enumerate(drawn)]
        parts = [c for c in columns if c.type in FOR_PARTITIONS and has()][:1]
        columns.append(Column("p", "p q" if mapped else "p", "STRING"))
        layout = self.rng.choice(["plain", "plain", "clustered", "partitioned", "partitioned"])
        self.partitioned = layout == "partitioned"
        self.layout = {
            "plain": "",
            "clustered": "CLUSTER BY (id)",
            "partitioned": f"PARTITIONED BY ({', '.join(quoted(c.name) for c in (columns[-1], *parts))})",
        }[layout]
        if self.rng.random() < 0.5:
            self.rng.shuffle(columns)
        self.now = State(columns, {}, {})
        self.check = has()

    def _has(self, role: str) -> bool:
        return any(c.role == role for c in self.now.columns)

    def _column(self, role: str) -> Column:
        return next(c for c in self.now.columns if c.role == role)

    def _name(self, role: str) -> str:
        return self._column(role).name

    def _n(self, role: str) -> str:
        return quoted(self._name(role))

    def _can(self, step: str) -> bool:
        """True if a step has something to do on the table as it is, and its engine has words for it."""
        if self.engine == PLAIN and step in OF_SESSIONS:
            return False
        if step in OF_ARROW and self._has("x"):  # a variant has no form in Arrow
            return False
        if step in ("update", "delete", "merge", "delete_insert", "staged_over", "raced"):
            return bool(self.now.rows)
        return {
            "add_column": lambda: not self._has("e"),
            "drop_column": lambda: any(map(self._has, "esn")),
            "widen": lambda: self._has("n") and self._column("n").type == "INT",
            "turn_on": lambda: bool(self._off()),
            "restore": lambda: bool(self.history),
            "overwrite_sql": lambda: not self._has("k"),
        }.get(step, lambda: True)()

    def _typed(self) -> list[str]:
        return [c.role for c in self.now.columns if c.type in DRAWN]

    def _off(self) -> list[str]:
        now = self._properties()
        return [key for key in sorted(LATER) if now.get(key, "none") in ("none", "false")]

    def _value(self, role: str) -> Any:
        rng = self.rng
        if rng.random() < 0.2 and not (role == "v" and self.strict):
            return None
        if role == "s":
            return (rng.choice([1, None, -7]), rng.choice(["q", "", None]))
        if self._column(role).type in DRAWN:
            return rng.choice(DRAWN[self._column(role).type].values)
        if role in ("m", "x"):
            return rng.randint(-5, 99)
        if role == "n":
            return rng.choice([2**31 - 1, 7, -(2**31), *([2**40] if self._column("n").type == "BIGINT" else [])])
        if role == "p":
            return rng.choice(["one", "two", "a/b =%c"])
        return rng.choice(["a", "b", "", "\u00fc'\"", "long " * 9])

    def _row(self) -> Row:
        row = {c.role: self._value(c.role) for c in self.now.columns if c.role not in ("id", "g", "k")}
        return self._given(row, list(row))

    def _given(self, row: Row, roles: Sequence[str]) -> Row:
        """The row as a table has it that was given only some columns."""
        given = {c.role: row.get(c.role) if c.role in roles else None for c in self.now.columns}
        if self._has("d") and "d" not in roles:
            given["d"] = DEFAULT
        if self._has("k"):
            given["k"] = NEW
        if "id" in row:
            given["id"] = row["id"]
        return self._with_generated(given)

    def _with_generated(self, row: Row) -> Row:
        if self._has("g"):
            row["g"] = None if row["m"] is None else row["m"] + 1
        return row

    def _rows(self, count: int) -> list[Row]:
        rows = []
        for _ in range(count):
            rows.append({**self._row(), "id": self.next_id})
            self.next_id += 1
        return rows

    def _some(self) -> list[int]:
        keys = sorted(self.now.rows)
        return sorted(self.rng.sample(keys, self.rng.randint(1, max(1, len(keys) // 2))))

    def _come(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.now.rows[row["id"]], self.now.tokens[row["id"]] = dict(row), object()

    def _go(self, keys: Iterable[int]) -> None:
        for key in keys:
            del self.now.rows[key], self.now.tokens[key]

    def _changed(self, key: int, values: Row) -> None:
        self.now.rows[key] = self._with_generated({**self.now.rows[key], **values})
        self.touched.add(key)

    def _altered(self) -> None:
        self.fed = False
        self.same_versions = self._is_mapped()

    def _is(self, value: str, key: str) -> bool:
        return self._properties().get(key) == value

    def _is_mapped(self) -> bool:
        return self._properties().get(MAPPED, "none") != "none"

    def _properties(self) -> dict[str, str]:
        return dict(self.sessions["duckdb"].snapshot(TABLE).properties)

    @property
    def version(self) -> int:
        return max(int(p.stem) for p in (self.location / "_delta_log").glob("*.json") if p.stem.isdigit())

    def _lit(self, role: str, value: Any) -> str:
        kind = "BIGINT" if role == "id" else self._column(role).type
        if value is None:
            return f"CAST(NULL AS {kind})"
        if kind == "VARIANT":
            return f"parse_json('{value}')"
        if role == "s":
            first = "CAST(NULL AS INT)" if value[0] is None else str(value[0])
            second = "CAST(NULL AS STRING)" if value[1] is None else f"'{value[1]}'"
            return f"named_struct('{self.field_name}', {first}, 'c.d', {second})"
        return KINDS[kind].said(value)

    def _selects(self, rows: Sequence[Row], roles: Sequence[str]) -> str:
        return " UNION ALL ".join("SELECT " + ", ".join(self._lit(r, row[r]) for r in roles) for row in rows)

    def _arrow(self, rows: list[Row]) -> pa.Table:
        found: dict[str, pa.Array] = {}
        for column in self.now.columns:
            if column.role in ("g", "k"):
                continue
            values = [row[column.role] for row in rows]
            if column.role == "s":
                kind = pa.struct([(self.field_name, pa.int32()), ("c.d", pa.string())])
                values = [None if v is None else {self.field_name: v[0], "c.d": v[1]} for v in values]
                found[column.name] = pa.array(values, kind)
            else:
                found[column.name] = as_arrow(column.type, values)
        return pa.table(found)


def quoted(name: str) -> str:
    return f"`{name}`"


def listed(keys: Iterable[int]) -> str:
    return ", ".join(map(str, keys))
