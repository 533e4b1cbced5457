"""``information_schema`` of the lakes, in the form of DuckDB's own views of these names.

Each view is a query of constants. Both engines can read it, and its rows do not change until it is
executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from duckrun.engines.duckdb import arrow_types_spelled, spelled_by_duckdb
from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import INFORMATION, Lake
from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.sql.constants import constant_rows
from duckrun.values.columns import defaults_in
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import Snapshot

if TYPE_CHECKING:
    from duckrun.statements.reading import Reading

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


def view(reading: Reading, parts: Sequence[str]) -> exp.Expr:
    """Return one of the views with its current rows, of all lakes or of the named one.

    Raises:
        TableNotFound: for an unknown view, with the nearest names.
    """
    name = parts[-1].lower()
    if name not in _VIEWS:
        raise TableNotFound(
            f"There is no {INFORMATION}.{parts[-1]}.{did_you_mean(name, _VIEWS)} It has {', '.join(_VIEWS)}."
        )
    lakes = list(reading.lakes) if len(parts) < 3 else [reading.lakes.named(parts[0], ".".join(parts))]
    columns, rows = _VIEWS[name]
    lake_name = parts[0] if len(parts) == 3 else None
    with arrow_types_spelled() as spelled:
        listed = [row for lake in lakes for row in rows(_Lake(reading, lake, spelled, lake_name))]
        if len(parts) < 3 and name in _TEMPORARIES:
            listed += _TEMPORARIES[name](_Lake(reading, reading.lakes.own, spelled))
    return constant_rows(columns, listed, reading.engine.name)


@dataclass(frozen=True)
class _Lake:
    """A lake, as one statement reads it."""

    reading: Reading
    lake: Lake
    spelled: Callable[[pa.Schema], list[str]]
    """Return the types of a schema as DuckDB writes them."""
    written_as: str | None = None
    """Name of the lake in the statement."""

    @property
    def catalog(self) -> str:
        """Name that a statement may use for the lake."""
        return self.written_as or self.lake.name or OWN_CATALOGS[0]

    def of_query(self, *name: str) -> list[tuple[str, str]]:
        """Return the columns of a view whose definition lists none.

        Empty if its tables are gone.
        """
        parts: Any = [exp.to_identifier(part, quoted=True) for part in reversed(name)]
        table = exp.Table(**dict(zip(("this", "db", "catalog"), parts, strict=False)))
        try:
            return column_types(self.reading.frame(exp.select("*").from_(table)))
        except TableNotFound:
            return []

    def types(self, snapshot: Snapshot) -> list[str]:
        """Return a table's column types as DuckDB writes them.

        A format that stores DuckDB types gives its own.
        """
        return self.spelled(snapshot.schema) if snapshot.sql_types is None else list(snapshot.sql_types.values())

    def snapshot(self, schema: str, name: str) -> Snapshot | None:
        """Return a table's snapshot; None for a table that was dropped after it was listed."""
        try:
            return self.reading.snapshot(self.lake.resolve(schema, name))
        except TableNotFound:
            return None


def column_types(frame: LazyRows) -> list[tuple[str, str]]:
    """Return a frame's columns with their types in the engine's SQL."""
    kinds: Sequence[Any] = frame.native.dtypes  # DuckDB: types; Spark: pairs of name and type
    return [
        (name, str(kind[1] if isinstance(kind, tuple) else kind))
        for name, kind in zip(frame.columns, kinds, strict=True)
    ]


def _schemata(of: _Lake) -> Iterator[Row]:
    for name in sorted(of.lake.schemas()):
        yield {"catalog_name": of.catalog, "schema_name": name, "schema_owner": "duckrun"}


def _tables(of: _Lake) -> Iterator[Row]:
    for schema, name, kind in held(of.lake):
        place = {"table_catalog": of.catalog, "table_schema": schema, "table_name": name}
        if kind == "view":
            yield _table(place, "VIEW", _view_of(of, schema, name).comment)
        elif (snapshot := of.snapshot(schema, name)) is not None:
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


def _views(of: _Lake) -> Iterator[Row]:
    for schema, name, kind in held(of.lake):
        if kind == "view":
            yield {
                "table_catalog": of.catalog, "table_schema": schema, "table_name": name, "check_option": "NONE",
                "view_definition": _view_of(of, schema, name).sql, "is_updatable": "NO", "is_insertable_into": "NO",
                "is_trigger_updatable": "NO", "is_trigger_deletable": "NO", "is_trigger_insertable_into": "NO",
            }  # fmt: skip


def _columns(of: _Lake) -> Iterator[Row]:
    for schema, name, kind in held(of.lake):
        place = {"table_catalog": of.catalog, "table_schema": schema, "table_name": name}
        if kind == "view":
            definition = _view_of(of, schema, name)
            comments = dict(definition.column_comments)
            columns = definition.columns or of.of_query(of.catalog, schema, name)
            described: list[_Column] = [(column, kind, True, comments.get(column), None) for column, kind in columns]
        elif (snapshot := of.snapshot(schema, name)) is not None:
            defaults = defaults_in(snapshot.schema)
            described = [
                (field.name, str(kind), field.nullable, _comment(field), defaults.get(field.name))
                for field, kind in zip(snapshot.schema, of.types(snapshot), strict=True)
            ]
        else:
            continue
        yield from _described(place, described)


def _comment(field: Any) -> str | None:
    return (field.metadata or {}).get(b"comment", b"").decode() or None


def _described(place: Row, columns: Sequence[_Column]) -> Iterator[Row]:
    for number, (column, kind, nullable, comment, default) in enumerate(columns, 1):
        kind = _in_duckdbs_words(kind)
        precision, radix, scale = _number(kind)
        yield {
            **place, "column_name": column, "ordinal_position": number, "column_default": default,
            "is_nullable": "YES" if nullable else "NO", "data_type": kind, "numeric_precision": precision,
            "numeric_precision_radix": radix, "numeric_scale": scale, "COLUMN_COMMENT": comment,
        }  # fmt: skip


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
    for name in sorted({*of.reading.temp_views, *of.reading.engine.temp_names}):
        yield {"table_catalog": _TEMPORARY, "table_schema": "main", "table_name": name}, of.reading.engine.is_kept(name)


def _temporary_tables(of: _Lake) -> Iterator[Row]:
    for place, is_table in _temporary_names(of):
        yield _table(place, "LOCAL TEMPORARY" if is_table else "VIEW")


def _temporary_columns(of: _Lake) -> Iterator[Row]:
    for place, _ in _temporary_names(of):
        columns = of.of_query(place["table_name"])
        yield from _described(place, [(column, kind, True, None, None) for column, kind in columns])


# -- DuckDB's columns of each view, including those that are always NULL

_TEXT, _INTEGER, _BIGINT, _BOOLEAN = "VARCHAR", "INTEGER", "BIGINT", "BOOLEAN"
_PLACE = dict.fromkeys(("table_catalog", "table_schema", "table_name"), _TEXT)
_OF_COLUMNS = {
    **_PLACE, "column_name": _TEXT, "ordinal_position": _INTEGER, "column_default": _TEXT, "is_nullable": _TEXT,
    "data_type": _TEXT, "character_maximum_length": _INTEGER, "character_octet_length": _INTEGER,
    "numeric_precision": _INTEGER, "numeric_precision_radix": _INTEGER, "numeric_scale": _INTEGER,
    "datetime_precision": _INTEGER, "interval_type": _TEXT, "interval_precision": _INTEGER, **dict.fromkeys((
    "character_set_catalog", "character_set_schema", "character_set_name", "collation_catalog", "collation_schema",
    "collation_name", "domain_catalog", "domain_schema", "domain_name", "udt_catalog", "udt_schema", "udt_name",
    "scope_catalog", "scope_schema", "scope_name", ), _TEXT), "maximum_cardinality": _BIGINT,
    "dtd_identifier": _TEXT, "is_self_referencing": _BOOLEAN, "is_identity": _BOOLEAN, **dict.fromkeys((
    "identity_generation", "identity_start", "identity_increment", "identity_maximum", "identity_minimum", ),
    _TEXT), "identity_cycle": _BOOLEAN, "is_generated": _TEXT, "generation_expression": _TEXT,
    "is_updatable": _BOOLEAN, "COLUMN_COMMENT": _TEXT,
}  # fmt: skip
_OF_TABLES = {
    **_PLACE, **dict.fromkeys(( "table_type", "self_referencing_column_name", "reference_generation",
    "user_defined_type_catalog", "user_defined_type_schema", "user_defined_type_name", "is_insertable_into",
    "is_typed", "commit_action", "TABLE_COMMENT", ), _TEXT),
}  # fmt: skip
_OF_VIEWS = {
    **_PLACE, **dict.fromkeys(( "view_definition", "check_option", "is_updatable", "is_insertable_into",
    "is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into", ), _TEXT),
}  # fmt: skip
_OF_SCHEMATA = dict.fromkeys((
    "catalog_name", "schema_name", "schema_owner", "default_character_set_catalog", "default_character_set_schema",
    "default_character_set_name", "sql_path",
), _TEXT)  # fmt: skip

_VIEWS: dict[str, tuple[Mapping[str, str], Callable[[_Lake], Iterator[Row]]]] = {
    "tables": (_OF_TABLES, _tables),
    "columns": (_OF_COLUMNS, _columns),
    "views": (_OF_VIEWS, _views),
    "schemata": (_OF_SCHEMATA, _schemata),
}
_TEMPORARIES: dict[str, Callable[[_Lake], Iterator[Row]]] = {
    "tables": _temporary_tables,
    "columns": _temporary_columns,
}
