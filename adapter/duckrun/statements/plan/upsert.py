"""INSERT … ON CONFLICT as a merge by its keys."""

from __future__ import annotations

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.sql.quoting import fresh_name
from duckrun.statements.plan import merge, rows
from duckrun.statements.plan.rows import Asked, Work
from duckrun.statements.reading import Reading
from duckrun.statements.values import Insert, Merge, OnConflict, When
from duckrun.values.snapshot import Snapshot, TableRef

_EXCLUDED = "excluded"


def insert(statement: Insert, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return an append, or the merge for ON CONFLICT.

    Rows with a NULL in a key conflict with no row.
    """
    if statement.conflict is None:
        return rows.insert(statement, ref, reading, options)
    snapshot = reading.snapshot(ref)
    keys = _keys(statement.conflict, snapshot)
    whole = rows.fitted(statement, snapshot, reading, options.schema_mode, _seen(statement), whole=True).query
    whens = [When("not_matched_insert")]
    if statement.conflict.assigned is None:
        whole = _first_of_each(whole, keys, reading)
    else:
        where, assigned = statement.conflict.where, statement.conflict.assigned
        whens.insert(0, When("matched_update", where, assigned, bare="target"))
    source = whole.subquery(_EXCLUDED, copy=False)
    by_keys = Merge(statement.target, statement.conflict.alias, source, None, keys, tuple(whens))
    return merge.merge(by_keys, ref, reading, options)


def _seen(statement: Insert) -> set[str]:
    """Return the columns of ``excluded`` that expressions use, in lower case.

    They see the query's own values, as in a MERGE. VALUES have the types of the table's columns, as
    in DuckDB.
    """
    conflict = statement.conflict
    if conflict is None or statement.is_values:
        return set()
    trees = [value for _, value in conflict.assigned or ()] + ([] if conflict.where is None else [conflict.where])
    paths = ([part.name.lower() for part in column.parts] for tree in trees for column in tree.find_all(exp.Column))
    return {path[1] for path in paths if len(path) > 1 and path[0] == _EXCLUDED}


def _keys(conflict: OnConflict, snapshot: Snapshot) -> tuple[str, ...]:
    spelled = {name.lower(): name for name in snapshot.schema.names}
    unknown = [key for key in conflict.keys if key.lower() not in spelled]
    if unknown:
        raise InvalidConfig(
            f"INSERT … ON CONFLICT: table {snapshot.ref} has no column {', '.join(unknown)}; it has "
            f"{', '.join(spelled.values())}."
        )
    if conflict.alias.lower() == _EXCLUDED:
        raise InvalidConfig(f"INSERT … ON CONFLICT: give table {snapshot.ref} an alias; excluded is the row to insert.")
    return tuple(dict.fromkeys(spelled[key.lower()] for key in conflict.keys))


def _first_of_each(query: exp.Query, keys: tuple[str, ...], reading: Reading) -> exp.Query:
    """Return the first row of each key, and all rows with a NULL in a key."""
    names = query.named_selects
    place, number = (fresh_name(f"__duckrun_{what}", names) for what in ("place", "number"))
    order: exp.Expr = exp.Anonymous(this="monotonically_increasing_id")
    if reading.engine.name == "duckdb":
        order = exp.Window(this=exp.RowNumber())
    columns = [exp.column(name, quoted=True) for name in names]
    placed = exp.select(*columns, exp.alias_(order, place, quoted=True)).from_(query.subquery("given", copy=False))
    by_key = exp.Window(
        this=exp.RowNumber(),
        partition_by=[exp.column(key, quoted=True) for key in keys],
        order=exp.Order(expressions=[exp.column(place, quoted=True)]),
    )
    counted = exp.select(*columns, exp.alias_(by_key, number, quoted=True)).from_(placed.subquery("placed", copy=False))
    alone = [exp.Is(this=exp.column(key, quoted=True), expression=exp.null()) for key in keys]
    first = exp.EQ(this=exp.column(number, quoted=True), expression=exp.Literal.number(1))
    counted_rows = counted.subquery("counted", copy=False)
    return exp.select(*(column.copy() for column in columns)).from_(counted_rows).where(exp.or_(first, *alone))
