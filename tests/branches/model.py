"""Random writes in main and two branches of a lake, and a model in Python of the rows that they leave."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import duckrun
from duckrun import CommitConflict, OptimizeSpec, Session, VacuumSpec, WriteSpec
from tests.branches.killing import Killed, killed_at

TABLES = ("a", "b", "c")
"""The last one does not exist at first."""
MARKS = "tblproperties ('delta.enableDeletionVectors' = 'true')"
Row = tuple[int, int, int]
Rows = Counter[Row] | None
"""Rows of a table; None if there is no table."""


def carried(main: Rows, base: Rows, after: Rows) -> Rows:
    """Return main's rows with the change that a branch has made to those of its base."""
    if base is None or after is None:
        return main if base == after else after
    gone, new = base - after, after - base
    assert main is not None and gone <= main, "main lost rows that the branch changed"
    return main - gone + new


@dataclass
class Copy:
    """Tables that a branch has written, and what main had at their forks."""

    session: Session
    tables: dict[str, Rows] = field(default_factory=dict)
    bases: dict[str, tuple[Rows, int]] = field(default_factory=dict)
    """Rows of main, and the number of its changes so far."""


class Lake:
    """A lake with two branches, and the rows that its tables should have."""

    def __init__(self, root: Path, draw: random.Random, spark: Any = None) -> None:
        self.root, self.draw, self.spark = root, draw, spark
        self.session = self.connect()
        self.main: dict[str, Rows] = {name: Counter({(i, i % 3, 0): 1 for i in range(12)}) for name in TABLES[:2]}
        self.main["c"] = None
        self.changes = dict.fromkeys(TABLES, 0)
        self.branches: dict[str, Copy] = {}
        self.next = 100
        for name in TABLES[:2]:
            more = f"{draw.choice(['', 'partitioned by (g)'])} {draw.choice(['', MARKS])}"
            self.session.sql(f"create table {name} (id int, g int, v int) using delta {more}", dialect="spark")
            self.session.sql(f"insert into {name} select i, i % 3, 0 from range(12) r(i)")

    def connect(self, branch: str | None = None) -> Session:
        return duckrun.connect(self.root, branch=branch, spark=self.spark)

    def by_some_engine(self, branch: str | None) -> Session:
        session = self.session_of(branch)
        return session if self.spark is None else session.on(self.draw.choice(["duckdb", "spark"]))

    def rows(self, branch: str | None, name: str) -> Rows:
        copy = self.branches.get(branch or "")
        return self.main[name] if copy is None or name not in copy.tables else copy.tables[name]

    def session_of(self, branch: str | None) -> Session:
        if branch is None:
            return self.session
        if branch not in self.branches:
            self.branches[branch] = Copy(self.connect(branch))
        return self.branches[branch].session

    # -- writes

    def write(self, branch: str | None) -> str:
        name = self.draw.choice(TABLES)
        kind, run, after = self.drawn(branch, name)
        try:
            changes = run(self.by_some_engine(branch))
        except CommitConflict as error:
            assert branch is None and kind == "drop" and self.branches, error
            return f"{kind} refused"
        if changes:
            self.wrote(branch, name, after)
        return f"{kind} {name}"

    def wrote(self, branch: str | None, name: str, after: Rows) -> None:
        if branch is None:
            self.main[name] = after
            self.changes[name] += 1
            return
        copy = self.branches[branch]
        copy.bases.setdefault(name, (self.rows(branch, name), self.changes[name]))
        copy.tables[name] = after

    def drawn(self, branch: str | None, name: str) -> tuple[str, Callable[[Session], bool], Rows]:
        """Return a write: its kind, a function that tells if it committed, and the rows after it."""
        before = self.rows(branch, name)
        if before is None:
            return (
                "create",
                self.statement(f"create table {name} as select 1::int id, 1::int g, 1::int v"),
                Counter({(1, 1, 1): 1}),
            )
        kinds = [
            "insert",
            "insert",
            "update",
            "update",
            "delete",
            "delete",
            "merge",
            "replace",
            "overwrite",
            "optimize",
            "property",
            "drop",
        ]
        kind = self.draw.choice(kinds if branch is not None else [*kinds, "foreign"])
        low = self.draw.randrange(15)
        self.next += 2
        new: Counter[Row] = Counter({(self.next, self.next % 3, 1): 1, (self.next + 1, 0, 1): 1})
        listed = ", ".join(map(str, new))
        match kind:
            case "insert":
                return kind, self.statement(f"insert into {name} values {listed}"), before + new
            case "foreign":
                return kind, lambda session: self.appended(name, new), before + new
            case "update":
                after: Counter[Row] = Counter()
                for (i, g, v), count in before.items():
                    after[i, g, v + 1 if low <= i <= low + 2 else v] += count
                return kind, self.statement(f"update {name} set v = v + 1 where id between {low} and {low + 2}"), after
            case "delete":
                after = Counter({row: count for row, count in before.items() if row[0] != low})
                return kind, self.statement(f"delete from {name} where id = {low}"), after
            case "merge":
                source = f"(values ({low}, 0, 70), {listed}) s(id, g, v)"
                text = f"merge into {name} t using {source} on t.id = s.id when matched then update set v = s.v when not matched then insert *"
                after = Counter({(i, g, 70 if i == low else v): count for (i, g, v), count in before.items()}) + new
                if all(row[0] != low for row in before):
                    after[low, 0, 70] += 1
                return kind, self.statement(text), after
            case "replace":
                rows = Counter({(self.next, 1, 2): 1})
                kept = Counter({row: count for row, count in before.items() if row[1] != 1})
                spec, table = WriteSpec("replace", predicate="g = 1"), table_of(rows)
                return kind, lambda session: session.execute(name, spec, table).version is not None, kept + rows
            case "overwrite":
                text = f"create or replace table {name} as select 7::int as id, 1::int as g, 5::int as v"
                return kind, self.statement(text), Counter({(7, 1, 5): 1})
            case "property":
                text = f"alter table {name} set tblproperties ('p{low % 2}' = '{self.next}')"
                return kind, lambda session: session.sql(text) is not None, before  # no writer has files
            case "drop":
                return kind, self.statement(f"drop table {name}"), None
        return kind, lambda session: session.execute(name, OptimizeSpec()).version is not None, before

    def statement(self, text: str) -> Callable[[Session], bool]:
        def run(session: Session) -> bool:
            return getattr(session.sql(text), "writer", "") != "none"

        return run

    def appended(self, name: str, rows: Counter[Row]) -> bool:
        """Append by plain deltalake, if it can write the table."""
        folder = (self.root / "main" / name).as_posix()
        if DeltaTable(folder).protocol().min_writer_version > 6:
            return False
        write_deltalake(folder, table_of(rows), mode="append")
        return True

    # -- branches

    def published(self, branch: str) -> dict[str, Rows]:
        """Return main's rows after a publish of a branch."""
        copy = self.branches[branch]
        return {**self.main, **{n: carried(self.main[n], copy.bases[n][0], after) for n, after in copy.tables.items()}}

    def take(self, branch: str, after: dict[str, Rows]) -> None:
        """Follow a publish of a branch."""
        for name in self.branches[branch].tables:
            self.changes[name] += after[name] != self.main[name]
        self.main = after
        self.branches.pop(branch).session.close()

    def publish(self, branch: str) -> None:
        copy = self.branches[branch]
        try:
            self.session.publish(branch)
        except CommitConflict as error:
            assert "Main is unchanged" in str(error)
            changed = [name for name, (_, number) in copy.bases.items() if self.changes[name] != number]
            optimized = "main removed the file" in str(error)
            shared = "whose rows would go with it" in str(error)  # a drop, while another branch has the table
            unfinished = "branch.json is missing" in str(error)  # a first write was killed
            assert changed or optimized or shared or unfinished, error
            if self.draw.random() < 0.5:
                self.discard(branch)
            return
        self.take(branch, self.published(branch))

    def rebase(self, branch: str) -> None:
        try:
            self.session.rebase(branch)
        except CommitConflict as error:
            assert "The branch is unchanged" in str(error)
            return
        self.rebased(branch, self.branches[branch].tables)

    def rebased(self, branch: str, names: object) -> None:
        """Follow a rebase of some tables of a branch."""
        copy = self.branches[branch]
        for name, after in copy.tables.items():
            base, _ = copy.bases[name]
            if name in list(names) and base is not None and after is not None:  # type: ignore[call-overload]
                copy.tables[name] = carried(self.main[name], base, after)
                copy.bases[name] = self.main[name], self.changes[name]

    def discard(self, branch: str) -> None:
        self.branches.pop(branch).session.close()
        self.session.discard(branch)

    def vacuum(self, branch: str | None) -> None:
        for name in TABLES:
            if self.main[name] is not None:
                self.session.execute(name, VacuumSpec(retention_hours=0, enforce_retention=False))

    # -- kills

    def kill(self, branch: str | None) -> str:
        """Let a process end in the middle of its work, and let another one write after it."""
        kinds = (
            ["write"] if branch is None or branch not in self.branches else ["write", "publish", "rebase", "discard"]
        )
        kind, name = self.draw.choice(kinds), self.draw.choice(TABLES)
        if kind == "write":
            what, run, after = self.drawn(branch, name)
            if what in ("foreign", "drop"):
                return "no kill"
        session = self.session_of(branch)
        with pytest.MonkeyPatch.context() as patched:
            killed_at(patched, self.draw.randrange(12))
            with suppress(Killed, CommitConflict):
                run(session) if kind == "write" else getattr(self.session, kind)(branch)
        self.reopen()
        if kind == "write":
            if self.read(branch, name) != self.rows(branch, name):
                self.wrote(branch, name, after)
                assert self.read(branch, name) == after
            elif branch is None:
                self.changes[name] += 1  # it may be an OPTIMIZE
            elif not self.session_of(branch).lake.is_of_main(self.session_of(branch).lake.parse(name)):
                self.wrote(branch, name, self.rows(branch, name))  # the fork, without a commit
            return f"killed {what} {name}"
        assert branch is not None
        left = {each.name: each.state for each in self.session.branches()}
        if branch in left:
            assert left[branch] == "open"
            if kind == "rebase":
                copy = self.branches[branch]
                self.rebased(branch, [n for n, rows in copy.tables.items() if self.read(branch, n) != rows])
        elif kind == "publish":
            self.take(branch, self.published(branch))
        else:
            assert kind == "discard" or not self.branches[branch].tables
            self.branches.pop(branch).session.close()
        return f"killed {kind} {branch}"

    def reopen(self) -> None:
        """Open new sessions; the first write finishes what a process has left."""
        self.session.close()
        self.session = self.connect()
        self.session.sql("create or replace table other.log as select 1 as x")
        for branch, copy in self.branches.items():
            copy.session.close()
            copy.session = self.connect(branch)

    # -- steps and checks

    def step(self) -> str:
        kinds = ["write", "publish", "discard", "rebase", "vacuum", "kill"]
        kind = self.draw.choices(kinds, [12, 3, 1, 2, 1, 3])[0]
        branch = self.draw.choice([None, "one", "two"])
        if kind in ("publish", "discard", "rebase") and (branch is None or branch not in self.branches):
            kind = "write"
        if branch in self.branches:
            assert self.branches[branch].session.tables() is not None  # the branch is created by its first use
        told = getattr(self, kind)(branch)
        return f"{branch or 'main'}: {told or kind}"

    def read(self, branch: str | None, name: str) -> Rows:
        session = self.session_of(branch)
        if f"main.{name}" not in session.tables():
            return None
        return Counter(tuple(row.values()) for row in session.sql(f"select id, g, v from {name}").collect())

    def check(self, done: list[str]) -> None:
        for branch in (None, *self.branches):
            session = self.by_some_engine(branch)
            there = [name for name in TABLES if self.rows(branch, name) is not None]
            names = [f"main.{name}" for name in there]
            assert [each for each in session.tables() if each.startswith("main.")] == names, (branch, done)
            selects = [f"select '{name}' as name, id, g, v from {name}" for name in there]
            rows = session.sql(" union all ".join(selects)).collect() if selects else []
            for name in there:
                of_table = Counter((row["id"], row["g"], row["v"]) for row in rows if row["name"] == name)
                assert of_table == self.rows(branch, name), (branch, name, done)

    def check_by_deltalake(self, done: list[str]) -> None:
        for name in TABLES:
            if self.main[name] is None:
                continue
            table = DeltaTable((self.root / "main" / name).as_posix())
            batches = QueryBuilder().register("t", table).execute("select id, g, v from t").read_all()
            columns = [batches.column(place).to_pylist() for place in range(3)]
            assert Counter(zip(*columns, strict=True)) == self.main[name], (name, done)

    def close(self) -> None:
        for copy in self.branches.values():
            copy.session.close()
        self.session.close()


def table_of(rows: Counter[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table(
        {name: pa.array(values, pa.int32()) for name, values in zip(("id", "g", "v"), columns, strict=True)}
    )
