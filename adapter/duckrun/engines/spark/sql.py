"""SQL that the Spark engine runs, built from specs.

This module only makes text; it knows no session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, RowsOutsidePartition, SchemaMismatch
from duckrun.sql.char_types import padded
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.names import transpile
from duckrun.sql.placing import put_in_place, set_part
from duckrun.sql.quoting import quote_literal
from duckrun.sql.raising import raising
from duckrun.values.rows import MergeClause, MergeSpec

if TYPE_CHECKING:
    import pyarrow as pa


def quote(*parts: str) -> str:
    """Quote a name with Spark's backticks.

    >>> print(quote("target", "odd `name"))
    `target`.`odd ``name`
    """
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def text_literal(value: str) -> str:
    r"""Return a text as a Spark literal. Spark reads a backslash as an escape.

    >>> print(text_literal("it's"))
    'it\'s'
    """
    return quote_literal(value.replace("\\", "\\\\")).replace("''", "\\'") if value else "''"


def properties_list(properties: Mapping[str, str]) -> str:
    """Return the list inside TBLPROPERTIES (...).

    >>> properties_list({"delta.appendOnly": "true"})
    "'delta.appendOnly' = 'true'"
    """
    return ", ".join(f"{text_literal(name)} = {text_literal(str(value))}" for name, value in properties.items())


def table_at(location: str) -> str:
    """Return a table by its location."""
    return f"delta.{quote(location)}"


def to_spark(expression: str, dialect: str) -> str:
    """Translate an expression to Spark's dialect."""
    return transpile(expression, read=dialect, write="spark")


def without_between(expression: str, dialect: str) -> str:
    """Replace BETWEEN in an expression by comparisons.

    Spark's own dialect stays as written.

    >>> without_between("d between 1 and 2 or s = 'o''x'", "duckdb")
    "(d >= 1 AND d <= 2) OR s = 'o''x'"
    """

    # Delta's replaceWhere cannot analyse BETWEEN over a column that Spark casts (Delta 4.4 on
    # Spark 4.1: Invalid call to nullable on unresolved object).
    def compared(node: exp.Expression) -> exp.Expression:
        if not isinstance(node, exp.Between):
            return node
        low = exp.GTE(this=node.this.copy(), expression=node.args["low"])
        return exp.paren(exp.And(this=low, expression=exp.LTE(this=node.this.copy(), expression=node.args["high"])))

    if dialect == "spark":
        return expression
    tree = _tree(expression, dialect)
    text_in(tree, "spark")  # raises if the translation would lose something
    return tree.transform(compared).sql(dialect=dialect) if tree.find(exp.Between) else expression


def _tree(expression: str, dialect: str) -> exp.Expr:
    try:
        return tree_in(expression, dialect)
    except SqlglotError as error:
        raise InvalidConfig(f"Cannot read {expression!r} as {dialect} SQL: {error}") from error


def of_target(expression: str, dialect: str) -> str:
    """Qualify the columns of an expression over a table with the alias ``target``."""
    tree = _tree(expression, dialect)
    for column in tree.find_all(exp.Column):
        if not column.table:
            set_part(column, "table", exp.to_identifier("target"))
    return text_in(tree, "spark")


def key_equality(
    keys: Sequence[str],
    compared: Mapping[str, str] | None = None,
    cast: Mapping[str, str] = MappingProxyType({}),
    chars: Mapping[str, pa.Field] = MappingProxyType({}),
) -> str:
    """Return the condition that ``target`` and ``source`` have equal keys; NULL keys never match.

    Args:
        compared: Expressions to compare keys with, for keys that are no columns of the target.
        cast: Source column of a key, if its name differs.
        chars: Keys of type CHAR(n), which are padded for the comparison.
    """
    targets = {key: quote("target", key) for key in keys} | {key: f"({sql})" for key, sql in (compared or {}).items()}
    sources = {key: quote("source", cast.get(key, key)) for key in keys}
    for key, field in chars.items():
        targets[key], sources[key] = (padded(side[key], field) or side[key] for side in (targets, sources))
    return " AND ".join(f"{targets[key]} = {sources[key]}" for key in keys)


def compared_in(spec: MergeSpec) -> dict[str, str]:
    """Return the expressions that keys are compared with, in Spark's dialect."""
    return {key: to_spark(text, spec.dialect) for key, text in spec.compared.items()}


def in_spark(spec: MergeSpec) -> MergeSpec:
    """Return the same merge in Spark's dialect."""

    def read(text: str | None) -> str | None:
        return None if text is None else to_spark(text, spec.dialect)

    clauses = tuple(
        replace(
            clause,
            condition=read(clause.condition),
            set=clause.set and {column: to_spark(value, spec.dialect) for column, value in clause.set.items()},
        )
        for clause in spec.clauses
    )
    return replace(
        spec, clauses=clauses, on=read(spec.on), within=read(spec.within), compared=compared_in(spec), dialect="spark"
    )


def merge_condition(
    spec: MergeSpec, cast: Mapping[str, str], chars: Mapping[str, pa.Field] = MappingProxyType({})
) -> str:
    """Return the ON condition of a merge."""
    on = key_equality(spec.keys, compared_in(spec), cast, chars)
    if spec.on is not None:
        on += f" AND ({to_spark(spec.on, spec.dialect)})"
    return on if spec.within is None else f"{on} AND ({of_target(spec.within, spec.dialect)})"


def assignments(
    clause: MergeClause, columns: Sequence[str], dialect: str, cast: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Map target columns to expressions, for one clause that updates or inserts.

    Args:
        columns: All columns, for a clause that names none.
        cast: Source column that holds a column's value, if its name differs.
    """
    if clause.set is not None:
        return {column: to_spark(value, dialect) for column, value in clause.set.items()}
    return {column: quote("source", cast.get(column, column)) for column in clause.columns or columns}


def _made(clause: MergeClause, columns: Sequence[str], spec: MergeSpec, cast: Mapping[str, str]) -> dict[str, str]:
    """Return a clause's assignments; a row outside ``within`` raises."""
    values = assignments(clause, columns, spec.dialect, cast)
    if spec.within is None or (clause.set is None and clause.columns is None):
        return values
    by_column = {column.lower(): value for column, value in values.items()}
    tree = exp.paren(_tree(spec.within, spec.dialect))
    for column in list(tree.find_all(exp.Column)):
        present = "NULL" if clause.kind == "not_matched_insert" else quote("target", column.name)
        put_in_place(exp.var(f"({by_column.get(column.name.lower(), present)})"), column)
    message = f"a row that a clause of the merge makes lies outside the part being written ({spec.within})"
    error = to_spark(raising(RowsOutsidePartition, quote_literal(message)), "duckdb")
    first, value = next(iter(values.items()))
    return {**values, first: f"CASE WHEN {text_in(tree, 'spark')} THEN {value} ELSE {error} END"}


def merge_statement(
    spec: MergeSpec,
    target: str,
    source: str,
    columns: Sequence[str],
    cast: Mapping[str, str] = MappingProxyType({}),
    *,
    evolve: bool = False,
    chars: Mapping[str, pa.Field] = MappingProxyType({}),
) -> str:
    """Return the MERGE statement.

    Args:
        columns: Source columns for a clause that names none.
        cast: Source columns with values in the table's types, if expressions see the uncast ones.
        evolve: Let the merge add columns to the table.
        chars: Keys of type CHAR(n).
    """
    lines = [_merge_into(target, source, merge_condition(spec, cast, chars), evolve=evolve)]
    for clause in spec.clauses:
        kind, _, action = clause.kind.rpartition("_")
        condition = "" if clause.condition is None else f" AND ({to_spark(clause.condition, spec.dialect)})"
        if kind == "not_matched_by_source" and spec.within is not None:
            condition = f" AND ({of_target(spec.within, spec.dialect)}){condition}"
        lines.append(
            f"WHEN {kind.upper().replace('_', ' ')}{condition} THEN {_action(clause, action, columns, spec, cast)}"
        )
    return "\n".join(lines)


def _action(clause: MergeClause, action: str, columns: Sequence[str], spec: MergeSpec, cast: Mapping[str, str]) -> str:
    if action == "delete":
        return "DELETE"
    if clause.kind == "not_matched_by_source_update" and clause.set is None:
        raise InvalidConfig(
            "The merge clause not_matched_by_source_update needs set expressions: it has no source row."
        )
    values = _made(clause, columns, spec, cast)
    if action == "update":
        return "UPDATE SET " + ", ".join(f"{quote(c)} = {v}" for c, v in values.items())
    return f"INSERT ({', '.join(map(quote, values))}) VALUES ({', '.join(values.values())})"


def merge_dry_run(
    spec: MergeSpec, target: str, source: str, columns: Sequence[str], cast: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return a SELECT of all expressions of a merge, so that Spark checks them before it runs."""
    parts = [f"({merge_condition(spec, cast)})"]
    for clause in spec.clauses:
        if clause.condition is not None:
            parts.append(f"({to_spark(clause.condition, spec.dialect)})")
        if not clause.kind.endswith("delete"):
            parts += assignments(clause, columns, spec.dialect, cast).values()
    return f"SELECT {', '.join(parts)} FROM {target} AS target CROSS JOIN {source} AS source"


def changing_rows(
    spec: MergeSpec, target: str, source: str, cast: Mapping[str, str], chars: Mapping[str, pa.Field]
) -> str:
    """Return a SELECT of the source rows that change the table: by an insert or a match."""
    met = f"SELECT 1 FROM {target} AS target WHERE {merge_condition(spec, cast, chars)}"
    changes = [c.condition or "true" for c in spec.clauses if c.kind.startswith("matched")]
    inserts = [c.condition or "true" for c in spec.clauses if c.kind == "not_matched_insert"]
    tests = [
        f"EXISTS ({met} AND ({_any_of(changes)}))",
        f"NOT EXISTS ({met}) AND ({_any_of(inserts)})",
    ]
    return f"SELECT * FROM {source} AS source WHERE {_any_of(tests)}"


def changing_others(
    spec: MergeSpec, target: str, source: str, cast: Mapping[str, str], chars: Mapping[str, pa.Field]
) -> str:
    """Return a SELECT of the table's rows without a match that a merge changes."""
    met = f"SELECT 1 FROM {source} AS source WHERE {merge_condition(spec, cast, chars)}"
    changes = [c.condition or "true" for c in spec.clauses if c.kind.startswith("not_matched_by_source")]
    within = "true" if spec.within is None else of_target(spec.within, spec.dialect)
    return f"SELECT 1 FROM {target} AS target WHERE NOT EXISTS ({met}) AND ({_any_of(changes)}) AND ({within})"


def _any_of(conditions: Sequence[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def matched_statement(target: str, source: str, on: str, values: Mapping[str, str]) -> str:
    """Return a MERGE that stands for UPDATE … FROM (with values) or DELETE … USING.

    Spark has neither. If several source rows match one target row, an update fails and a delete
    does not.
    """
    action = f"UPDATE SET {', '.join(f'{quote(c)} = {v}' for c, v in values.items())}" if values else "DELETE"
    return f"{_merge_into(target, source, on)} WHEN MATCHED THEN {action}"


def _merge_into(target: str, source: str, on: str, *, evolve: bool = False) -> str:
    """Return the begin of a MERGE, before its clauses."""
    evolution = "WITH SCHEMA EVOLUTION " if evolve else ""
    return f"MERGE {evolution}INTO {target} AS target\nUSING {source} AS source\nON {on}"


def delete_insert_statement(
    target: str, source: str, on: str, mark: str, columns: Sequence[str], *, evolve: bool
) -> str:
    """Return a MERGE that deletes by key and inserts, so that keys may repeat.

    Args:
        on: Condition of the rows to delete.
        mark: Column that marks the source rows. ``D`` rows, one per key, only delete. ``I`` rows
            match nothing and are inserted.
    """
    kind, values = quote("source", mark), ", ".join(quote("source", c) for c in columns)
    begin = _merge_into(target, source, f"{on} AND {kind} = 'D'", evolve=evolve)
    return (
        f"{begin}\nWHEN MATCHED THEN DELETE\n"
        f"WHEN NOT MATCHED AND {kind} = 'I' THEN INSERT ({', '.join(map(quote, columns))}) VALUES ({values})"
    )


def cluster_clause(columns: Sequence[str], cluster_by: Sequence[str]) -> str:
    """Return ``CLUSTER BY`` for columns of a table, or for fields within them (``a.b``).

    Raises:
        SchemaMismatch: A column is missing.

    >>> cluster_clause(["id", "place", "x.y"], ["ID", "place.city", "x.y"])
    'CLUSTER BY (`id`, `place`.`city`, `x.y`)'
    """
    return f"CLUSTER BY ({', '.join(cluster_columns(columns, cluster_by))})" if cluster_by else "CLUSTER BY NONE"


def cluster_columns(columns: Sequence[str], cluster_by: Sequence[str]) -> list[str]:
    """Return the quoted clustering columns; raise SchemaMismatch if one is missing."""
    present = {column.lower(): column for column in columns}
    paths = [(name,) if name.lower() in present else tuple(name.split(".")) for name in cluster_by]
    missing = [".".join(parts) for parts in paths if parts[0].lower() not in present]
    if missing:
        raise SchemaMismatch(
            f"the clustering column {', '.join(missing)} is missing in the columns, which are {', '.join(columns)}"
        )
    return [quote(present[first.lower()], *fields) for first, *fields in paths]
