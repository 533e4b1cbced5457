"""A Delta table that two engines write in turns, held against a plain model of its rows, their ids and the numbers that it gives.

The steps are drawn at random, and so are the table's features. After each, both engines and Spark without our code have to read the rows
of the model; where the table tracks its rows, those that stay have the ids that they had; where it has a change feed, that tells the
difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from duckrun import CommitConflict, MergeSpec, WriteSpec
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.rows import DeleteInsertSpec
from duckrun.values.tables import VacuumSpec
from tests.engines.spark_checks import WITHIN_RETENTION, set_to
from tests.engines.turn_model import FEED, LATER, PLAIN, STATISTICS, TABLE, TRACKED, Column, Row, listed, quoted
from tests.engines.turn_readers import Compared
from tests.engines.turn_refusals import refusal_of


class Turns(Compared):
    """One table from its first step to its last."""

    def create(self, engine: str) -> None:
        columns = ", ".join(f"{quoted(c.name)} {c.type} {c.more}" for c in self.now.columns)
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
        text = f"CREATE TABLE {TABLE} ({columns}) USING DELTA {self.layout}"
        self._sql(engine, text + (f" TBLPROPERTIES ({properties})" if properties else ""))
        if self.check:
            self._sql(engine, f"ALTER TABLE {TABLE} ADD CONSTRAINT small CHECK (coalesce(m, 0) < 1000)")
        self._settle({}, compare_ids=False)

    def _sql(self, engine: str, text: str) -> Any:
        self.log.append(f"{engine}: {text}")
        if engine == PLAIN:
            return self.spark.sql(text.replace(TABLE, f"delta.`{self.location}`")).collect()
        return self.sessions[engine].sql(text, dialect="spark")

    # -- steps

    def step(self, engine: str) -> None:
        """One step, drawn at random, by an engine; then everything is compared."""
        self.engine = engine
        version, state = self.version, self.now.copy()
        self.touched, self.exact, self.fed = set(), None, self._is("true", FEED)
        self.same_versions, compare = True, True
        tracked = self._is("true", TRACKED)
        name = self.rng.choice([name for name, weight in STEPS.items() for _ in range(weight) if self._can(name)])
        bare = (
            engine != "duckdb" and self.rng.random() < 0.15 and name != "raced"
        )  # there the other has committed by then
        self.log.append(f"-- {engine}: {name}{', without statistics' if bare else ''}")
        self.taken[engine] += 1
        try:
            if bare:
                self.spark.conf.set(STATISTICS, "false")
            compare = getattr(self, name)() is not False
        except Exception as error:
            refusal = refusal_of(engine, name, error)
            if refusal is None:
                raise
            # Spark alone upgrades a table before it finds that it cannot number its rows.
            assert self.version == version or (engine, name) == (PLAIN, "turn_on"), f"refused, and written: {error}"
            self.refused[f"{engine}: {refusal.why}"] += 1
            self.log.append(f"   refused: {error}")
            self.now, self.fed, self.exact = state.copy(), False, None
        finally:
            if bare:
                self.spark.conf.unset(STATISTICS)
        self._settle(state.rows, compare_ids=compare and tracked, since=version)

    def append(self) -> None:
        rows = self._rows(self.rng.randint(1, 4))
        self._insert(rows, [c.role for c in self.now.columns if c.role not in ("g", "k")])

    def append_fewer(self) -> None:
        roles = [c.role for c in self.now.columns if c.role not in ("g", "k")]
        some = [r for r in roles if r in ("id", "v") or self.rng.random() < 0.4]
        self.rng.shuffle(some)
        self._insert(self._rows(self.rng.randint(1, 3)), some)

    def append_arrow(self) -> None:
        rows = self._rows(3)
        self._execute(WriteSpec("append"), rows)
        self._come(rows)

    def update(self) -> None:
        found = self._some()
        role = self.rng.choice([*(r for r in ("v", "m", "m", "s", "d", "x", "n", "p") if self._has(r)), *self._typed()])
        value = self._value(role)
        text = f"UPDATE {TABLE} SET {self._n(role)} = {self._lit(role, value)}"
        self._sql(self.engine, f"{text} WHERE id IN ({listed(found)})")
        for key in found:
            self._changed(key, {role: value})
        self.exact = _kinds(update=found)

    def delete(self) -> None:
        found = self._some()
        self._sql(self.engine, f"DELETE FROM {TABLE} WHERE id IN ({listed(found)})")
        self._go(found)
        self.exact = _kinds(delete=found)

    def merge(self) -> None:
        rows = self._rows(2)
        old = self._some()
        gone = old[: len(old) // 3]
        source = [*rows, *({**self._row(), "id": key} for key in old)]
        roles = [
            "id",
            "v",
            "m",
            *(r for r in ("n", "s", "d", "x", "p", *self._typed()) if self._has(r) and self.rng.random() < 0.5),
        ]
        drop = {row["id"]: row["id"] in gone for row in source}
        selects = " UNION ALL ".join(
            "SELECT "
            + ", ".join(f"{self._lit(r, row[r])} AS s{r}" for r in roles)
            + f", {str(drop[row['id']]).lower()} AS gone"
            for row in source
        )
        sets = ", ".join(f"{self._n(r)} = s.s{r}" for r in roles if r != "id")
        names, values = ", ".join(map(self._n, roles)), ", ".join(f"s.s{r}" for r in roles)
        self._sql(
            self.engine,
            f"MERGE INTO {TABLE} AS t USING ({selects}) AS s ON t.id = s.sid WHEN MATCHED AND s.gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})",
        )
        self._go(gone)
        for row in source:
            if row["id"] in old and row["id"] not in gone:
                self._changed(row["id"], {r: row[r] for r in roles if r != "id"})
        self._come([self._given(row, roles) for row in rows])
        self.exact = _kinds(insert=[r["id"] for r in rows], delete=gone, update=[k for k in old if k not in gone])

    def delete_insert(self) -> None:
        old = self._some()
        rows = [*self._rows(1), *({**self._row(), "id": key} for key in old)]
        self._execute(DeleteInsertSpec(keys=("id",)), rows)
        self._go(old)
        self._come(rows)

    def overwrite(self) -> None:
        rows = self._rows(4)
        self._execute(WriteSpec("overwrite"), rows)
        self._go(list(self.now.rows))
        self._come(rows)

    def overwrite_sql(self) -> None:
        rows = self._rows(3)
        roles = [c.role for c in self.now.columns if c.role not in ("g", "k")]
        names = ", ".join(map(self._n, roles))
        self._sql(self.engine, f"INSERT OVERWRITE {TABLE} ({names}) {self._selects(rows, roles)}")
        self._go(list(self.now.rows))
        self._come([self._given(row, roles) for row in rows])

    def overwrite_columns(self) -> None:
        """An overwrite that brings a column more, or one less."""
        if self._has("e"):
            self.now.columns = [c for c in self.now.columns if c.role != "e"]
        else:
            self.now.columns.append(Column("e", "extra", "STRING"))
        rows = self._rows(3)
        self._execute(WriteSpec("overwrite"), rows)
        self._go(list(self.now.rows))
        self._come(rows)
        self.fed = False

    def replace(self) -> None:
        value = self.rng.choice(["one", "two"])
        rows = [{**row, "p": value} for row in self._rows(2)]
        self._execute(
            WriteSpec("replace", predicate=f"{quote_identifier(self._name('p'))} = {quote_literal(value)}"), rows
        )
        self._go([key for key, row in self.now.rows.items() if row["p"] == value])
        self._come(rows)

    def optimize(self) -> None:
        self._sql(self.engine, f"OPTIMIZE {TABLE}")
        self.exact = {}

    def optimize_full(self) -> None:
        self.sessions[self.engine].table(TABLE).purge()
        self.exact = {}

    def restore(self) -> bool:
        version = self.rng.choice(sorted(self.history))
        then = self.history[version].copy()
        self._sql(self.engine, f"RESTORE TABLE {TABLE} TO VERSION AS OF {version}")
        self.now = then
        self.fed = self.same_versions = False
        self.tokens_of_ids = dict(then.tokens)
        return bool(then.row_ids) or not then.rows

    def rename(self) -> None:
        column = self._column(self.rng.choice([r for r in ("v", "d", "s", "x", "n", "e") if self._has(r)]))
        new = f"{column.role}{self.rng.randint(1, 99)}"
        self._sql(self.engine, f"ALTER TABLE {TABLE} RENAME COLUMN {quoted(column.name)} TO {quoted(new)}")
        column.name = new
        self._altered()

    def add_column(self) -> None:
        self._sql(self.engine, f"ALTER TABLE {TABLE} ADD COLUMN extra STRING")
        self.now.columns.append(Column("e", "extra", "STRING"))
        for row in self.now.rows.values():
            row["e"] = None
        self._altered()

    def drop_column(self) -> None:
        roles = [r for r in ("e", "e", "s", "n") if self._has(r)]
        column = self._column(self.rng.choice(roles))
        self._sql(self.engine, f"ALTER TABLE {TABLE} DROP COLUMN {quoted(column.name)}")
        self.now.columns.remove(column)
        for row in self.now.rows.values():
            row.pop(column.role)
        self._altered()

    def widen(self) -> None:
        self._sql(self.engine, f"ALTER TABLE {TABLE} ALTER COLUMN {self._n('n')} TYPE BIGINT")
        self._column("n").type = "BIGINT"
        self._altered()

    def turn_on(self) -> None:
        """A property that a table gets later."""
        key = self.rng.choice(self._off())
        self._sql(self.engine, f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('{key}' = '{LATER[key]}')")
        self.fed = False

    def checkpoint(self) -> None:
        if self.engine == PLAIN:
            log = self.spark._jvm.org.apache.spark.sql.delta.DeltaLog
            log.forTable(self.spark._jsparkSession, str(self.location)).checkpoint()
        else:
            self.sessions[self.engine].table(TABLE).checkpoint()
        self.exact = {}

    def vacuum(self) -> None:
        if self.engine == PLAIN:
            with set_to(self.spark, WITHIN_RETENTION):
                self._sql(PLAIN, f"VACUUM {TABLE} RETAIN 0 HOURS")
        else:
            self.sessions[self.engine].execute(TABLE, VacuumSpec(retention_hours=0, enforce_retention=False))
        self.history = {}

    def restart(self) -> None:
        """Sessions that have read nothing of the table."""
        self.close()
        self.open()
        self.exact = {}

    def staged_over(self) -> None:
        """Files of DuckDB that are staged, and committed on top of what the step's engine did meanwhile."""
        rows = self._rows(2)
        duck = self.sessions["duckdb"]
        files = duck.stage(TABLE, self._arrow(rows))
        self.rng.choice([self.append, self.update, self.delete])()
        self.exact = None
        self.log.append("duckdb: commit of files that were staged before")
        try:
            duck.commit_staged(TABLE, files, WriteSpec("append"))
        except CommitConflict as error:
            self.log.append(f"   {error}")
        else:
            self._come(rows)

    def raced(self) -> None:
        """A merge by a session, while Spark without our code commits: it counts as if it came after that, or not at all."""
        rows = [*self._rows(1), *({**self._row(), "id": key} for key in self._some())]
        source, engine, let_in = self._arrow(rows), self.engine, []

        def batches() -> Iterator[pa.RecordBatch]:
            self.engine = PLAIN
            let_in.append(self.rng.choice([self.append, self.update, self.delete, self.optimize]))
            let_in[0]()
            yield from source.to_batches()

        self.log.append(f"{engine}: {MergeSpec(('id',))} <- {rows}, which lets in:")
        try:
            stream = pa.RecordBatchReader.from_batches(source.schema, batches())
            self.sessions[engine].execute(TABLE, MergeSpec(("id",)), stream)
        except CommitConflict as error:
            self.log.append(f"   {error}")
        else:
            for row in rows:
                if row["id"] in self.now.rows:
                    self._changed(row["id"], {r: v for r, v in row.items() if r not in ("id", "g", "k")})
                else:
                    self._come([row])
        finally:
            self.engine = engine
        assert let_in, "nothing came in between"
        self.exact = None

    def _insert(self, rows: list[Row], roles: Sequence[str]) -> None:
        names = ", ".join(map(self._n, roles))
        self._sql(self.engine, f"INSERT INTO {TABLE} ({names}) {self._selects(rows, roles)}")
        self._come([self._given(row, roles) for row in rows])
        self.exact = _kinds(insert=[row["id"] for row in rows])

    def _execute(self, spec: Any, rows: list[Row]) -> None:
        self.log.append(f"{self.engine}: {spec} <- {rows}")
        self.sessions[self.engine].execute(TABLE, spec, self._arrow(rows))


STEPS = {
    "append": 3, "append_fewer": 3, "append_arrow": 1, "update": 4, "delete": 3, "merge": 5, "delete_insert": 1, "overwrite": 1,
    "overwrite_sql": 1, "overwrite_columns": 1, "replace": 2, "optimize": 2, "optimize_full": 1, "restore": 3, "rename": 2,
    "add_column": 2, "drop_column": 2, "widen": 2, "turn_on": 4, "checkpoint": 2, "vacuum": 1, "staged_over": 2,
    "raced": 2, "restart": 1,
}  # fmt: skip
"""How often each is drawn."""


def _kinds(**keys: Iterable[int]) -> dict[str, Counter[str]]:
    found = {}
    for kind, ids in keys.items():
        counted = Counter(map(str, ids))
        for name in ("update_preimage", "update_postimage") if kind == "update" else (kind,):
            if counted:
                found[name] = counted
    return found
