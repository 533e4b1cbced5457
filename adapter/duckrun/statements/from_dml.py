"""Statements that change rows, from their syntax trees."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.specs import DeleteSpec
from duckrun.statements.parts import query_of, refuse, target_of, unsupported, with_ctes
from duckrun.statements.values import Delete, Insert, Merge, OnTable, Statement, Update, When


def insert(tree: exp.Expr, dialect: str) -> list[Statement]:
    refuse(tree, "INSERT", "alternative", "ignore", "conflict", "returning", "default", "stored", "settings", "source")
    columns: tuple[str, ...] | None = None
    table = tree.this
    if isinstance(table, exp.Schema):
        columns, table = tuple(column.name for column in table.expressions), table.this
    partition: list[tuple[str, exp.Expr | None]] = []
    if table.args.get("partition"):
        for part in table.args["partition"].expressions:
            value = part.expression if isinstance(part, exp.EQ) else None
            name = part.this.name if isinstance(part, exp.EQ) else part.name
            partition.append((name, value))
    values = tree.expression
    if isinstance(values, exp.Values):
        values = values.copy()
        for var in [v for v in values.find_all(exp.Var) if v.name.upper() == "DEFAULT"]:
            var.replace(exp.null())
    query = with_ctes(query_of(values, "INSERT"), tree.args.get("with_"))
    by_name = bool(tree.args.get("by_name"))
    if by_name and columns is not None:
        raise unsupported("INSERT with a list of columns and BY NAME")
    overwrite, where = bool(tree.args.get("overwrite")), tree.args.get("where")
    return [Insert(target_of(table, "INSERT"), query, columns, by_name, overwrite, tuple(partition), where)]


def update(tree: exp.Expr, dialect: str) -> list[Statement]:
    refuse(tree, "UPDATE", "returning", "order", "limit")
    target = target_of(tree.this, "UPDATE")
    alias = tree.this.alias_or_name
    from_, where = tree.args.get("from_"), tree.args.get("where")
    return [
        Update(
            target,
            alias,
            _assigned(tree.expressions, alias),
            where.this if where else None,
            (from_.this,) if from_ else (),
            tree.args.get("with_"),
        )
    ]


def _assigned(expressions: Sequence[exp.Expr], alias: str) -> tuple[tuple[str, exp.Expr], ...]:
    """``SET a = 1, t.b = 2, (c, d) = (3, 4)``."""
    found: list[tuple[str, exp.Expr]] = []
    for equality in expressions:
        left, right = equality.this, equality.args.get("expression")
        pairs = [(left, right)]
        if isinstance(left, exp.Tuple):
            if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
                raise unsupported("SET of several columns to anything but as many values in brackets")
            pairs = list(zip(left.expressions, right.expressions, strict=True))
        for column, value in pairs:
            if not isinstance(equality, exp.EQ) or not isinstance(column, exp.Column) or value is None:
                raise unsupported(f"SET {equality.sql()}")
            if column.table and column.table.lower() != alias.lower():
                raise unsupported(f"SET {column.sql()}: only whole columns of {alias} are set, so that")
            if isinstance(value, exp.Column) and value.name.upper() == "DEFAULT" and not value.this.quoted:
                raise unsupported("SET … = DEFAULT")
            if column.name.lower() in {name.lower() for name, _ in found}:
                raise InvalidConfig(f"The column {column.name} is set twice.")
            found.append((column.name, value))
    return tuple(found)


def delete(tree: exp.Expr, dialect: str) -> list[Statement]:
    refuse(tree, "DELETE", "returning", "order", "limit", "cluster", "tables")
    where = tree.args.get("where")
    sources = tuple(tree.args.get("using") or ())
    with_ = tree.args.get("with_")
    return [
        Delete(target_of(tree.this, "DELETE"), tree.this.alias_or_name, where.this if where else None, sources, with_)
    ]


def merge(tree: exp.Expr, dialect: str) -> list[Statement]:
    refuse(tree, "MERGE", "returning")
    target = target_of(tree.this, "MERGE")
    alias = tree.this.alias_or_name
    using = tuple(column.name for column in tree.args.get("using_cond") or ())
    whens = tuple(_when(when, alias) for when in tree.args["whens"].expressions)
    on = tree.args.get("on") or None
    return [Merge(target, alias, tree.args["using"], on, using, whens, tree.args.get("with_"))]


def _when(when: exp.Expr, alias: str) -> When:
    kind = "matched" if when.args.get("matched") else "not_matched"
    if when.args.get("source"):
        kind = "not_matched_by_source"
    then, condition = when.args["then"], when.args.get("condition")
    name = then.name.upper() if isinstance(then, exp.Var) else type(then).__name__.upper()
    insertable = kind == "not_matched"
    if name == "DO NOTHING":
        return When(f"{kind}_nothing", condition)  # type: ignore[arg-type]
    if name == "DELETE" and not insertable:
        return When(f"{kind}_delete", condition)  # type: ignore[arg-type]
    if name == "UPDATE" and not insertable:
        if not then.expressions:
            raise unsupported("UPDATE without SET in a MERGE")
        if len(then.expressions) == 1 and isinstance(then.expressions[0], exp.Star):
            if kind == "not_matched_by_source":
                raise InvalidConfig("WHEN NOT MATCHED BY SOURCE has no source row to take SET * from.")
            return When("matched_update", condition)
        return When(f"{kind}_update", condition, _assigned(then.expressions, alias))  # type: ignore[arg-type]
    if name == "INSERT" and insertable:
        return _when_insert(then, condition)
    raise unsupported(f"MERGE … WHEN {kind.upper().replace('_', ' ')} THEN {name}")


def _when_insert(then: exp.Expr, condition: exp.Expr | None) -> When:
    into, values = then.this, then.args.get("expression")
    if isinstance(into, exp.Star):
        return When("not_matched_insert", condition)
    if not isinstance(values, exp.Tuple):
        raise unsupported("MERGE … INSERT without VALUES (INSERT BY NAME, BY POSITION); write INSERT *; that form")
    given = tuple(
        exp.null() if v.name.upper() == "DEFAULT" and isinstance(v, exp.Var) else v for v in values.expressions
    )
    if into is None:
        return When("not_matched_insert", condition, positional=given)
    if not isinstance(into, exp.Tuple) or not all(isinstance(column, exp.Column) for column in into.expressions):
        raise unsupported("MERGE … INSERT BY NAME")
    if len(into.expressions) != len(given):
        raise InvalidConfig(f"MERGE … INSERT names {len(into.expressions)} columns and gives {len(given)} values.")
    return When(
        "not_matched_insert",
        condition,
        tuple((column.name, value) for column, value in zip(into.expressions, given, strict=True)),
    )


def truncate(tree: exp.Expr, dialect: str) -> list[Statement]:
    refuse(tree, "TRUNCATE", "is_database", "partition", "cluster", "option", "identity")
    if_exists = bool(tree.args.get("exists"))
    return [OnTable(target_of(table, "TRUNCATE"), DeleteSpec(), if_exists) for table in tree.expressions]
