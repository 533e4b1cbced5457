"""Whatever happened to a DuckLake table, the four change queries say what its whole states, compared in plain Python, say.

The states are read right after each step by DuckDB and its extension alone, and kept as Python values by the ids of columns; so it also
shows that maintenance in between changes nothing of what older versions were.

The seed is DUCKRUN_TEST_SEED (tools/suites.py prints it); DUCKRUN_TEST_ONLY=<number> runs one history alone.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import SQL, DeleteInsertSpec, InvalidConfig, MergeSpec, Session, WriteSpec
from duckrun.storage.extensions import extension_path
from tests.changes import oracle
from tests.changes.test_change_sequences import _check_pairs

pytestmark = pytest.mark.changes

SEED = int(os.environ.get("DUCKRUN_TEST_SEED") or random.SystemRandom().randrange(2**31))
SOAK = bool(os.environ.get("DUCKRUN_SOAK"))
COUNT, BUDGET, BUDGET_ON_SPARK = (
    (int(os.environ.get("DUCKRUN_TEST_COUNT") or 300), 10**6, 600) if SOAK else (100, 15, 10)
)
PREDICATES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "id > 5": lambda row: row["id"] is not None and row["id"] > 5,
    "id % 3 = 1": lambda row: row["id"] is not None and row["id"] % 3 == 1,
}


@dataclass
class Column:
    """A column or a field, by its id."""

    number: int
    name: str
    default: Any
    fields: list[Column]


@dataclass
class Past:
    """What the table was at each snapshot of its lake: its columns, and its rows as (row id, value by id of the column)."""

    lake: Path
    name: str = "t"
    columns: dict[int, list[Column]] = field(default_factory=dict)
    rows: dict[int, list[tuple[int, dict[int, Any]]]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def take(self) -> None:
        """Read what is there now; snapshots that a step made before its last one are read as they are then.

        A merge of files gives rows of updates other ids, at older snapshots too (DuckLake takes the ids of files that lie side by side for
        those of their rows), so that all are read again after one: no value may differ, and which rows are the same is what DuckLake says now.
        """
        before = {}
        if self.log and self.log[-1].startswith("compact"):
            before, self.rows = self.rows, {}
        self._take()
        for at, rows in before.items():
            then, now = (sorted(repr(sorted(row.items())) for _, row in each) for each in (rows, self.rows[at]))
            assert then == now, f"version {at} reads other rows after a compaction"

    def _take(self) -> None:
        with plain(self.lake) as (connection, meta):
            newest = connection.execute(f"SELECT max(snapshot_id) FROM {meta}.ducklake_snapshot").fetchone()[0]
            for at in range(max(self.rows, default=-1) + 1, newest + 1):
                there = f"begin_snapshot <= {at} AND (end_snapshot IS NULL OR end_snapshot > {at})"
                found = connection.execute(
                    f"SELECT table_id, table_name FROM {meta}.ducklake_table WHERE table_name LIKE 't%' AND {there}"
                ).fetchall()
                if not found:
                    self.columns[at], self.rows[at] = [], []
                    continue
                [(table, name)] = found
                self.name = name if at == newest else self.name
                listed = connection.execute(
                    f"SELECT column_id, column_name, initial_default, column_type, parent_column FROM {meta}.ducklake_column "
                    f"WHERE table_id = {table} AND {there} ORDER BY column_order"
                ).fetchall()

                def below(parent: int | None, listed: list[Any] = listed) -> list[Column]:
                    return [Column(i, n, _literal(d, k), below(i)) for i, n, d, k, p in listed if p == parent]

                self.columns[at] = below(None)
                version = "" if at == newest else f" AT (VERSION => {at})"
                rows = connection.execute(f'SELECT rowid AS __row, * FROM lake."{name}"{version}').to_arrow_table()
                self.rows[at] = [
                    (row.pop("__row"), {c.number: _by_id(row[c.name], c) for c in self.columns[at]})
                    for row in rows.to_pylist()
                ]

    def state(self, at: int, to: int, columns: list[str], predicate: str | None) -> oracle.State:
        """The rows at a version in the columns of another, each with its row id first."""
        wanted = self.columns[to]
        found: oracle.State = Counter()
        for number, row in self.rows.get(at, []):
            named = {c.name: _now(row.get(c.number, _MISSING), c) for c in wanted}
            if predicate is None or PREDICATES[predicate](named):
                found[(repr(number), *(_spelled(named[name]) for name in columns))] += 1
        return found


_MISSING = object()


def _literal(text: str | None, kind: str) -> Any:
    return text if text is None or kind == "varchar" else int(text)


def _by_id(value: Any, column: Column) -> Any:
    return {f.number: value[f.name] for f in column.fields} if column.fields and value is not None else value


def _now(value: Any, column: Column) -> Any:
    if value is _MISSING:
        return column.default
    if column.fields and value is not None:
        return {f.name: value.get(f.number, f.default) for f in column.fields}
    return value


def _spelled(value: Any) -> str:
    return repr(value + 0.0 if isinstance(value, float) else value)


@contextmanager
def plain(lake: Path) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
    """DuckDB with its extension on the lake's catalog, without us."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("ducklake", "sqlite_scanner"):
        connection.execute(f"LOAD '{extension_path(name)}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(
        f"ATTACH 'ducklake:sqlite:{lake}/catalog.sqlite' AS lake (DATA_PATH '{lake}/data/', META_JOURNAL_MODE 'WAL')"
    )
    connection.execute("USE lake")
    try:
        yield connection, "__ducklake_metadata_lake"
    finally:
        connection.close()


# -- what happens


def some(rng: random.Random, past: Past, low: int | None = None) -> str:
    """A few rows in the columns that the table has now."""
    values = {
        "id": "range",
        "s": f"case when range % 4 = 0 then null else chr((97 + (range + {rng.randint(0, 3)}) % 5)::int) end",
        "x": f"case when range % 7 = 0 then 'nan'::float else (range % {rng.randint(2, 4)})::float end",
        "n": f"({rng.randint(0, 2)} + range % 2)::int",
    }
    low = rng.randint(0, 20) if low is None else low
    columns = past.columns[max(past.columns)] if past.columns else []
    listed = [c.name for c in columns] or ["id", "s", "x"]
    shown = []
    for column in listed:
        value = values.get(column)
        if value is None:
            now = next(c for c in columns if c.name == column)
            value = f"{{{', '.join(f'{f.name}: {rng.randint(0, 2)}' for f in now.fields)}}}" if now.fields else "'z'"
        shown.append(f'{value} AS "{column}"')
    return f"SELECT {', '.join(shown)} FROM range({low}, {low + rng.randint(1, 6)})"


def step(session: Session, rng: random.Random, past: Past) -> None:
    """One thing happens to the table, by us or by another program."""
    t, names = past.name, [c.name for c in past.columns[max(past.columns)]]
    low = rng.randint(0, 20)
    other = rng.choice([n for n in names if n in ("s", "n")] or ["id"])
    value = {"s": rng.choice(["'a'", "'b'", "NULL"]), "n": str(rng.randint(0, 2)), "id": "id"}[other]
    rows = some(rng, past)
    what = rng.choice(
        ["insert"] * 3
        + ["update"] * 3
        + ["delete"] * 2
        + ["merge", "merge", "overwrite", "replace", "delete+insert", "restore", "nothing", "key", "elsewhere"]
        + ["add", "rename", "widen", "drop", "nested", "table"]
        + ["both", "compact", "compact", "flush", "plain update", "plain delete", "plain insert", "again"]
    )
    past.log.append(f"{what}: {rows}, {other} = {value}, {low}")
    # Rows that another program inlined stay right if we look before it changes columns (test_inlined_schemas.py).
    session.table(t).snapshot()
    if what == "insert":
        session.execute(t, WriteSpec("append"), SQL(rows))
    elif what == "update":
        session.sql(f'UPDATE {t} SET "{other}" = {value} WHERE id BETWEEN {low} AND {low + 4}')
    elif what == "delete":
        session.sql(f"DELETE FROM {t} WHERE id BETWEEN {low} AND {low + rng.randint(0, 4)}")
    elif what == "merge":
        session.execute(t, MergeSpec(("id",)), SQL(rows))
    elif what == "overwrite":
        session.execute(t, WriteSpec("overwrite"), SQL(rng.choice([rows, f"SELECT * FROM {t}"])))
    elif what == "replace":
        session.execute(t, WriteSpec("replace", predicate="id >= 10"), SQL(some(rng, past, rng.randint(10, 15))))
    elif what == "delete+insert":
        session.execute(t, DeleteInsertSpec(("id",)), SQL(rows))
    elif what == "restore":
        begun = next(v for v, columns in past.columns.items() if columns)
        version = rng.randint(begun, max(past.rows))
        past.log[-1] += f" to {version}"
        if session.lake.snapshot(session.ref(t)).version:
            session.table(t).restoreToVersion(version)
    elif what == "nothing":
        session.sql(f"UPDATE {t} SET id = id WHERE id > 3")
    elif what == "key":
        session.sql(f"UPDATE {t} SET id = id + 1 WHERE id = {low}")
    elif what == "elsewhere":
        session.sql("INSERT INTO other VALUES (1)")
    elif what == "add" and len(names) < 7:
        new = f"a{rng.randint(0, 99)}" if "n" in names else "n"
        kind = "int DEFAULT 7" if new == "n" else rng.choice(["varchar DEFAULT 'old'", "varchar"])
        if new not in names:
            with plain(past.lake) as (connection, _):
                connection.execute(f"ALTER TABLE {t} ADD COLUMN {new} {kind}")
    elif what == "rename" and (found := [n for n in names if n.startswith("a")]):
        new = f"a{rng.randint(0, 99)}"
        if new not in names:
            session.sql(f"ALTER TABLE {t} RENAME COLUMN {found[0]} TO {new}")
    elif what == "widen":
        column, kind = rng.choice([("id", "BIGINT"), ("x", "DOUBLE"), ("n", "BIGINT")])
        if column in names:
            with plain(past.lake) as (connection, _):
                connection.execute(f"ALTER TABLE {t} ALTER COLUMN {column} SET TYPE {kind}")
    elif what == "drop" and (found := [n for n in names if n.startswith("a") or n == "n"]):
        session.sql(f"ALTER TABLE {t} DROP COLUMN {rng.choice(found)}")
    elif what == "nested":
        with plain(past.lake) as (connection, _):
            if "st" not in names:
                connection.execute(f"ALTER TABLE {t} ADD COLUMN st STRUCT(f0 INTEGER)")
            else:
                fields = [f.name for f in next(c for c in past.columns[max(past.columns)] if c.name == "st").fields]
                new = f"f{len(fields)}"
                if rng.random() < 0.3 and "g" not in fields:
                    connection.execute(f"ALTER TABLE {t} RENAME COLUMN st.{fields[0]} TO g")
                elif new not in fields:
                    connection.execute(f"ALTER TABLE {t} ADD COLUMN st.{new} INTEGER")
    elif what == "table":
        new = "t2" if t == "t" else "t"
        session.sql(f"ALTER TABLE {t} RENAME TO {new}")
    else:
        with plain(past.lake) as (connection, _):
            if what == "both":
                connection.execute("BEGIN")
                connection.execute(f"DELETE FROM {t} WHERE id > {low}")
                connection.execute(f"INSERT INTO {t} {rows}")
                connection.execute(f'UPDATE {t} SET "{other}" = {value} WHERE id % 2 = 0')
                connection.execute("COMMIT")
            elif what == "again":  # the same rows go and come within one transaction
                connection.execute("BEGIN")
                connection.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {t} WHERE id > {low}")
                connection.execute(f"DELETE FROM {t} WHERE id > {low}")
                connection.execute(f"INSERT INTO {t} SELECT * FROM kept")
                connection.execute("COMMIT")
            elif what in ("flush", "compact"):
                connection.execute("CALL ducklake_flush_inlined_data('lake')")
                if what == "compact":
                    connection.execute("CALL ducklake_merge_adjacent_files('lake')")
                    if rng.random() < 0.6:
                        connection.execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
            elif what == "plain update":
                connection.execute(f'UPDATE {t} SET "{other}" = {value} WHERE id BETWEEN {low} AND {low + 4}')
            elif what == "plain delete":
                connection.execute(f"DELETE FROM {t} WHERE id BETWEEN {low} AND {low + 2}")
            elif what == "plain insert":
                connection.execute(f"INSERT INTO {t} {rows}")


# -- what is asked


def answered(session: Session, past: Past, kind: str, first: int, last: int, **options: Any) -> Counter[Any]:
    """What a change query says, in the form in which the oracle says it."""
    rows = session.table(past.name).changes(kind, first, last, **options).toArrow()
    columns = options["columns"]
    listed = list(zip(*([_spelled(v) for v in rows.column(c).to_pylist()] for c in columns), strict=True))
    types = rows.column("_change_type").to_pylist() if "_change_type" in rows.column_names else []
    versions = rows.column("_commit_version").to_pylist() if "_commit_version" in rows.column_names else []
    if kind == "full_delta":
        _check_pairs(listed, types, versions, rows.column("_pair").to_pylist())
        assert versions == sorted(versions)
        return Counter(zip(versions, types, listed, strict=True))
    if versions:
        return Counter(zip(listed, versions, strict=True))
    return Counter(zip(types, listed, strict=True)) if types else Counter(listed)


def _without_row_id(kind: str, found: Counter[Any], *, with_version: bool) -> Counter[Any]:
    answer: Counter[Any] = Counter()
    for change, count in found.items():
        if with_version:
            answer[change[0][1:], change[1]] += count
        elif kind == "append_only":
            answer[change[1:]] += count
        else:
            answer[(*change[:-1], change[-1][1:])] += count
    return answer


def compare(session: Session, past: Past, rng: random.Random, rounds: int) -> int:
    newest, count = max(past.rows), 0
    for _ in range(rounds):
        first = rng.randint(-1, newest)
        last = rng.randint(max(first, 0), newest)
        if not past.columns[last]:
            continue
        names = [c.name for c in past.columns[last]]
        key = rng.choice([[], [], ["id"], ["id"], ["id", "s"], names])
        if "st" in key:
            key = ["id"]
        columns = names
        if rng.random() < 0.3:
            columns = [c for c in names if c in (*key, "id") or rng.random() < 0.6]
        predicate = rng.choice(list(PREDICATES)) if rng.random() < 0.3 else None
        states = {v: past.state(v, last, columns, predicate) for v in range(first, last + 1)}
        states[-1] = Counter()
        by = [columns.index(c) + 1 for c in key] or [0]
        if key:  # row ids say nothing then
            states = {v: _by_columns(rows) for v, rows in states.items()}
        options: dict[str, Any] = {"key": key, "columns": columns, "predicate": predicate}
        for kind in ("append_only", "upsert", "min_delta", "full_delta"):
            for with_version in (False, True) if kind in ("append_only", "upsert") else (False,):
                more = {"commit_version": True} if with_version else {}
                try:
                    try:
                        if with_version:
                            expected = oracle.versions(states, first, last, by, kind)
                        else:
                            expected = getattr(oracle, kind)(states, first, last, by)
                    except oracle.KeyRepeated:
                        if not with_version:
                            with pytest.raises(InvalidConfig, match="is not unique"):
                                answered(session, past, kind, first, last, **options)
                            count += 1
                        continue
                    expected = _without_row_id(kind, expected, with_version=with_version)
                    found = answered(session, past, kind, first, last, **options, **more)
                    assert found == expected, f"missing {expected - found}, too many {found - expected}"
                except BaseException as error:
                    error.add_note(f"{kind} ({first}, {last}] {options} commit_version={with_version}")
                    raise
                count += 1
    return count


def _by_columns(rows: oracle.State) -> oracle.State:
    found: oracle.State = Counter()
    for row, n in rows.items():
        found[("", *row[1:])] += n
    return found


def history(lake: Path, number: int, spark: Any = None) -> int:
    """One random past, then questions about it, of engine Spark where that is given. How many were compared."""
    rng = random.Random(SEED * 1_000_003 + number)
    past = Past(lake)
    try:
        with duckrun.connect(lake, format="ducklake", inline_rows=rng.choice([0, 0, 4, 100])) as session:
            session.sql("CREATE TABLE other (n int)")
            first = f"SELECT id::int AS id, s, x FROM ({some(rng, past)})"
            session.execute("t", WriteSpec("error", partition_by=rng.choice([None, ("s",)])), SQL(first))
            past.take()
            for _ in range(rng.randint(4, 12)):
                step(session, rng, past)
                past.take()
                past.log[-1] += f" -> {max(past.rows)}"
            if spark is None:
                return compare(session, past, rng, 4)
        with duckrun.connect(lake, format="ducklake", engine="spark", spark=spark) as asked:
            return compare(asked, past, rng, 2)
    except BaseException as error:
        error.add_note(f"seed {SEED}, history {number}\n" + "\n".join(past.log))
        raise


def test_change_queries_say_what_the_states_of_a_ducklake_table_say(
    tmp_path: Path, figures: Callable[[str], None]
) -> None:
    asked_of_many(tmp_path, figures, range(COUNT), BUDGET)


@pytest.mark.spark
def test_they_say_the_same_on_spark(tmp_path: Path, spark: Any, figures: Callable[[str], None]) -> None:
    """Of other histories than those of DuckDB."""
    asked_of_many(tmp_path, figures, range(COUNT, 2 * COUNT), BUDGET_ON_SPARK, spark)


def asked_of_many(
    folder: Path, figures: Callable[[str], None], numbers: range, budget: float, spark: Any = None
) -> None:
    only = os.environ.get("DUCKRUN_TEST_ONLY")
    began, histories, comparisons = time.monotonic(), 0, 0
    for number in [int(only)] if only else numbers:
        comparisons += history(folder / f"lake{number}", number, spark)
        histories += 1
        if time.monotonic() - began > budget:
            break
    figures(f"{histories} histories, {comparisons} comparisons, seed {SEED}, {time.monotonic() - began:.0f} s")
    assert histories and comparisons, f"{histories} histories in {budget} s"
