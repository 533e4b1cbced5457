"""Random statements in transactions over several tables of a DuckLake, against plain DuckDB that runs the same ones.

Both are compared within each transaction and after its end, by another session and by DuckDB alone. About 60 s in the long suite.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import DuckrunError, Session, UnsupportedFeature
from tests.ducklake.plain import attached

HISTORIES = 60
TRANSACTIONS = 4
_TYPES = {"INTEGER": "258", "VARCHAR": "'x'", "BIGINT": "7"}


def counted(rows: list[tuple[Any, ...]]) -> Counter[str]:
    return Counter(map(repr, rows))


class Model:
    """Plain DuckDB with the committed statements, and those of the open transaction."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.committed_ids: dict[str, int] = {}
        self.number = 0
        self.begin()

    def begin(self) -> None:
        """Start again from what is committed."""
        self.open = duckdb.connect()
        self.said: list[str] = []
        self.ids = dict(self.committed_ids)
        """The tables by name: a rename keeps the number, whatever makes a table gives another one."""
        for statement in self.committed:
            self.open.execute(statement)

    def run(self, statement: str) -> None:
        self.open.execute(statement)
        self.said.append(statement)
        words = statement.split()
        if words[3:5] == ["RENAME", "TO"]:
            self.ids[f"{words[2].split('.')[0]}.{words[5]}"] = self.ids.pop(words[2])
        if words[:3] == ["CREATE", "OR", "REPLACE"]:
            self.ids.pop(words[4])
        self.ids = {name: self.ids.get(name) or self.fresh_id() for name in self.tables()}

    def fresh_id(self) -> int:
        self.number += 1
        return self.number

    def commit(self) -> None:
        self.committed += self.said
        self.committed_ids = dict(self.ids)
        self.said = []

    def tables(self) -> list[str]:
        listed = "SELECT schema_name || '.' || table_name FROM duckdb_tables() ORDER BY 1"
        return [name for (name,) in self.open.execute(listed).fetchall()]

    def views(self) -> list[str]:
        listed = "SELECT schema_name || '.' || view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
        return [name for (name,) in self.open.execute(listed).fetchall()]

    def schemas(self) -> list[str]:
        listed = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'memory' AND NOT internal OR schema_name = 'main' GROUP BY 1 ORDER BY 1"
        return [name for (name,) in self.open.execute(listed).fetchall()]

    def columns(self, table: str) -> dict[str, str]:
        schema, name = table.split(".")
        listed = "SELECT column_name, data_type FROM duckdb_columns() WHERE schema_name = ? AND table_name = ? ORDER BY column_index"
        return dict(self.open.execute(listed, [schema, name]).fetchall())


class Statements:
    """Statements that fit what the model has now."""

    def __init__(self, model: Model, seed: int) -> None:
        self.model, self.random = model, random.Random(seed)
        self.number = 0

    def fresh(self, kind: str) -> str:
        self.number += 1
        return f"{kind}{self.number}"

    def table(self) -> str:
        return self.random.choice(self.model.tables())

    def row(self, columns: dict[str, str]) -> str:
        def value(name: str, kind: str) -> str:
            if self.random.random() < 0.15 and name != "id":
                return "NULL"
            number = self.random.choice((1, 2, 3, 4, 5, 258, 70000))
            return f"'{number}'" if kind == "VARCHAR" else str(number)

        return f"({', '.join(value(name, kind) for name, kind in columns.items())})"

    def rows(self, columns: dict[str, str]) -> str:
        return ", ".join(self.row(columns) for _ in range(self.random.choice((1, 2, 5))))

    def place(self) -> str:
        return f"{self.random.choice(self.model.schemas())}.{self.fresh('t')}"

    def create(self) -> str:
        if len(self.model.tables()) > 4:
            return self.drop()
        return f"CREATE TABLE {self.place()} (id INTEGER, j INTEGER, s VARCHAR)"

    def create_as(self) -> str:
        if len(self.model.tables()) > 4:
            return self.drop()
        return f"CREATE TABLE {self.place()} AS SELECT * FROM {self.table()}"

    def replace(self) -> str:
        table = self.table()
        return f"CREATE OR REPLACE TABLE {table} AS SELECT CAST(range AS INTEGER) AS id, CAST(258 AS INTEGER) AS j FROM range({self.random.randrange(4)})"

    def drop(self) -> str:
        return f"DROP TABLE {self.table()}" if len(self.model.tables()) > 2 else self.insert()

    def rename(self) -> str:
        table = self.table()
        gone = [
            self.fresh("t"),
            *(
                n.split(".")[1]
                for n in self.before
                if n not in self.model.tables() and n.split(".")[0] == table.split(".")[0]
            ),
        ]
        taken = {name.split(".")[1] for name in (*self.model.tables(), *self.model.views())}
        return f"ALTER TABLE {table} RENAME TO {self.random.choice([name for name in gone if name not in taken])}"

    before: tuple[str, ...] = ()
    """The tables that were committed before the transaction: their names may be taken again."""

    def insert(self) -> str:
        table = self.table()
        return f"INSERT INTO {table} VALUES {self.rows(self.model.columns(table))}"

    def insert_part(self) -> str:
        table = self.table()
        columns = self.model.columns(table)
        chosen = dict(self.random.sample(sorted(columns.items()), self.random.randrange(1, len(columns) + 1)))
        return f"INSERT INTO {table} ({', '.join(chosen)}) VALUES {self.rows(chosen)}"

    def insert_other(self) -> str:
        table, other = self.table(), self.table()
        name, kind = self.random.choice(sorted(self.model.columns(table).items()))
        of = self.random.choice(sorted(self.model.columns(other)))
        return f"INSERT INTO {table} ({name}) SELECT TRY_CAST({of} AS {kind}) FROM {other}"

    def delete(self) -> str:
        table = self.table()
        name = self.random.choice(sorted(self.model.columns(table)))
        return f"DELETE FROM {table} WHERE {name} = '{self.random.choice((1, 2, 258))}'"

    def update(self) -> str:
        table = self.table()
        columns = self.model.columns(table)
        name, by = self.random.choice(sorted(columns)), self.random.choice(sorted(columns))
        return f"UPDATE {table} SET {name} = {self.random.choice(('3', '258', 'NULL'))} WHERE {by} <> '2'"

    def add(self) -> str:
        kind = self.random.choice(sorted(_TYPES))
        default = self.random.choice(("", f" DEFAULT {_TYPES[kind]}"))
        return f"ALTER TABLE {self.table()} ADD COLUMN {self.fresh('c')} {kind}{default}"

    def drop_column(self) -> str:
        table = self.table()
        columns = self.model.columns(table)
        return (
            f"ALTER TABLE {table} DROP COLUMN {self.random.choice(sorted(columns))}"
            if len(columns) > 1
            else self.insert()
        )

    def rename_column(self) -> str:
        table = self.table()
        return f"ALTER TABLE {table} RENAME COLUMN {self.random.choice(sorted(self.model.columns(table)))} TO {self.fresh('c')}"

    def widen(self) -> str:
        table = self.table()
        numbers = [name for name, kind in self.model.columns(table).items() if kind == "INTEGER"]
        return f"ALTER TABLE {table} ALTER COLUMN {numbers[0]} TYPE BIGINT" if numbers else self.add()

    def default(self) -> str:
        table = self.table()
        name, kind = self.random.choice(sorted(self.model.columns(table).items()))
        return f"ALTER TABLE {table} ALTER COLUMN {name} SET DEFAULT {_TYPES[kind]}"

    def comment(self) -> str:
        return f"COMMENT ON TABLE {self.table()} IS 'said'"

    def create_schema(self) -> str:
        return f"CREATE SCHEMA {self.fresh('s')}"

    def drop_schema(self) -> str:
        others = [name for name in self.model.schemas() if name != "main"]
        return f"DROP SCHEMA {self.random.choice(others)} CASCADE" if others else self.create_schema()

    def create_view(self) -> str:
        return f"CREATE VIEW main.{self.fresh('v')} AS SELECT {self.random.randrange(9)} AS n"

    def drop_view(self) -> str:
        views = self.model.views()
        return f"DROP VIEW {self.random.choice(views)}" if views else self.create_view()


_KINDS: tuple[Callable[[Statements], str], ...] = (
    *(Statements.insert,) * 4,
    *(Statements.insert_part, Statements.insert_other, Statements.delete, Statements.update) * 2,
    *(Statements.create, Statements.create_as, Statements.replace, Statements.drop) * 2,
    *(Statements.rename, Statements.add) * 3,
    *(Statements.drop_column, Statements.rename_column, Statements.widen, Statements.default, Statements.comment),
    *(Statements.create_schema, Statements.drop_schema, Statements.create_view, Statements.drop_view),
)


class History:
    """One lake beside its model."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session, self.model = session, Model()
        self.statements = Statements(self.model, seed)
        self.random = self.statements.random
        self.done: list[str] = []
        self.both("CREATE TABLE main.a (id INTEGER, j INTEGER)")
        self.both("INSERT INTO main.a VALUES (1, 2), (2, 258)")
        self.both("CREATE TABLE main.b (id INTEGER, s VARCHAR)")
        self.states: dict[int, dict[str | int, tuple[dict[str, str], Counter[str]]]] = {}
        """What the tables were at snapshots: name, or number in the model -> columns and rows."""
        self.model.commit()
        self.note()

    def note(self) -> None:
        """Take down what the tables are at the newest snapshot."""
        found = {table: (self.model.columns(table), self.rows(table)) for table in self.model.tables()}
        numbers = {self.model.ids[table]: state for table, state in found.items()}
        self.states[int(self.session.snapshots(1)[0]["snapshot_id"])] = {**found, **numbers}

    def rows(self, table: str) -> Counter[str]:
        return counted(self.model.open.execute(f"SELECT * FROM {table}").fetchall())

    def both(self, statement: str) -> bool:
        """Run a statement on both; False if this library refuses it."""
        self.done.append(statement)
        try:
            self.session.sql(statement)
        except UnsupportedFeature as error:
            assert "Nothing was written" in str(error), self.said(str(error))
            self.done.append(f"-- refused: {error}")
            return False
        except DuckrunError as error:
            raise AssertionError(self.said(str(error))) from error
        self.model.run(statement)
        return True

    def said(self, what: str) -> str:
        return "\n".join([what, "after", *self.done])

    def one_transaction(self) -> None:
        self.statements.before = tuple(self.model.tables())
        self.done.append("BEGIN")
        self.session.sql("BEGIN")
        for _ in range(self.random.randrange(1, 9)):
            if not self.both(self.random.choice(_KINDS)(self.statements)):
                self.end("ROLLBACK")
                return
            if self.random.random() < 0.3:
                self.compare(self.session, "within")
                self.compare_changes(self.session, "within")
        self.end(self.random.choice(("COMMIT", "COMMIT", "ROLLBACK")))

    def end(self, word: str) -> None:
        self.done.append(word)
        self.session.sql(word)
        if word == "COMMIT":
            self.model.commit()
            self.note()
        else:
            self.model.begin()

    def compare(self, session: Session, when: str) -> None:
        tables = self.model.tables()
        held = {f"{row['schema']}.{row['name']}": row["kind"] for row in session.sql("SHOW TABLES").collect()}
        expected = {**dict.fromkeys(tables, "table"), **dict.fromkeys(self.model.views(), "view")}
        assert held == expected, self.said(f"SHOW TABLES {when}")
        assert [row["schema"] for row in session.sql("SHOW SCHEMAS").collect()] == self.model.schemas(), self.said(when)
        listed = "SELECT table_schema || '.' || table_name AS name, column_name, data_type FROM information_schema.columns ORDER BY ALL"
        columns = [tuple(row.values()) for row in session.sql(listed).collect() if row["name"] in tables]
        right = sorted((name, *each) for name in tables for each in self.model.columns(name).items())
        assert columns == right, self.said(f"columns {when}")
        for table in tables:
            for query in self.questions(table):
                found = [tuple(row.values()) for row in session.sql(query).collect()]
                right = self.model.open.execute(query).fetchall()
                assert counted(found) == counted(right), self.said(f"{query} {when}: {found}, not {right}")

    def compare_changes(self, session: Session, when: str) -> None:
        """Changes since a snapshot sum up to the difference of what a name read then and reads now."""
        since = self.random.choice(sorted(self.states))
        for table in self.model.tables():
            then, now = self.states[since], (self.model.columns(table), Counter[str]())
            columns, before = then.get(table) or then.get(self.model.ids[table]) or now
            if columns != self.model.columns(table):
                continue  # renamed columns are others in the model
            if when == "within" and "RENAME COLUMN" in "".join(self.model.said):
                continue  # refused by name
            net = self.rows(table)
            net.subtract(before)
            found: Counter[str] = Counter()
            for row in session.sql(f"FROM changes('{table}', 'min_delta', {since})").collect():
                *values, kind = row.values()
                found[repr(tuple(values))] += 1 if kind in ("insert", "update_postimage") else -1
            left = {row: count for row, count in net.items() if count}
            assert {row: n for row, n in found.items() if n} == left, self.said(
                f"changes of {table} since {since} {when}"
            )

    def questions(self, table: str) -> list[str]:
        return [f"SELECT * FROM {table}", self.random.choice(self.filters(table))]

    def filters(self, table: str) -> list[str]:
        """Queries whose answers a reader could leave rows out of, by what it takes for true of the values of a column."""
        columns = self.model.columns(table)
        name = self.random.choice(sorted(columns))
        value = "'2'" if columns[name] == "VARCHAR" else "2"
        return [
            f"SELECT * FROM {table} WHERE {name} = {value}",
            f"SELECT * FROM {table} WHERE {name} IS NULL",
            f"SELECT {name} FROM {table} ORDER BY {name} LIMIT 3",
            f"SELECT count(*), {', '.join(f'min({each}), max({each})' for each in columns)} FROM {table}",
        ]

    def compare_alone(self, root: Path) -> None:
        """What DuckDB without this library reads."""
        with attached(root) as plain:
            for table in self.model.tables():
                found = plain.sql(f"SELECT * FROM lake.{table}").fetchall()
                right = self.model.open.execute(f"SELECT * FROM {table}").fetchall()
                assert counted(found) == counted(right), self.said(f"DuckDB alone, {table}: {found}, not {right}")


@pytest.mark.slow
@pytest.mark.drawn(6)
@pytest.mark.parametrize("number", range(HISTORIES))
def test_a_transaction_reads_and_leaves_what_plain_duckdb_does(number: int, tmp_path: Path) -> None:
    inline = (0, 4)[number % 2]
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline) as session:
        history = History(session, number)
        for _ in range(TRANSACTIONS):
            history.one_transaction()
            history.compare(session, "after")
            history.compare_changes(session, "after")
    with duckrun.connect(tmp_path / "lake", format="ducklake", inline_rows=inline) as session:
        history.compare(session, "by another session")
    history.compare_alone(tmp_path / "lake")
