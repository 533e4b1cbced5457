"""``information_schema`` of the lakes, in the form of DuckDB's own views of these names.

Each view is a query of constants. Both engines can read it, and its rows do not change until it is
executed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp

from duckrun.engines.duckdb import spelled_by_duckdb
from duckrun.engines.engine import Engine
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import INFORMATION, Lake
from duckrun.lake.lakes import OWN_CATALOGS, Lakes
from duckrun.sql.constants import constant_rows
from duckrun.sql.duckdb_itself import columns_of_view
from duckrun.sql.typed import sql_types
from duckrun.storage.parallel import at_once
from duckrun.values.columns import comment_of, defaults_in
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import Snapshot, TableRef

Row = Mapping[str, Any]
_Column = tuple[str, str, bool, str | None, str | None]
"""Name, type, nullability, comment and default of a column."""
_TEMPORARY = "temp"


def held(lake: Lake, schema: str | None = None) -> Iterator[tuple[str, str, str]]:
    """Yield schema, name and kind (``table`` or ``view``) of the tables and views of a lake."""
    for each in [schema] if schema is not None else sorted(lake.schemas()):
        for kind, names in (("table", lake.tables(each)), ("view", lake.views(each))):
            yield from ((each, name, kind) for name in sorted(names))


def is_information(parts: Sequence[str]) -> bool:
    """Return True for the name of a table of ``information_schema``."""
    return len(parts) > 1 and parts[-2].lower() == INFORMATION


@dataclass(frozen=True)
class Listing:
    """The lakes and the temporary names of a session, as one statement lists them."""

    lakes: Lakes
    engine: Engine
    temp_views: Collection[str]
    snapshot: Callable[[TableRef, Snapshot | None], Snapshot]
    """Return the snapshot of a table that the statement reads; its newest one may be known."""
    frame: Callable[[exp.Expr], LazyRows]
    """Return the rows of a query."""

    def view(self, parts: Sequence[str]) -> exp.Expr:
        """Return one of the views with its current rows, of all lakes or of the named one.

        Raises:
            TableNotFound: for an unknown view, with the nearest names.
        """
        name = parts[-1].lower()
        if name not in _VIEWS:
            raise TableNotFound(
                f"There is no {INFORMATION}.{parts[-1]}.{did_you_mean(name, _VIEWS)} It has {', '.join(_VIEWS)}."
            )
        lakes = list(self.lakes) if len(parts) < 3 else [self.lakes.named(parts[0], ".".join(parts))]
        lake_name = parts[0] if len(parts) == 3 else None
        listed = [row for lake in lakes for row in _VIEWS[name](_Lake(self, lake, lake_name))]
        if len(parts) < 3 and name in _TEMPORARIES:
            listed += _TEMPORARIES[name](_Lake(self, self.lakes.own))
        return constant_rows(columns_of_view(name), listed, self.engine.name)


@dataclass(frozen=True)
class _Lake:
    """A lake, as one statement reads it."""

    listing: Listing
    lake: Lake
    written_as: str | None = None
    """Name of the lake in the statement."""

    @property
    def catalog(self) -> str:
        """Name that a statement may use for the lake."""
        return self.written_as or self.lake.name or OWN_CATALOGS[0]

    def entries(self) -> Iterator[tuple[Row, str, str, str]]:
        """Yield the place, the schema, the name and the kind of each table and view."""
        for schema, name, kind in held(self.lake):
            yield {"table_catalog": self.catalog, "table_schema": schema, "table_name": name}, schema, name, kind

    def opened(self) -> Iterator[tuple[Row, str, str, Snapshot | None]]:
        """Yield the place, the schema, the name and the snapshot of each table; None for a view.

        A table that was dropped after it was listed is left out.
        """
        entries = list(self.entries())

        def load(entry: tuple[Row, str, str, str]) -> Snapshot | None:
            _, schema, name, kind = entry
            return self.snapshot(schema, name) if kind == "table" else None

        # Only a store makes its requests wait. A catalog answers one question at a time.
        waits = self.lake.format.logs is not None and not self.lake.storage.is_local
        snapshots = at_once(load, entries) if waits else map(load, entries)
        for (place, schema, name, kind), snapshot in zip(entries, snapshots, strict=True):
            if kind == "view" or snapshot is not None:
                yield place, schema, name, snapshot

    def of_query(self, *name: str) -> list[tuple[str, str]]:
        """Return the columns of a view whose definition lists none.

        Empty if its tables are gone.
        """
        parts: Any = [exp.to_identifier(part, quoted=True) for part in reversed(name)]
        table = exp.Table(**dict(zip(("this", "db", "catalog"), parts, strict=False)))
        try:
            return column_types(self.listing.frame(exp.select("*").from_(table)))
        except TableNotFound:
            return []

    def snapshot(self, schema: str, name: str) -> Snapshot | None:
        """Return a table's snapshot; None for a table that was dropped after it was listed."""
        ref, logs = self.lake.resolve(schema, name), self.lake.format.logs
        try:
            return self.listing.snapshot(ref, None if logs is None else logs.listed(ref))
        except TableNotFound:
            return None


def column_types(frame: LazyRows) -> list[tuple[str, str]]:
    """Return a frame's columns with their types in the engine's SQL."""
    kinds: Sequence[Any] = frame.source.bound.dtypes  # DuckDB: types; Spark: pairs of name and type
    return [
        (name, str(kind[1] if isinstance(kind, tuple) else kind))
        for name, kind in zip(frame.columns, kinds, strict=True)
    ]


def _schemata(of: _Lake) -> Iterator[Row]:
    for name in sorted(of.lake.schemas()):
        yield {"catalog_name": of.catalog, "schema_name": name, "schema_owner": "duckrun"}


def _tables(of: _Lake) -> Iterator[Row]:
    for place, schema, name, snapshot in of.opened():
        if snapshot is None:
            yield _table(place, "VIEW", _view_of(of, schema, name).comment)
        else:
            yield _table(place, "BASE TABLE", snapshot.description)


def _table(place: Row, kind: str, comment: str | None = None) -> Row:
    insertable, lasts = "NO" if kind == "VIEW" else "YES", "PRESERVE" if kind == "LOCAL TEMPORARY" else None
    written = {"is_insertable_into": insertable, "is_typed": "NO", "commit_action": lasts}
    return {**place, "table_type": kind, **written, "TABLE_COMMENT": comment}


def _view_of(of: _Lake, schema: str, name: str) -> Any:
    definition = of.lake.find(schema, name)[1]
    if definition is None:
        raise InvalidConfig(f"View {schema}.{name} was dropped while the lake was listed; ask again.")
    return definition


_FIXED = dict.fromkeys(
    (
        "is_updatable",
        "is_insertable_into",
        "is_trigger_updatable",
        "is_trigger_deletable",
        "is_trigger_insertable_into",
    ),
    "NO",
)


def _views(of: _Lake) -> Iterator[Row]:
    for place, schema, name, kind in of.entries():
        if kind == "view":
            text = _view_of(of, schema, name).sql
            yield {**place, "check_option": "NONE", "view_definition": text, **_FIXED}


def _columns(of: _Lake) -> Iterator[Row]:
    for place, schema, name, snapshot in of.opened():
        if snapshot is None:
            definition = _view_of(of, schema, name)
            comments = dict(definition.column_comments)
            columns = definition.columns or of.of_query(of.catalog, schema, name)
            described: list[_Column] = [(column, kind, True, comments.get(column), None) for column, kind in columns]
        else:
            defaults = defaults_in(snapshot.schema)
            kinds = snapshot.sql_types or sql_types(snapshot.schema, snapshot.variants)
            described = [
                (field.name, kinds[field.name], field.nullable, comment_of(field) or None, defaults.get(field.name))
                for field in snapshot.schema
            ]
        yield from _described(place, described)


def _described(place: Row, columns: Sequence[_Column]) -> Iterator[Row]:
    for number, (column, kind, nullable, comment, default) in enumerate(columns, 1):
        kind = _in_duckdbs_words(kind)
        precision, radix, scale = _number(kind)
        yield {
            **place, "column_name": column, "ordinal_position": number, "column_default": default,
            "is_nullable": "YES" if nullable else "NO", "data_type": kind, "numeric_precision": precision,
            "numeric_precision_radix": radix, "numeric_scale": scale, "COLUMN_COMMENT": comment,
        }  # fmt: skip


@lru_cache(1000)
def _in_duckdbs_words(kind: str) -> str:
    """Return the type of a view's column in DuckDB's SQL; a view stores its engine's types."""
    try:
        return spelled_by_duckdb(kind)
    except InvalidConfig:
        return spelled_by_duckdb(exp.DataType.build(kind, dialect="spark").sql(dialect="duckdb"))


_BITS = {
    "TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128, "FLOAT": 24, "DOUBLE": 53,
    "UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128,
}  # fmt: skip


def _number(kind: str) -> tuple[int | None, int | None, int | None]:
    """Return precision, radix and scale of a numeric type."""
    if kind in _BITS:
        return _BITS[kind], 2, 0
    if kind.startswith("DECIMAL(") and kind.endswith(")"):
        precision, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(",")
        return int(precision), 10, int(scale)
    return None, None, None


# -- temporary views and tables


def _temporary_names(of: _Lake) -> Iterator[tuple[Row, bool]]:
    """Yield the place of each temporary name, and True if it is a table."""
    for name in sorted({*of.listing.temp_views, *of.listing.engine.temp_names}):
        yield {"table_catalog": _TEMPORARY, "table_schema": "main", "table_name": name}, of.listing.engine.is_kept(name)


def _temporary_tables(of: _Lake) -> Iterator[Row]:
    for place, is_table in _temporary_names(of):
        yield _table(place, "LOCAL TEMPORARY" if is_table else "VIEW")


def _temporary_columns(of: _Lake) -> Iterator[Row]:
    for place, _ in _temporary_names(of):
        columns = of.of_query(place["table_name"])
        yield from _described(place, [(column, kind, True, None, None) for column, kind in columns])


_VIEWS: dict[str, Callable[[_Lake], Iterator[Row]]] = {
    "tables": _tables,
    "columns": _columns,
    "views": _views,
    "schemata": _schemata,
}
_TEMPORARIES: dict[str, Callable[[_Lake], Iterator[Row]]] = {
    "tables": _temporary_tables,
    "columns": _temporary_columns,
}
