"""Random histories of writes and upkeep of a DuckLake, against plain Python: each snapshot that has not expired reads as the lake was when
it was made, by a session and by DuckDB alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import duckrun
from duckrun import SQL, MergeSpec, Session, WriteSpec
from duckrun.storage.extensions import extension_path

Rows = list[dict[str, Any]]
Multiset = Counter[tuple[tuple[str, Any], ...]]

HISTORIES = 100
STEPS = 14


def multiset(rows: Rows) -> Multiset:
    return Counter(tuple(sorted(row.items())) for row in rows)


class History:
    """One lake with a table, what was done to it, and what each of its snapshots is to hold."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session, self.random = session, random.Random(seed)
        self.columns: dict[str, str] = {"id": "BIGINT", "n": "INTEGER", "s": "VARCHAR"}
        self.rows: Rows = []
        self.next = 0
        self.held: dict[int, Rows] = {}
        self.done: list[str] = []
        self.write(WriteSpec("error", partition_by=("s",) if seed % 3 == 0 else ()), self.fresh(30))
        self.note("made")

    # -- the model

    def fresh(self, count: int) -> Rows:
        found = []
        for _ in range(count):
            row = {name: self.value(name, kind) for name, kind in self.columns.items()}
            row["id"] = self.next
            self.next += 1
            found.append(row)
        self.rows = self.rows + found
        return found

    def value(self, name: str, kind: str) -> Any:
        if self.random.random() < 0.1:
            return None
        return self.random.choice("abcd") if kind == "VARCHAR" else self.random.randrange(1000)

    def newest(self) -> int:
        return int(self.session.snapshots(1)[0]["snapshot_id"])

    def note(self, what: str) -> None:
        self.done.append(what)
        self.held[self.newest()] = self.rows

    def write(self, spec: Any, rows: Rows) -> None:
        fields = [pa.field(name, _ARROW[kind]) for name, kind in self.columns.items()]
        self.session.execute("t", spec, pa.Table.from_pylist(rows, pa.schema(fields)))

    # -- what may happen

    def insert_few(self) -> None:
        self.write(WriteSpec("append"), self.fresh(self.random.randrange(1, 4)))

    def insert_many(self) -> None:
        self.write(WriteSpec("append"), self.fresh(self.random.randrange(10, 60)))

    def delete(self) -> None:
        part, left = self.random.choice((2, 3, 17)), self.random.randrange(2)
        self.session.sql(f"delete from t where id % {part} = {left}")
        self.rows = [row for row in self.rows if row["id"] % part != left]

    def delete_one(self) -> None:
        if self.rows:
            key = self.random.choice(self.rows)["id"]
            self.session.sql(f"delete from t where id = {key}")
            self.rows = [row for row in self.rows if row["id"] != key]

    def update(self) -> None:
        part, to = self.random.choice((2, 7, 23)), self.random.randrange(1000)
        self.session.sql(f"update t set n = {to} where id % {part} = 1")
        self.rows = [{**row, "n": to} if row["id"] % part == 1 else row for row in self.rows]

    def merge_rows(self) -> None:
        known = self.rows
        chosen = self.random.sample(known, min(len(known), 5))
        before = {row["id"] for row in chosen}
        new = self.fresh(2)
        old = [
            {**{name: self.value(name, kind) for name, kind in self.columns.items()}, "id": key}
            for key in sorted(before)
        ]
        self.write(MergeSpec(("id",)), old + new)
        changed = {row["id"]: row for row in old}
        self.rows = [changed.get(row["id"], row) for row in self.rows]

    def overwrite(self) -> None:
        self.rows = []
        self.write(WriteSpec("overwrite"), self.fresh(self.random.randrange(0, 20)))

    def add_column(self) -> None:
        name = f"c{len(self.done)}"
        self.session.sql(f"alter table t add column {name} integer")
        self.columns = {**self.columns, name: "INTEGER"}
        self.rows = [{**row, name: None} for row in self.rows]

    def widen(self) -> None:
        if self.columns["n"] == "INTEGER":
            self.session.sql("alter table t alter column n type bigint")
            self.columns = {**self.columns, "n": "BIGINT"}

    def drop_column(self) -> None:
        added = [name for name in self.columns if name.startswith("c")]
        if added:
            name = self.random.choice(added)
            self.session.sql(f"alter table t drop column {name}")
            self.columns = {other: kind for other, kind in self.columns.items() if other != name}
            self.rows = [{key: value for key, value in row.items() if key != name} for row in self.rows]

    def restore(self) -> None:
        version = self.random.choice(self.left())
        self.session.table("t").restoreToVersion(version)
        self.rows = self.at(version)
        shape = self.session.table("t").snapshot().sql_types
        assert shape is not None
        self.columns = dict(shape)

    def flush(self) -> None:
        self.session.upkeep.flush()

    def merge_files(self) -> None:
        self.session.upkeep.merge_files(self.random.choice((None, "t")))

    def rewrite_files(self) -> None:
        self.session.upkeep.rewrite_files("t", delete_threshold=self.random.choice((0, 0.3, 0.9)))

    def expire(self) -> None:
        numbers = [row["snapshot_id"] for row in self.session.snapshots()][1:]
        chosen = self.random.sample(numbers, min(len(numbers), self.random.randrange(4)))
        if chosen:
            self.session.upkeep.expire(chosen)

    def expire_old(self) -> None:
        numbers = [row["snapshot_id"] for row in self.session.snapshots()][6:]
        if numbers:
            self.session.upkeep.expire(numbers)

    def cleanup(self) -> None:
        self.session.upkeep.cleanup(older_than="0 seconds")
        self.session.upkeep.orphans(older_than="0 seconds")

    def checkpoint(self) -> None:
        self.session.upkeep.checkpoint(older_than="0 seconds", delete_threshold=self.random.choice((0, 0.5)))

    # -- what is read

    def left(self) -> list[int]:
        """The snapshots that have not expired and have the table."""
        first = min(self.held)
        return sorted(row["snapshot_id"] for row in self.session.snapshots() if row["snapshot_id"] >= first)

    def at(self, version: int) -> Rows:
        return self.held[max(each for each in self.held if each <= version)]

    def in_catalog(self) -> bool:
        """Whether rows may lie in the catalog, which no file has."""
        catalog = self.session.lake.format.catalog
        return bool(
            catalog.ask(f"SELECT count(*) FROM {catalog.meta('ducklake_inlined_data_tables')} WHERE table_id > 2")[0][0]
        )

    def questions(self, whole: pa.Table) -> list[str]:
        """Queries whose answers a reader could leave rows out of, by what it takes for true of the values of a column."""
        column = self.random.choice(whole.column_names)
        text = whole.schema.field(column).type == pa.string()
        value = "'b'" if text else self.random.choice([*whole.column(column).to_pylist(), 500]) or 0
        return [
            f"SELECT * FROM {{}} WHERE {column} {self.random.choice(('=', '<', '>=', 'IS DISTINCT FROM'))} {value}",
            f"SELECT {', '.join(f'min({c}) AS least_{c}, max({c}) AS most_{c}, count({c}) AS held_{c}' for c in whole.column_names)} FROM {{}}",
            self.random.choice(
                (
                    f"SELECT {column}, count(*) AS count FROM {{}} GROUP BY {column}",
                    f"SELECT * FROM {{}} ORDER BY {column}, id",
                    f"SELECT a.id, b.{column} FROM {{}} AS a JOIN {{}} AS b ON a.{column} = b.{column}",
                )
            ),
        ]

    def check(self) -> None:
        plain = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("ducklake", "sqlite_scanner"):
            plain.execute(f"LOAD '{extension_path(name)}'")
        plain.execute(f"ATTACH 'ducklake:sqlite:{self.session.lake.root}/catalog.sqlite' AS lake (READ_ONLY)")
        for version in self.left():
            expected, said = multiset(self.at(version)), f"version {version} after {', '.join(self.done)}"
            whole = self.session.table("t").toDF(version=version).toArrow()
            found = whole.to_pylist()
            assert multiset(found) == expected, said
            native = duckdb.connect()
            native.execute("CREATE TABLE whole AS FROM whole")
            for query in self.questions(whole):
                answer = self.session.sql(query.replace("{}", f"t AT (VERSION => {version})")).toArrow().to_pylist()
                right = native.execute(query.replace("{}", "whole")).to_arrow_table().to_pylist()
                assert multiset(answer) == multiset(right), f"{query}, {said}"
            native.close()
            snapshot = self.session.table("t").snapshot(version=version)
            assert self.session.lake.format.row_count(snapshot) == len(found), f"row_count, {said}"
            if None not in (counts := [file.live_rows for file in snapshot.files()]) and not self.in_catalog():
                assert sum(map(int, counts)) == len(found), f"live rows, {said}"
            alone = plain.execute(f"FROM lake.main.t AT (VERSION => {version})").to_arrow_table().to_pylist()
            assert multiset(alone) == expected, f"DuckDB alone, {said}"
        found = self.session.table("t").toDF().toArrow().to_pylist()
        assert multiset(found) == multiset(self.rows), f"now, after {', '.join(self.done)}"
        plain.close()


_ARROW = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "VARCHAR": pa.string()}
_WRITES: tuple[Callable[[History], None], ...] = (
    History.insert_few,
    History.insert_few,
    History.insert_many,
    History.delete,
    History.delete_one,
    History.update,
    History.merge_rows,
    History.overwrite,
    History.add_column,
    History.drop_column,
    History.widen,
    History.restore,
)
_UPKEEP: tuple[Callable[[History], None], ...] = (
    History.flush,
    History.merge_files,
    History.merge_files,
    History.rewrite_files,
    History.rewrite_files,
    History.expire,
    History.expire_old,
    History.cleanup,
    History.checkpoint,
)


@pytest.mark.slow
@pytest.mark.drawn(10)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_every_version_reads_as_it_did_when_it_was_written(number: int, tmp_path: Path) -> None:
    inline = (0, 4)[number % 2]
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline) as session:
        history = History(session, number)
        for step in range(STEPS):
            chosen = history.random.choice(_UPKEEP if history.random.random() < 0.4 else _WRITES)
            chosen(history)
            history.note(chosen.__name__)
            if step % 5 == 4:
                history.check()
        history.check()
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline) as session:
        history.session = session
        history.check()
        session.execute("t", WriteSpec("overwrite"), SQL("select 1 as id"))
