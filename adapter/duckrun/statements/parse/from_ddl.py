"""CREATE, ALTER and DROP of tables and views, from their syntax trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.statements.parse.layout import partitioned_by
from duckrun.statements.parse.parts import query_of, refuse, target_of, unsupported, words_of
from duckrun.statements.parse.tokens import StatementText, TokenReader, in_brackets, word_of
from duckrun.statements.values import (
    CreateTable,
    CreateTableAs,
    CreateTemporary,
    CreateView,
    Drop,
    OnTable,
    Parts,
    Rename,
    Statement,
)
from duckrun.values import tables
from duckrun.values.nearest import did_you_mean

_KINDS: dict[str, Literal["table", "view"]] = {"TABLE": "table", "VIEW": "view"}

# -- CREATE


@dataclass
class _Properties:
    """The clauses between the name of a new table or view and AS."""

    layout: dict[str, Any] = field(
        default_factory=lambda: {"partition_by": (), "cluster_by": (), "table_properties": {}}
    )
    description: str | None = None
    temporary: bool = False

    def __bool__(self) -> bool:
        return any(self.layout.values())


def create(tree: exp.Expr, source: StatementText, sorted_by: Parts) -> Statement:
    """Read CREATE TABLE, CREATE VIEW, and their temporary forms.

    Args:
        tree: the tree of the statement's outline.
        source: the statement.
        sorted_by: the columns of SORTED BY, which sqlglot cannot parse.
    """
    kind, dialect = str(tree.args["kind"]).upper(), source.dialect
    if kind not in _KINDS:
        raise unsupported(f"CREATE {kind}")
    refuse(tree, f"CREATE {kind}", "clone", "unique", "indexes", "refresh", "concurrently", "clustered")
    if tree.args.get("replace") and tree.args.get("exists"):
        raise InvalidConfig(f"CREATE OR REPLACE {kind} IF NOT EXISTS: say one of the two.")
    if_exists: Literal["error", "ignore", "replace"] = "error"
    if_exists = "replace" if tree.args.get("replace") else "ignore" if tree.args.get("exists") else if_exists
    table, listed = (tree.this.this, tree.this.expressions) if isinstance(tree.this, exp.Schema) else (tree.this, [])
    target = target_of(table, f"CREATE {kind}")
    refuse_options(source, kind)
    properties = _properties(tree, kind, source)
    query = None
    if tree.args.get("expression") is not None:
        query_of(tree.expression, f"CREATE {kind}")  # raises if it is no query
        query = query_of(_after_as(source).parse(), f"CREATE {kind}")
    if properties.temporary:
        if len(target) != 1:
            raise InvalidConfig(f"A temporary {kind.lower()} has a name of one part, not {'.'.join(target)}.")
        if properties or properties.description:
            raise unsupported(f"CREATE TEMP {kind} with properties")
        return CreateTemporary(_KINDS[kind], target[0], _temporary_rows(kind, query, listed, dialect), if_exists)
    if kind == "VIEW":
        if query is None or properties or sorted_by:
            raise unsupported("CREATE VIEW with anything but names of columns, a comment and a query")
        return CreateView(target, query, if_exists, _names_only(listed, "CREATE VIEW"), properties.description)
    layout = {**properties.layout, "sort_by": sorted_by}
    if query is None:
        generated = in_brackets(source, "GENERATED", "ALWAYS", "AS")
        columns, named = _columns(listed, dialect, in_brackets(source, "CHECK"), generated)
        spec = tables.CreateSpec(
            columns=tuple(columns),
            if_exists=if_exists,
            checks=named,
            description=properties.description,
            dialect=dialect,
            **layout,
        )
        return CreateTable(target, spec)
    rows = renamed(query, _names_only(listed, "CREATE TABLE AS"))
    return CreateTableAs(target, rows, if_exists, properties.description, **layout)


def _temporary_rows(kind: str, query: exp.Query | None, listed: Sequence[exp.Expr], dialect: str) -> exp.Query:
    """Return the query of a temporary view or table; no rows for a table without one."""
    if query is not None:
        return renamed(query, _names_only(listed, f"CREATE TEMP {kind}"))
    if kind == "VIEW":
        raise unsupported("CREATE TEMP VIEW without a query")
    columns, checks = _columns(listed, dialect)
    if checks or any(not c.nullable or c.computed or c.default is not None for c in columns):
        raise unsupported("CREATE TEMP TABLE with constraints")
    nulls = [exp.alias_(exp.cast(exp.null(), c.type, dialect=dialect), c.name, quoted=True) for c in columns]
    return exp.select(*nulls).where(exp.false())


def _properties(tree: exp.Expr, kind: str, source: StatementText) -> _Properties:
    properties = _Properties()
    for node in tree.args["properties"].expressions if tree.args.get("properties") else ():
        if isinstance(node, exp.PartitionedByProperty):
            properties.layout["partition_by"] = partitioned_by(source)
        elif isinstance(node, exp.ClusterProperty):
            properties.layout["cluster_by"] = tuple(
                ".".join(part.name for part in column.parts) for column in node.expressions
            )
        elif isinstance(node, exp.SchemaCommentProperty):
            properties.description = node.this.name
        elif isinstance(node, exp.TemporaryProperty) and not node.this:
            properties.temporary = True
        elif isinstance(node, exp.FileFormatProperty):
            if node.this.name.lower() != "delta":
                raise unsupported(f"CREATE {kind} USING {node.this.name}")
        elif type(node) is exp.Property:
            properties.layout["table_properties"][_property(node)] = _text(node.args["value"])
        else:
            raise unsupported(f"CREATE {kind} … {words_of(node)}")
    return properties


def refuse_options(source: StatementText, kind: str) -> None:
    """Raise InvalidConfig for an option in WITH (…): a bare word without a dot or quotes."""
    for at, token in enumerate(source.tokens):
        if word_of(token) == "AS":
            return
        if not source.says(("WITH", "("), at):
            continue
        for inside in TokenReader(source, at + 1).parts():
            first = inside.next
            if first is None or not word_of(first) or len(inside.name()) > 1:
                continue
            option = first.text
            raise InvalidConfig(
                f"CREATE {kind} … WITH ({option} = …): there is no option {option!r}."
                f"{did_you_mean(option, _OPTIONS, cutoff=0.5)} The layout has clauses, PARTITIONED BY, SORTED BY and "
                "CLUSTER BY; a table property has a dot in its name, or stands in quotes."
            )


_OPTIONS = (
    "delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors", "delta.targetFileSize",
    "delta.checkpointInterval", "delta.logRetentionDuration", "delta.deletedFileRetentionDuration",
    "PARTITIONED BY", "SORTED BY", "CLUSTER BY",
)  # fmt: skip


def _property(node: exp.Expr) -> str:
    """Return a property's name; its parts may share quotes or be joined by dots."""
    name = node.this
    return ".".join(part.name for part in name.flatten()) if isinstance(name, exp.Dot) else str(name.name)


def _text(value: exp.Expr) -> str:
    """Return a property's value: a text, a number, or a bare word."""
    return value.name if isinstance(value, exp.Literal | exp.Var | exp.Identifier | exp.Column) else value.sql().lower()


def _names_only(listed: Sequence[exp.Expr], what: str) -> Parts:
    if not all(isinstance(column, exp.Identifier) for column in listed):
        raise unsupported(f"{what} with types, comments or constraints of columns; cast in the query: they")
    return tuple(column.name for column in listed)


def renamed(query: exp.Query, names: Sequence[str]) -> exp.Query:
    """Return a query with new column names, by position; without names, the query itself."""
    if not names:
        return query
    columns = [exp.to_identifier(name, quoted=True) for name in names]
    alias = exp.TableAlias(this=exp.to_identifier("given", quoted=True), columns=columns)
    return exp.select("*").from_(exp.Subquery(this=query.copy(), alias=alias))


def _after_as(source: StatementText) -> StatementText:
    """Return the query of a CREATE … AS."""
    reader = TokenReader(source)
    reader.until("AS")
    reader.expect("AS")
    return source.between(reader.at)


def _columns(
    listed: Sequence[exp.Expr],
    dialect: str,
    conditions: Iterator[str] = iter(()),
    generated: Iterator[str] = iter(()),
) -> tuple[list[tables.ColumnSpec], dict[str, str]]:
    """Return the columns and the CHECKs of a CREATE TABLE.

    Args:
        listed: the trees of columns and constraints.
        dialect: the dialect of the statement.
        conditions: the texts of the CHECKs, in order.
        generated: the texts of the generated columns, in order.
    """
    columns: list[tables.ColumnSpec] = []
    names: list[str] = []
    for node in listed:
        if isinstance(node, exp.ColumnDef):
            columns.append(_column(node, dialect, generated))
            checks = [each for each in _constraints(node) if isinstance(each.kind, exp.CheckColumnConstraint)]
            names += [each.name for each in checks]
        elif isinstance(node, exp.CheckColumnConstraint):
            names.append("")
        elif isinstance(node, exp.Constraint) and _is_check(node):
            names.append(node.name)
        else:
            raise unsupported(f"CREATE TABLE … {words_of(node)}")
    return columns, {name or f"check_{at}": next(conditions, "") for at, name in enumerate(names, 1)}


def _column(node: exp.ColumnDef, dialect: str, generated: Iterator[str] = iter(())) -> tables.ColumnSpec:
    """Return a column's spec; ``generated`` yields the next expression of a generated column."""
    if node.args.get("position"):
        raise unsupported("a new column FIRST or AFTER another")
    if node.args.get("kind") is None:
        raise InvalidConfig(f"The column {node.name} has no type.")
    nullable, comment, expression, identity, default = True, None, None, None, None
    for constraint in _constraints(node):
        kind = constraint.kind
        if isinstance(kind, exp.NotNullColumnConstraint):
            nullable = bool(kind.args.get("allow_null"))
        elif isinstance(kind, exp.CommentColumnConstraint):
            comment = kind.this.name
        elif isinstance(kind, exp.DefaultColumnConstraint):
            # DEFAULT NULL is the same as no default.
            default = None if isinstance(kind.this, exp.Null) else kind.this.sql(dialect=dialect)
        elif _is_generated(kind):
            expression = next(generated, None)
            if expression is None:
                raise unsupported("a column with GENERATED, in anything but CREATE TABLE,")
        elif isinstance(kind, exp.GeneratedAsIdentityColumnConstraint):
            identity = _identity_of(kind, node.name)
        elif not isinstance(kind, exp.CheckColumnConstraint):
            raise unsupported(f"a column with {words_of(kind)}")
    type_ = node.args["kind"].sql(dialect=dialect)
    return tables.ColumnSpec(node.name, type_, nullable, comment, expression, identity, default=default)


def _is_generated(kind: exp.Expr) -> bool:
    """Return True for the constraint of a generated column, in either of sqlglot's forms."""
    return (isinstance(kind, exp.ComputedColumnConstraint) and not isinstance(kind.this, exp.Paren)) or (
        isinstance(kind, exp.GeneratedAsIdentityColumnConstraint) and kind.args.get("expression") is not None
    )


def _identity_of(kind: exp.GeneratedAsIdentityColumnConstraint, name: str) -> tables.Identity:
    """Return start and step of an identity column; both are 1 by default."""
    start, step = (_whole_number(kind.args.get(word), name) for word in ("start", "increment"))
    return tables.Identity(start, step, bool(kind.this))


def _whole_number(value: exp.Expr | None, name: str) -> int:
    try:
        return 1 if value is None else int(value.sql())
    except ValueError:
        raise InvalidConfig(f"The identity column {name} counts in whole numbers, not by {value}.") from None


def _constraints(node: exp.ColumnDef) -> Sequence[exp.ColumnConstraint]:
    return node.args.get("constraints") or ()


def _is_check(node: exp.Expr) -> bool:
    return len(node.expressions) == 1 and isinstance(node.expressions[0], exp.CheckColumnConstraint)


# -- DROP


def drop(tree: exp.Expr, source: StatementText) -> list[Statement]:
    """Read DROP TABLE and DROP VIEW, of one name or several."""
    kind = str(tree.args["kind"]).upper()
    if kind not in _KINDS:
        raise unsupported(f"DROP {kind}")
    refuse(tree, f"DROP {kind}", "materialized", "cascade", "constraints", "purge", "concurrently", "sync", "force")
    if_exists = bool(tree.args.get("exists"))
    return [Drop(_KINDS[kind], target_of(table, f"DROP {kind}"), if_exists) for table in tree.args["tables"]]


# -- ALTER TABLE


def alter(tree: exp.Expr, source: StatementText) -> list[Statement]:
    """Read ALTER TABLE: changes of columns, constraints, properties."""
    dialect, checks = source.dialect, in_brackets(source, "CHECK")
    kind = str(tree.args["kind"]).upper()
    if tree.args.get("options"):
        raise unsupported("ALTER TABLE … RENAME a TO b (write RENAME COLUMN a TO b); it")
    actions = tree.args["actions"]
    if kind in _KINDS and len(actions) == 1 and isinstance(actions[0], exp.AlterRename):
        named, to = target_of(tree.this, f"ALTER {kind}"), target_of(actions[0].this, "RENAME TO")
        return [Rename(_KINDS[kind], named, to, bool(tree.args.get("exists")))]
    if kind != "TABLE":
        raise unsupported(f"ALTER {kind} of anything but its name")
    refuse(tree, "ALTER TABLE", "only", "cluster", "not_valid", "cascade", "check")
    changes: list[tables.Change] = []
    optional: list[tables.Change] = []
    for action in tree.args["actions"]:
        changes_of_action = list(_changes(action, dialect, checks))
        changes += changes_of_action
        if action.args.get("exists"):
            optional += changes_of_action
    if (
        dialect == "spark"
        and len(changes) == 1
        and isinstance(changes[0], tables.ChangeType)
        and "TYPE" in source.words
    ):
        # Outside of a column list, sqlglot reads Spark's VARCHAR(n) as STRING.
        at = len(source.words) - source.words[::-1].index("TYPE")
        changes = [replace(changes[0], type=source.with_(source.tokens[at:]).written)]
    target = target_of(tree.this, "ALTER TABLE")
    return [
        OnTable(
            target, tables.AlterSpec(tuple(changes), dialect=dialect), bool(tree.args.get("exists")), tuple(optional)
        )
    ]


def _changes(action: exp.Expr, dialect: str, checks: Iterator[str]) -> Iterator[tables.Change]:
    if isinstance(action, exp.ColumnDef):
        yield tables.AddColumn(_new_column(action, dialect))
    elif isinstance(action, exp.Schema):
        for column in action.expressions:
            if not isinstance(column, exp.ColumnDef):
                raise unsupported(f"ALTER TABLE … ADD {words_of(column)}")
            yield tables.AddColumn(_new_column(column, dialect))
    elif isinstance(action, exp.Drop):
        yield from _dropped(action)
    elif isinstance(action, exp.RenameColumn):
        yield tables.RenameColumn(action.this.name, action.args["to"].name)
    elif isinstance(action, exp.AlterColumn):
        yield _altered(action, dialect)
    elif isinstance(action, exp.AddConstraint):
        for constraint in action.expressions:
            if not isinstance(constraint, exp.Constraint) or not _is_check(constraint):
                raise unsupported(f"ALTER TABLE … ADD {words_of(constraint)}")
            yield tables.AddCheck(constraint.name, next(checks))
    elif isinstance(action, exp.AlterSet):
        refuse(action, "ALTER TABLE … SET", *(key for key in action.args if key != "expressions"))
        yield tables.SetProperties({_property(p): _text(p.args["value"]) for p in _set_properties(action)})
    else:
        raise unsupported(f"ALTER TABLE … {words_of(action)}")


def _new_column(node: exp.ColumnDef, dialect: str) -> tables.ColumnSpec:
    if any(isinstance(c.kind, exp.CheckColumnConstraint) for c in _constraints(node)):
        raise unsupported("ADD COLUMN with a CHECK (add the constraint after it); it")
    return _column(node, dialect)


def _dropped(action: exp.Expr) -> Iterator[tables.Change]:
    kind = str(action.args["kind"]).upper()
    names = [name for table in action.args["tables"] for name in (table.expressions or [table])]
    refuse(action, "ALTER TABLE … DROP", "cascade", "restrict")
    for node in names:
        if kind in ("COLUMN", "COLUMNS"):
            yield tables.DropColumn(node.name)
        elif kind == "CONSTRAINT":
            yield tables.DropCheck(node.name, bool(action.args.get("exists")))
        else:
            raise unsupported(f"ALTER TABLE … DROP {kind}")


def _altered(action: exp.AlterColumn, dialect: str) -> tables.Change:
    refuse(action, "ALTER COLUMN", "using", "collate", "rename_to", "visible")
    name, arguments = action.this.name, action.args
    if arguments.get("dtype") is not None:
        return tables.ChangeType(name, arguments["dtype"].sql(dialect=dialect))
    if arguments.get("comment") is not None:
        return tables.SetComment(arguments["comment"].name, name)
    if arguments.get("allow_null") is not None:
        return tables.DropNotNull(name) if arguments["allow_null"] else tables.SetNotNull(name)
    default = arguments.get("default")
    return tables.SetDefault(name, None if default is None else default.sql(dialect=dialect))


def _set_properties(action: exp.AlterSet) -> list[exp.Expr]:
    properties = [
        p for node in action.expressions for p in (node.expressions if isinstance(node, exp.Properties) else [node])
    ]
    if not properties or not all(type(node) is exp.Property for node in properties):
        raise unsupported("ALTER TABLE … SET of anything but TBLPROPERTIES")
    return properties
