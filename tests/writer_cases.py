"""Clauses of merges in SQL, in Dagster's and dbt's words, and in Python for a model, with random rows: what both writers of DuckDB's
data files do alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from duckrun import MergeClause, Session
from tests.lake import rows_of

WRITERS = ("staged", "delta_rs")
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string()), ("v", pa.int64()), ("x", pa.float64())])
Row = dict[str, Any]
Condition = Callable[[Row, Row], bool]
"""Of a row of the source and one of the table; the one that is not there is empty."""


@dataclass(frozen=True)
class When:
    """One clause of a merge, in SQL for the writers and in Python for the model. ``set`` maps a column to its value in both."""

    kind: Any
    condition: str | None = None
    holds: Condition = lambda s, t: True
    set: dict[str, tuple[str, Condition]] | None = None

    def clause(self) -> MergeClause:
        values = None if self.set is None else {column: text for column, (text, _) in self.set.items()}
        return MergeClause(self.kind, self.condition, set=values)

    def metadata(self) -> dict[str, Any]:
        values = {} if self.set is None else {"set": {column: text for column, (text, _) in self.set.items()}}
        return {"kind": self.kind, **({} if self.condition is None else {"condition": self.condition}), **values}

    def sql(self) -> str:
        side, _, action = self.kind.rpartition("_")
        when = {"not_matched_by_source": "NOT MATCHED BY SOURCE"}.get(side, side.replace("_", " ").upper())
        values = {name: f"source.{name}" for name in SCHEMA.names}
        values = values if self.set is None else {column: text for column, (text, _) in self.set.items()}
        does = {
            "delete": "DELETE",
            "update": f"UPDATE SET {', '.join(f'{name} = {text}' for name, text in values.items())}",
            "insert": f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})",
        }[action]
        return f"WHEN {when}{'' if self.condition is None else f' AND {self.condition}'} THEN {does}"

    def dbt(self) -> tuple[str, str]:
        """The list of ``merge_clauses`` that it goes into, and the entry."""
        side, _, action = self.kind.rpartition("_")
        parts = [f"'action': '{action}'"]
        if side == "not_matched_by_source":
            parts.append("'by': 'source'")
        if self.condition is not None:
            parts.append(f"'condition': \"{_of_dbt(self.condition)}\"")
        if self.set is not None:
            values = ", ".join(f"'{column}': \"{_of_dbt(text)}\"" for column, (text, _) in self.set.items())
            others = [] if side == "not_matched_by_source" else [name for name in SCHEMA.names if name not in self.set]
            parts.append(f"'mode': 'explicit', 'update': {{'exclude': {others}, 'set_expressions': {{{values}}}}}")
        return "when_matched" if side == "matched" else "when_not_matched", f"{{{', '.join(parts)}}}"

    def applied(self, source: Row, target: Row) -> Row | None:
        """The row after it; None of one that is deleted."""
        if self.kind.endswith("delete"):
            return None
        if self.set is None:
            return dict(source)
        return {**target, **{column: value(source, target) for column, (_, value) in self.set.items()}}


def _of_dbt(text: str) -> str:
    return text.replace("source.", "DBT_INTERNAL_SOURCE.").replace("target.", "DBT_INTERNAL_DEST.")


UPDATE, DELETE, INSERT, GONE = (
    When("matched_update"), When("matched_delete"), When("not_matched_insert"), When("not_matched_by_source_delete"),
)  # fmt: skip
SUM = {"v": ("target.v + source.v", lambda s, t: s["v"] + t["v"])}
CLAUSES: dict[str, list[When]] = {
    "upsert": [UPDATE, INSERT],
    "update": [UPDATE],
    "update if": [When("matched_update", "source.v > target.v", lambda s, t: s["v"] > t["v"]), INSERT],
    "update set": [When("matched_update", set=SUM)],
    "key set": [When("matched_update", "source.v < 50", lambda s, t: s["v"] < 50, {"id": ("target.id + 1000", lambda s, t: t["id"] + 1000)})],
    "delete": [DELETE],
    "delete or update": [When("matched_delete", "source.v > 60", lambda s, t: s["v"] > 60), UPDATE, INSERT],
    "insert": [INSERT],
    "insert if": [When("not_matched_insert", "source.day = 'a'", lambda s, t: s["day"] == "a")],
    "sync": [UPDATE, INSERT, GONE],
    "by source set": [INSERT, When("not_matched_by_source_update", set={"v": ("target.v - 1", lambda s, t: t["v"] - 1)})],
    "by source if": [
        When("matched_update", set=SUM),
        When("not_matched_by_source_delete", "target.id is null", lambda s, t: t["id"] is None),
        When("not_matched_by_source_update", "target.v > 50", lambda s, t: t["v"] > 50, {"day": ("'z'", lambda s, t: "z")}),
    ],
}  # fmt: skip


def merged(table: Sequence[Row], source: Sequence[Row], whens: Sequence[When]) -> list[Row]:
    """The rows of a table after a merge by ``id``, by the words of SQL's MERGE."""

    def choose(side: str, source: Row, target: Row) -> When | None:
        return next((w for w in whens if w.kind.rpartition("_")[0] == side and w.holds(source, target)), None)

    by_key = {row["id"]: row for row in source if row["id"] is not None}
    present, after = {row["id"] for row in table}, []
    for target in table:
        met = by_key.get(target["id"])
        when = choose("not_matched_by_source", {}, target) if met is None else choose("matched", met, target)
        after.append(target if when is None else when.applied(met or {}, target))
    for row in source:
        if row["id"] is None or row["id"] not in present:
            when = choose("not_matched", row, {})
            after.append(None if when is None else when.applied(row, {}))
    return [row for row in after if row is not None]


def some_rows(random: Random, keys: range, count: int, nulls: int) -> list[Row]:
    """Rows with keys of their own, and some whose key is NULL: these differ in columns that delta_rs compares, or not at all."""
    ids: list[int | None] = [*random.sample(keys, count), *[None] * nulls]
    return [
        {
            "id": key,
            "day": random.choice(["a", "b", "it's", None]),
            "v": random.randrange(100),
            "x": None if key is None else random.choice([None, 0.5, float("nan"), -2.0]),
        }
        for key in ids
    ]


def arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def check(session: Session, table: str, expected: Sequence[Row]) -> None:
    """Read a table by three readers, and compare its rows with the model's."""
    location, names, rows = session.ref(table).location, SCHEMA.names, rows_of(arrow(expected))
    assert rows_of(session.sql(f"select {', '.join(names)} from {table}")) == rows
    assert rows_of(DeltaTable(location).to_pyarrow_table(), *names) == rows
    assert rows_of(pl.read_delta(location).select(names).to_arrow()) == rows
