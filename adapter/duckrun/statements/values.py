"""What a statement asks for: frozen values, which hold syntax trees where only the engine knows the meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlglot import exp

from duckrun.statements.parse.tokens import StatementText
from duckrun.values.layout import Layout
from duckrun.values.rows import ClauseKind, DeleteSpec
from duckrun.values.tables import Change, CreateSpec, TableSpec
from duckrun.values.upkeep import UpkeepSpec

Parts = tuple[str, ...]
"""The parts of a name, as written: ``schema.name`` is two."""


@dataclass(frozen=True)
class Query:
    """A SELECT, or what reads like one."""

    tree: exp.Expr


@dataclass(frozen=True)
class Explain:
    tree: exp.Expr
    analyze: bool = False


@dataclass(frozen=True)
class Show:
    what: Literal["tables", "schemas", "views"]
    within: Parts = ()


@dataclass(frozen=True)
class Use:
    """Names that say neither lake nor schema are looked up there: ``schema``, ``lake`` or ``lake.schema``."""

    target: Parts


@dataclass(frozen=True)
class Describe:
    target: Parts
    what: Literal["columns", "detail", "history", "properties"]
    limit: int | None = None
    key: str | None = None


@dataclass(frozen=True)
class CreateTable:
    """An empty table, of columns that the statement lists."""

    target: Parts
    spec: CreateSpec


@dataclass(frozen=True)
class CreateTableAs(Layout):
    """A table of the rows of a query. ``if_exists`` is what a table that is there already means."""

    target: Parts
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"
    description: str | None = None


@dataclass(frozen=True)
class CreateView:
    target: Parts
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"
    columns: Parts = ()
    comment: str | None = None


@dataclass(frozen=True)
class CommentOnView:
    target: Parts
    comment: str | None


@dataclass(frozen=True)
class CreateTemporary:
    """A view or table that only this session knows."""

    kind: Literal["view", "table"]
    name: str
    query: exp.Query
    if_exists: Literal["error", "ignore", "replace"] = "error"


@dataclass(frozen=True)
class Drop:
    kind: Literal["table", "view"]
    target: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class CreateMacro:
    """A macro of the catalog; ``body`` is an expression, or a query where it ``is_table``."""

    target: Parts
    parameters: tuple[tuple[str, str | None], ...]
    body: exp.Expr
    is_table: bool = False
    if_exists: Literal["error", "ignore", "replace"] = "error"


@dataclass(frozen=True)
class DropMacro:
    target: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class CreateSchema:
    """``target`` is ``schema`` or ``lake.schema``."""

    target: Parts
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSchema:
    target: Parts
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True)
class OnConflict:
    """What becomes of a row whose keys are in the table: None for ``assigned`` is DO NOTHING. Bare names are the table's, the
    row that was to be inserted is ``excluded``.
    """

    keys: Parts
    alias: str
    assigned: tuple[tuple[str, exp.Expr], ...] | None = None
    where: exp.Expr | None = None


@dataclass(frozen=True)
class Rename:
    """``to`` is a name of one part (in the same schema) or two."""

    kind: Literal["table", "view"]
    target: Parts
    to: Parts
    if_exists: bool = False


@dataclass(frozen=True)
class Returned:
    """``RETURNING`` this SELECT list, with what it calls the table."""

    columns: str
    dialect: str
    alias: str


@dataclass(frozen=True)
class Insert:
    """Rows of a query into a table.

    ``columns`` are those that the query fills, by position; None is all of them. ``partition`` maps partition columns to
    a value, or None for one that the query gives. ``where`` is what REPLACE WHERE replaces. ``whole`` is the statement itself, as an
    engine carries it out on a temporary table.
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
    """DEFAULT VALUES: nothing is said of the one row."""
    is_values: bool = False
    """VALUES, whose constants DuckDB reads as the types of the columns that they go into."""


@dataclass(frozen=True)
class Update:
    """``sources`` is the FROM clause (its first item holds the joins)."""

    target: Parts
    alias: str
    assigned: tuple[tuple[str, exp.Expr], ...]
    where: exp.Expr | None = None
    sources: tuple[exp.Expr, ...] = ()
    with_: exp.With | None = None
    returning: Returned | None = None
    whole: StatementText | None = None


@dataclass(frozen=True)
class Delete:
    """``sources`` is the USING clause."""

    target: Parts
    alias: str
    where: exp.Expr | None = None
    sources: tuple[exp.Expr, ...] = ()
    with_: exp.With | None = None
    returning: Returned | None = None
    whole: StatementText | None = None


@dataclass(frozen=True)
class Given:
    """Rows at hand as the source of a merge: any tabular value, the name that expressions have for it, and its columns."""

    rows: Any
    alias: str
    columns: Parts


@dataclass(frozen=True)
class When:
    """One WHEN of a merge. ``assigned`` None is every column of the source: the table's by name, those that the source has by
    name, or all by position, as ``by`` says. ``bare`` is the side whose columns bare names are, None for either. ``message`` is
    what an error says beside which clause it is.
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
    target: Parts
    alias: str
    source: exp.Expr | Given
    on: exp.Expr | None
    using: Parts
    whens: tuple[When, ...]
    with_: exp.With | None = None
    evolve: bool = False
    """New columns of the source are taken by those that take all of them."""


@dataclass(frozen=True)
class OnTable:
    """What needs a table and a spec, and nothing else.

    ``if_exists``: no table is nothing to do. ``optional`` changes are left out where they are done already: columns to
    add that are there, columns to drop that are not.
    """

    target: Parts
    spec: TableSpec | DeleteSpec
    if_exists: bool = False
    optional: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _OfLake:
    """What is asked of a DuckLake: of a table, or of the lake of that name (None: the one in use)."""

    lake: str | None = None
    table: Parts | None = None

    @property
    def target(self) -> Parts:
        return self.table or ()


@dataclass(frozen=True)
class OnLake(_OfLake):
    """Upkeep."""

    spec: UpkeepSpec


@dataclass(frozen=True)
class InlineRows(_OfLake):
    """Up to how many rows of an insert lie in the catalog."""

    rows: int


@dataclass(frozen=True)
class Prepare:
    """A statement to be carried out later, by EXECUTE and its name."""

    name: str
    source: StatementText


@dataclass(frozen=True)
class Deallocate:
    name: str


@dataclass(frozen=True)
class Transact:
    """The beginning or the end of a transaction over several tables."""

    what: Literal["BEGIN", "COMMIT", "ROLLBACK"]


Reads = Query | Explain | Show | Describe | Prepare | Deallocate | Use | Transact
OfNames = (
    CreateView | CommentOnView | CreateMacro | DropMacro | CreateTemporary | CreateSchema | DropSchema | Drop | Rename
)
"""What changes which names there are, and no table."""
OfLake = OnLake | InlineRows
"""What keeps a DuckLake in order."""
TableStatement = Insert | Update | Delete | Merge | CreateTable | CreateTableAs | OnTable
Statement = Reads | OfNames | OfLake | TableStatement


@dataclass(frozen=True)
class Done:
    """What a statement did that makes no version of a table: schemas, views, temporary names, drops.

    Example::

        s.sql("drop table sales.orders")
    """

    statement: str
    name: str
    engine: str
    reason: str = ""
    rows: int | None = None
    """How many rows of a temporary table were changed."""
