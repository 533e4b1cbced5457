"""Parsed statements as frozen values.

Parts that only the engine can interpret stay syntax trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from duckrun.statements.parse.tokens import StatementText
from duckrun.values.choices import ClauseKind
from duckrun.values.frozen import frozen
from duckrun.values.layout import Layout
from duckrun.values.rows import DeleteSpec
from duckrun.values.tables import Change, CreateSpec, TableSpec
from duckrun.values.upkeep import UpkeepSpec

Parts = tuple[str, ...]
"""Parts of a name, as written: ``schema.name`` has two."""


def parts_of(table: exp.Table) -> Parts:
    """Return the parts of a table's name, as written."""
    return tuple(part for part in (table.catalog, table.db, table.name) if part)


def dotted(table: exp.Table) -> str:
    """Return a table's qualified name for messages."""
    return ".".join(parts_of(table))


@dataclass(frozen=True)
class Query:
    """A SELECT, or another statement that returns rows."""

    tree: exp.Expr


@dataclass(frozen=True)
class Explain:
    """EXPLAIN or EXPLAIN ANALYZE of a query."""

    tree: exp.Expr
    analyze: bool = False


@dataclass(frozen=True)
class Show:
    """SHOW TABLES, SCHEMAS or VIEWS, within a lake or schema."""

    what: Literal["tables", "schemas", "views"]
    within: Parts = ()


@dataclass(frozen=True)
class Use:
    """The default ``schema``, ``lake`` or ``lake.schema`` of unqualified names."""

    target: Parts


@dataclass(frozen=True)
class Describe:
    """DESCRIBE of a table or view."""

    target: Parts
    what: Literal["columns", "detail", "history", "properties"]
    limit: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class CreateTable:
    """A new empty table with the listed columns."""

    target: Parts
    spec: CreateSpec


@frozen
class CreateTableAs(Layout):
    """A new table with the rows of a query. ``if_exists`` applies if the table exists."""

    target: Parts
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"
    description: str | None = None


@dataclass(frozen=True)
class CreateView:
    """A new view."""

    target: Parts
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"
    columns: Parts = ()
    comment: str | None = None


@dataclass(frozen=True)
class CommentOnView:
    """A new comment of a view; None removes it."""

    target: Parts
    comment: str | None


@dataclass(frozen=True)
class CreateTemporary:
    """A view or table of this session only."""

    kind: Literal["view", "table"]
    name: str
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"


@dataclass(frozen=True)
class Drop:
    """DROP TABLE or DROP VIEW."""

    kind: Literal["table", "view"]
    target: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class CreateMacro:
    """A macro of the catalog. ``body`` is an expression, or a query if ``is_table``."""

    target: Parts
    parameters: tuple[tuple[str, str | None], ...]
    body: exp.Expr
    is_table: bool = False
    if_exists: Literal["error", "ignore", "replace"] = "error"


@dataclass(frozen=True)
class DropMacro:
    """DROP MACRO."""

    target: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class CreateSchema:
    """CREATE SCHEMA of ``schema`` or ``lake.schema``."""

    target: Parts
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSchema:
    """DROP SCHEMA."""

    target: Parts
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class OnConflict:
    """The action for a row whose keys exist in the table.

    If ``assigned`` is None, the action is DO NOTHING. Unqualified names mean the table;
    ``excluded`` is the row to insert.
    """

    keys: Parts
    alias: str
    assigned: tuple[tuple[str, exp.Expr], ...] | None = None
    where: exp.Expr | None = None


@dataclass(frozen=True)
class Rename:
    """A new name of one part (in the same schema) or two."""

    kind: Literal["table", "view"]
    target: Parts
    to: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class Returned:
    """A RETURNING list, and the table's alias in it."""

    columns: str
    dialect: str
    alias: str


@dataclass(frozen=True)
class Insert:
    """Rows of a query into a table.

    ``columns`` are filled by position; None means all. ``partition`` maps partition columns to a
    value, or to None if the query gives it. ``where`` is the predicate of REPLACE WHERE. ``whole``
    is the complete statement, for an engine that executes it on a temporary table.
    """

    target: Parts
    query: exp.Query
    columns: Parts | None = None
    by_name: bool = False
    overwrite: bool = False
    partition: tuple[tuple[str, exp.Expr | None], ...] = ()
    where: exp.Expr | None = None
    conflict: OnConflict | None = None
    returning: Returned | None = None
    whole: StatementText | None = None
    defaults: bool = False
    """True for DEFAULT VALUES, one row of defaults."""
    is_values: bool = False
    """True for VALUES: DuckDB reads its constants as the types of the target columns."""


@dataclass(frozen=True)
class _OfRows:
    """A change of existing rows. The first item of ``sources`` holds the joins."""

    target: Parts
    alias: str
    where: exp.Expr | None = None
    sources: tuple[exp.Expr, ...] = ()
    with_: exp.With | None = None
    returning: Returned | None = None
    whole: StatementText | None = None


@dataclass(frozen=True)
class Delete(_OfRows):
    """DELETE. ``sources`` is the USING clause."""


@dataclass(frozen=True)
class Update(_OfRows):
    """UPDATE. ``sources`` is the FROM clause."""

    assigned: tuple[tuple[str, exp.Expr], ...] = ()


@dataclass(frozen=True)
class Given:
    """In-memory rows as the source of a merge: any tabular value, its alias and its columns."""

    rows: Any
    alias: str
    columns: Parts


@dataclass(frozen=True)
class When:
    """One WHEN clause of a merge.

    ``assigned`` is None if every source column is used. ``by`` then says how: the table's columns
    by name (all), the source's columns by name, or by position. ``bare`` is the side that
    unqualified names mean; None for either. ``message`` is an extra text of an error.
    """

    kind: (
        ClauseKind
        | Literal["matched_nothing", "not_matched_nothing", "not_matched_by_source_nothing"]
        | Literal["matched_error", "not_matched_error", "not_matched_by_source_error"]
    )
    condition: exp.Expr | None = None
    assigned: tuple[tuple[str, exp.Expr], ...] | None = None
    positional: tuple[exp.Expr, ...] | None = None
    bare: Literal["target", "source"] | None = None
    by: Literal["all", "name", "position"] = "all"
    message: exp.Expr | None = None


@dataclass(frozen=True)
class Merge:
    """MERGE of a source into a table."""

    target: Parts
    alias: str
    source: exp.Expr | Given
    on: exp.Expr | None
    using: Parts
    whens: tuple[When, ...]
    with_: exp.With | None = None
    evolve: bool = False
    """True if clauses that use all source columns also add new ones to the table."""


@dataclass(frozen=True)
class OnTable:
    """A statement that needs only a table and a spec.

    With ``if_exists``, a missing table is no error. ``optional`` changes are skipped if they are
    already done: columns to add that exist, columns to drop that do not.
    """

    target: Parts
    spec: TableSpec | DeleteSpec
    if_exists: bool = False
    optional: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _OfLake:
    """A statement about a DuckLake, or one of its tables.

    ``lake`` is the name of a lake; None is the current one.
    """

    lake: str | None = None
    table: Parts | None = None

    @property
    def target(self) -> Parts:
        return self.table or ()


@dataclass(frozen=True)
class OnLake(_OfLake):
    """A maintenance statement."""

    spec: UpkeepSpec


@dataclass(frozen=True)
class InlineRows(_OfLake):
    """The maximum number of rows of an insert that the catalog stores inline."""

    rows: int


@dataclass(frozen=True)
class Transact:
    """The start or the end of a transaction over several tables."""

    what: Literal["BEGIN", "COMMIT", "ROLLBACK"]


Reads = Query | Explain | Show | Describe | Use | Transact
OfNames = (
    CreateView | CommentOnView | CreateMacro | DropMacro | CreateTemporary | CreateSchema | DropSchema | Drop | Rename
)
"""Statements that create, drop or rename names, and change no table."""
OfLake = OnLake | InlineRows
"""Maintenance statements of a DuckLake."""
TableStatement = Insert | Update | Delete | Merge | CreateTable | CreateTableAs | OnTable
Statement = Reads | OfNames | OfLake | TableStatement


@dataclass(frozen=True)
class Done:
    """Result of a statement that creates no version of a table.

    Schemas, views, temporary names, drops.

    Example::

        s.sql("drop table sales.orders")
    """

    statement: str
    name: str
    engine: str
    reason: str = ""
    rows: int | None = None
    """Number of changed rows of a temporary table."""
