"""Nine changes of lineitem, one after the other on one table: the shapes of the merge benchmark that djouallah/duckrun publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.harness.case import Data, Job, Relations, Run
from benchmarks.harness.duck import delta_at, parquet, plain
from benchmarks.jobs import lineitem, spark, tuned, warm
from benchmarks.jobs.merges import SIDES


@dataclass(frozen=True)
class Clause:
    """A WHEN clause of a merge: its kind as `MergeClause` names it, a condition, and the columns set other than from the source."""

    kind: str
    condition: str | None = None
    set: Mapping[str, str] = field(default_factory=dict)


UPSERT = (Clause("matched_update"), Clause("not_matched_insert"))


@dataclass(frozen=True)
class Operation:
    """One change: its label, the SQL of its source over ``{lineitem}``, and the clauses of its merge, or how it is written.

    After some of them the table is compared.
    """

    label: str
    source: str
    clauses: tuple[Clause, ...] = ()
    mode: str = "merge"
    is_compared: bool = False


def _some(salt: int, parts: int, low: int = 0, high: int = 1) -> str:
    """SQL for the rows of lineitem whose share of ``parts`` lies between two bounds."""
    return f"hash(l_orderkey, l_linenumber, {salt}) % {parts} BETWEEN {low} AND {high - 1}"


def _marked(rows: str, quantity: int, **columns: str) -> str:
    """SQL for rows of lineitem that carry a quantity which no order has."""
    values = {"l_quantity": f"CAST({quantity} AS DECIMAL(15, 2))"} | columns
    replaced = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"SELECT * REPLACE ({replaced}) FROM {{lineitem}} WHERE {rows}"


def _new(salt: int, parts: int, quantity: int, **columns: str) -> str:
    """SQL for rows of new orders, later than all others; those of each salt have keys of their own."""
    return _marked(_some(salt, parts), quantity, l_orderkey=f"l_orderkey + {salt} * 100000000000", **columns)


GONE = _some(5, 100)
UPDATED = _marked(_some(3, 20), -2)
OPERATIONS = (
    Operation(
        "mixed upsert, 1 %",
        f"{_marked(_some(1, 1000, 2, 10), -1)} UNION ALL {_new(1, 500, -1)}",
        UPSERT,
    ),
    Operation("insert of new keys, 5 %", _new(2, 20, 1, l_shipdate="DATE '2035-06-15'"), UPSERT),
    Operation("update, 5 %", UPDATED, UPSERT),
    Operation("the same update again", UPDATED, UPSERT),
    Operation(
        "delete, update and insert, 6 %",
        f"{_marked(GONE, -7)} UNION ALL {_marked(_some(5, 100, 1, 4), -8)} UNION ALL {_new(4, 50, -4)}",
        (Clause("matched_delete", "source.l_quantity = -7"), *UPSERT),
        is_compared=True,
    ),
    Operation(
        "sync with half of the rows",
        _marked(f"l_orderkey % 2 = 1 AND NOT {GONE}", -5),
        (Clause("matched_update"), Clause("not_matched_by_source_delete")),
    ),
    Operation(
        "update by expressions, 5 %",
        f"SELECT * FROM {{lineitem}} WHERE {_some(6, 20)} AND l_orderkey % 2 = 1 AND NOT {GONE}",
        (
            Clause(
                "matched_update",
                set={
                    "l_quantity": "CAST(-9 AS DECIMAL(15, 2))",
                    "l_returnflag": "CASE WHEN source.l_discount > 0.05 THEN 'H' ELSE 'L' END",
                },
            ),
        ),
    ),
    Operation("append, 5 %", _new(7, 20, 7), mode="append", is_compared=True),
    Operation("overwrite by 5 %", _new(8, 20, 8), mode="overwrite", is_compared=True),
)


def prepare(data: Data) -> None:
    """The sources as Parquet files; those of one SQL are one file."""
    lineitem.prepare_base(data)
    for each in OPERATIONS:
        with lineitem.making(data, _file(each)) as file:
            if file:
                lineitem.copy(data, each.source, file)


def _file(operation: Operation) -> str:
    same = next(number for number, each in enumerate(OPERATIONS) if each.source == operation.source)
    return f"chain-{same}"


def by_duckrun(run: Run, how: Mapping[str, Any]) -> Relations:
    import duckrun
    from duckrun import MergeClause, MergeSpec, WriteSpec

    warm.duckrun()
    with duckrun.connect(run.lake) as s:

        def change(each: Operation, file: str) -> None:
            clauses = tuple(MergeClause(c.kind, c.condition, set=c.set or None) for c in each.clauses)
            spec = WriteSpec(each.mode) if each.mode != "merge" else MergeSpec(lineitem.KEYS, clauses, **how)
            s.execute("main.t", spec, duckrun.SQL(f"SELECT * FROM {parquet(file)}"))

        return _run(run, change)


def by_deltalake(run: Run) -> Relations:
    warm.deltalake()

    def change(each: Operation, file: str) -> None:
        with plain() as con:
            rows = con.sql(f"FROM {parquet(file)}")
            if each.mode != "merge":
                tuned.write(run.table, rows.to_arrow_reader(100_000), mode=each.mode)
                return
            on = lineitem.same_keys("target", "source")
            whole = any("by_source" in clause.kind for clause in each.clauses)
            merge = tuned.merge(run.table, rows.to_arrow_table(), on, whole=whole)
            for clause in each.clauses:
                match clause.kind:
                    case "matched_update" if clause.set:
                        merge = merge.when_matched_update(dict(clause.set), clause.condition)
                    case "matched_update":
                        merge = merge.when_matched_update_all(clause.condition)
                    case "matched_delete":
                        merge = merge.when_matched_delete(clause.condition)
                    case "not_matched_insert":
                        merge = merge.when_not_matched_insert_all(clause.condition)
                    case "not_matched_by_source_delete":
                        merge = merge.when_not_matched_by_source_delete(clause.condition)
            merge.execute()

    return _run(run, change)


def by_spark(run: Run) -> Relations:
    session = warm.spark()
    table = spark.table(run.table)

    def change(each: Operation, file: str) -> None:
        if each.mode != "merge":
            rows = session.read.parquet(file)
            rows.write.format("delta").mode(each.mode).save(str(run.table))
            return
        on = lineitem.same_keys("target", "source")
        whens = " ".join(map(_when, each.clauses))
        session.sql(f"MERGE INTO {table} AS target USING {spark.rows(file)} AS source ON {on} {whens}")

    return _run(run, change)


def _when(clause: Clause) -> str:
    kind, _, action = clause.kind.rpartition("_")
    matched = {"matched": "MATCHED", "not_matched": "NOT MATCHED", "not_matched_by_source": "NOT MATCHED BY SOURCE"}
    values = ", ".join(f"{name} = {value}" for name, value in clause.set.items()) or "*"
    actions = {"update": f"UPDATE SET {values}", "insert": "INSERT *", "delete": "DELETE"}
    condition = f" AND {clause.condition}" if clause.condition else ""
    return f"WHEN {matched[kind]}{condition} THEN {actions[action]}"


def _run(run: Run, change: Callable[[Operation, str], None]) -> Relations:
    """Each operation with a lap of its own. A relation is the table at the version that an operation left."""
    found = {}
    for each in OPERATIONS:
        with run.clock(each.label):
            change(each, run.data.file(_file(each)))
        if each.is_compared:
            found[each.label] = delta_at(run.table)
    return found


def expected(data: Data) -> Relations:
    """The table after the operations that are compared, from the sources alone."""
    return dict(_expected(data))


def _expected(data: Data) -> Iterator[tuple[str, str]]:
    rows = f"(FROM {parquet(data.file(lineitem.NAME))})"
    for each in OPERATIONS:
        source = f"(FROM {parquet(data.file(_file(each)))})"
        rows = _changed(each, rows, source)
        if each.is_compared:
            yield each.label, rows


def _changed(operation: Operation, rows: str, source: str) -> str:
    if operation.mode == "append":
        return f"(FROM {rows} UNION ALL FROM {source})"
    if operation.mode == "overwrite":
        return source
    kinds = {each.kind: each for each in operation.clauses}
    if "not_matched_by_source_delete" in kinds:
        return (
            f"(SELECT source.* FROM {source} AS source SEMI JOIN {rows} AS target USING ({', '.join(lineitem.KEYS)}))"
        )
    if values := kinds["matched_update"].set:
        joined = f"{rows} AS target LEFT JOIN {source} AS source ON {lineitem.same_keys('target', 'source')}"
        replaced = ", ".join(
            f"CASE WHEN source.l_orderkey IS NULL THEN target.{name} ELSE {value} END AS {name}"
            for name, value in values.items()
        )
        return f"(SELECT target.* REPLACE ({replaced}) FROM {joined})"
    gone = kinds["matched_delete"].condition if "matched_delete" in kinds else "false"
    kept = f"SELECT target.* FROM {rows} AS target ANTI JOIN {source} AS source USING ({', '.join(lineitem.KEYS)})"
    return f"({kept} UNION ALL SELECT source.* FROM {source} AS source WHERE NOT ({gone}))"


JOBS = (
    Job(
        "merge-chain",
        "Nine changes one after the other",
        {
            **{title: partial(by_duckrun, how=how) for title, how in SIDES.items()},
            "deltalake": by_deltalake,
            "Spark": by_spark,
        },
        expected,
        prepare,
        base=lineitem.NAME,
    ),
)
