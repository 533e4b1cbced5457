"""Random writes in main and two branches, compared with a model in Python after each step.

The seed is DUCKRUN_TEST_SEED. A run takes few sequences; DUCKRUN_SOAK takes 5,000.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, QueryBuilder

import duckrun
from duckrun import CommitConflict, OptimizeSpec, Session, VacuumSpec
from tests.drawing import everything, seed

TABLES = ("a", "b")
STEPS, STEPS_ON_SPARK = 14, 8
SEQUENCES = 5000 if os.environ.get("DUCKRUN_SOAK") else 40 if everything() else 3
Row = tuple[int, int, int]


@dataclass
class Copy:
    """Rows of the tables that a branch has written, and those of main at the fork."""

    session: Session
    tables: dict[str, Counter[Row]] = field(default_factory=dict)
    bases: dict[str, tuple[Counter[Row], int]] = field(default_factory=dict)


class Lake:
    """A lake with two branches, and what its tables should hold."""

    def __init__(self, root: Path, draw: random.Random, spark: Any = None) -> None:
        self.root, self.draw, self.spark = root, draw, spark
        self.session = duckrun.connect(root, spark=spark)
        self.main = {name: Counter({(i, i % 3, 0): 1 for i in range(12)}) for name in TABLES}
        self.changes = dict.fromkeys(TABLES, 0)
        self.branches: dict[str, Copy] = {}
        self.next = 100
        marks = ["", " tblproperties ('delta.enableDeletionVectors' = 'true')"]
        for name in TABLES:
            parts = draw.choice(["", " partitioned by (g)"])
            self.session.sql(
                f"create table {name} (id int, g int, v int) using delta{parts}{draw.choice(marks)}", dialect="spark"
            )
            self.session.sql(f"insert into {name} select i, i % 3, 0 from range(12) r(i)")

    def rows(self, branch: str | None, name: str) -> Counter[Row]:
        copy = self.branches.get(branch or "")
        return self.main[name] if copy is None or name not in copy.tables else copy.tables[name]

    def by_some_engine(self, branch: str | None) -> Session:
        session = self.session if branch is None else self.branches[branch].session
        return session if self.spark is None else session.on(self.draw.choice(["duckdb", "spark"]))

    def write(self, branch: str | None) -> None:
        name, kind = self.draw.choice(TABLES), self.draw.choice(["insert", "update", "delete", "overwrite", "optimize"])
        session = self.by_some_engine(branch)
        before = self.rows(branch, name)
        low = self.draw.randrange(15)
        after = Counter(before)
        if kind == "insert":
            self.next += 2
            new = {(self.next, self.next % 3, 1): 1, (self.next + 1, 0, 1): 1}
            session.sql(f"insert into {name} values {', '.join(map(str, new))}")
            after.update(new)
        elif kind == "optimize":
            if session.execute(name, OptimizeSpec()).version is None:
                return  # nothing was committed, so nothing is forked
        elif kind == "overwrite" and self.draw.random() < 0.3:
            session.sql(f"create or replace table {name} as select 7::int as id, 1::int as g, 5::int as v")
            after = Counter({(7, 1, 5): 1})
        elif kind == "update":
            session.sql(f"update {name} set v = v + 1 where id between {low} and {low + 2}")
            after = Counter()
            for (i, g, v), count in before.items():
                after[i, g, v + 1 if low <= i <= low + 2 else v] += count
        elif kind == "delete":
            session.sql(f"delete from {name} where id = {low}")
            after = Counter({row: count for row, count in before.items() if row[0] != low})
        else:
            return
        if branch is None:
            self.main[name] = after
            self.changes[name] += after != before or kind == "overwrite"
        elif after != before or kind in ("optimize", "overwrite"):
            copy = self.branches[branch]
            if name not in copy.bases:
                copy.bases[name] = before, self.changes[name]
            copy.tables[name] = after

    def publish(self, branch: str) -> None:
        copy = self.branches.pop(branch)
        try:
            self.session.publish(branch)
        except CommitConflict as error:
            assert "Main is unchanged" in str(error)
            changed = [name for name, (_, number) in copy.bases.items() if self.changes[name] != number]
            moved = "main removed the file" in str(error)  # an OPTIMIZE of main
            assert changed or moved, error
            self.branches[branch] = copy
            if self.draw.random() < 0.5:
                self.discard(branch)
            return
        for name, after in copy.tables.items():
            base, _ = copy.bases[name]
            gone, new = base - after, after - base
            assert gone <= self.main[name]
            self.main[name] = self.main[name] - gone + new
            self.changes[name] += bool(gone or new)
        copy.session.close()

    def rebase(self, branch: str) -> None:
        copy = self.branches[branch]
        try:
            self.session.rebase(branch)
        except CommitConflict as error:
            assert "The branch is unchanged" in str(error)
            return
        for name, after in copy.tables.items():
            base, _ = copy.bases[name]
            gone, new = base - after, after - base
            assert gone <= self.main[name]
            copy.bases[name] = Counter(self.main[name]), self.changes[name]
            copy.tables[name] = self.main[name] - gone + new

    def discard(self, branch: str) -> None:
        self.branches.pop(branch).session.close()
        self.session.discard(branch)

    def step(self) -> str:
        kind = self.draw.choices(["write", "publish", "discard", "rebase", "vacuum"], [10, 2, 1, 2, 1])[0]
        branch = self.draw.choice([None, "one", "two"])
        if kind == "vacuum":
            for name in TABLES:
                self.session.execute(name, VacuumSpec(retention_hours=0, enforce_retention=False))
        elif kind != "write" and branch is not None and branch in self.branches:
            assert self.branches[branch].session.tables()  # the branch is created by its first use
            getattr(self, kind)(branch)
        else:
            if branch is not None and branch not in self.branches:
                self.branches[branch] = Copy(duckrun.connect(self.root, branch=branch, spark=self.spark))
            self.write(branch)
        return f"{kind} {branch or 'main'}"

    def check(self, done: list[str]) -> None:
        for branch in (None, *self.branches):
            session = self.by_some_engine(branch)
            for name in TABLES:
                rows = Counter(tuple(row.values()) for row in session.sql(f"select id, g, v from {name}").collect())
                assert rows == self.rows(branch, name), (branch, name, done)

    def check_by_deltalake(self, done: list[str]) -> None:
        for name in TABLES:
            table = DeltaTable((self.root / "main" / name).as_posix())
            batches = QueryBuilder().register("t", table).execute("select id, g, v from t").read_all()
            columns = [batches.column(place).to_pylist() for place in range(3)]
            assert Counter(zip(*columns, strict=True)) == self.main[name], (name, done)

    def close(self) -> None:
        for copy in self.branches.values():
            copy.session.close()
        self.session.close()


@pytest.mark.parametrize("number", range(SEQUENCES))
def test_main_and_branches_equal_the_model_after_each_step(tmp_path: Path, number: int) -> None:
    lake, done = Lake(tmp_path / "lake", random.Random(f"{seed()} {number}")), [f"seed {seed()} number {number}"]
    for _ in range(STEPS):
        done.append(lake.step())
        lake.check(done)
    lake.check_by_deltalake(done)
    lake.close()


@pytest.mark.spark
@pytest.mark.parametrize("number", range(max(1, SEQUENCES // 20)))
def test_both_engines_equal_the_model(tmp_path: Path, spark: Any, number: int) -> None:
    draw, done = random.Random(f"{seed()} spark {number}"), [f"seed {seed()} number {number}"]
    lake = Lake(tmp_path / "lake", draw, spark)
    for _ in range(STEPS_ON_SPARK):
        done.append(lake.step())
        lake.check(done)
    lake.check_by_deltalake(done)
    lake.close()
