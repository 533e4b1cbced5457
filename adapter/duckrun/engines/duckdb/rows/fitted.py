"""Rows fitted to a table, in one SELECT: cast to its types, checked as they stream, sorted."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from duckrun.engines.decisions import rows_outside
from duckrun.engines.duckdb.rows.computed import Computed
from duckrun.engines.duckdb.rows.lake_values import Test, folder_test, lake_tests
from duckrun.engines.duckdb.rows.source import InMemory, Rows, without_type
from duckrun.engines.duckdb.rows.types import Types, fit_all, kind_of, parsed_type, storable, whole_microseconds
from duckrun.engines.fit import Kind, assigned_columns, castable_columns, fits, text_pattern
from duckrun.errors import InvalidConfig, RowsOutsidePartition, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import TableDefinition
from duckrun.formats.format import Format
from duckrun.libraries import pa
from duckrun.sql.char_types import fitting, limited
from duckrun.sql.nested import part_of
from duckrun.sql.on_demand import scalar, sql_names
from duckrun.sql.quoting import quote_identifier, quote_literal, quoted_list, quoted_names, select_list
from duckrun.sql.raising import raising
from duckrun.sql.typed import sql_type, sql_types
from duckrun.values.choices import SchemaMode
from duckrun.values.columns import fields_with, outside_years, refuse_twins
from duckrun.values.partition_values import NO_PARTITION_VALUES, no_partition_value, refuse_partition_type
from duckrun.values.rows import MergeSpec, WriteSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import order_of

Filled = dict[str, tuple[str | None, str]]
"""Column of the table -> the source's column (None: NULL) and the type to cast to."""

_ROWS = "source"
_PARTS_OF_VARIANT = re.compile(r'STRUCT\("(?:metadata" BLOB, "value|value" BLOB, "metadata)" BLOB\)')
"""A variant's Arrow type. Source: Delta protocol, Variant Data Type."""
_YEARS = {
    "DATE": ("'0001-01-01'", "'9999-12-31'"),
    "TIMESTAMP": ("'0001-01-01'", "'9999-12-31 23:59:59.999999'"),
    "TIMESTAMP WITH TIME ZONE": ("'0001-01-01 00:00:00+00'", "'9999-12-31 23:59:59.999999+00'"),
}
"""Type -> first and last value that every reader supports."""


_LOSSLESS = {
    "SMALLINT": ("TINYINT", "UTINYINT"),
    "INTEGER": ("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT"),
    "BIGINT": ("TINYINT", "UTINYINT", "SMALLINT", "USMALLINT", "INTEGER", "UINTEGER"),
    "DOUBLE": ("FLOAT",),
    "TIMESTAMP": ("TIMESTAMP_MS", "TIMESTAMP_NS"),
}
"""Type -> types whose values a columnar cast keeps, if instants are whole microseconds."""


def types_of(snapshot: Snapshot) -> dict[str, Any]:
    """DuckDB types of a table's columns."""
    # Parsed from type names, because DuckDB imports pandas to convert an Arrow schema.
    kinds = snapshot.sql_types
    if kinds is None:
        kinds = sql_types(snapshot.schema, snapshot.variants)
        kinds |= {name: _PARTS_OF_VARIANT.sub("VARIANT", kinds[name]) for name in snapshot.variants_inside}
    return {name: parsed_type(kind) for name, kind in kinds.items()}


def typed_columns(snapshot: Snapshot) -> str | None:
    """SQL with the columns and types of a table's scan, and no rows; None if they may differ."""
    fields = snapshot.stored_schema
    if snapshot.sql_types is not None or snapshot.variants or snapshot.variants_inside:
        return None
    if fields_with(fields, pa.types.is_null):
        return None
    columns = select_list({name: f"CAST(NULL AS {kind})" for name, kind in sql_types(fields).items()})
    return f"(SELECT {columns} WHERE false)"


def stored_types(form: Format, types: Types) -> dict[str, str]:
    """Types as which a format stores the columns of a new table.

    Raises:
        SchemaMismatch: There is no column, or the format cannot store one.
    """
    if not types:
        raise SchemaMismatch("the rows have no columns")
    refuse_twins(types)
    return {name: storable(name, kind, native=form.native_types) for name, kind in types.items()}


def differs(stored: Mapping[str, str], snapshot: Snapshot) -> bool:
    """True if columns of these stored types differ from the table's schema."""
    old = types_of(snapshot)
    return [(n, str(k)) for n, k in old.items()] != [(n, str(parsed_type(k))) for n, k in stored.items()]


def taking_types(rows: Rows, kinds: Mapping[str, Any]) -> Rows:
    """Give columns of untyped NULLs the types of the table's columns."""
    targets = {name.lower(): kind for name, kind in kinds.items()}
    types = {name: (kind, targets[name.lower()]) for name, kind in rows.types.items() if name.lower() in targets}
    if any("INTEGER" in str(kind) and not fits(kind_of(kind), kind_of(target)) for kind, target in types.values()):
        types |= {name: (kind, types[name][1]) for name, kind in without_type(rows).items() if name in types}
    taken = {
        name: target
        for name, (kind, target) in types.items()
        if '"NULL"' in str(kind) and fits(kind_of(kind), kind_of(target))
    }
    if not taken:
        return rows
    casts = select_list({n: f"TRY_CAST({quoted} AS {taken[n]})" for n, quoted in quoted_names(taken).items()})
    return Rows(rows.cursor, f"SELECT * REPLACE ({casts}) FROM ({rows.sql})", {**rows.types, **taken}, rows.one_shot)


def fitted(
    ref: TableRef,
    rows: Rows,
    filled: Filled,
    partition_by: Sequence[str],
    *,
    spec: WriteSpec | None = None,
    snapshot: Snapshot | None = None,
    definition: TableDefinition | None = None,
    computed: Computed | None = None,
    has_computed: bool = False,
    assigned: Collection[str] = (),
) -> Rows:
    """Build the SELECT that is written: cast, checked row by row as it streams, sorted.

    Args:
        ref: The table, for messages.
        rows: Rows to fit.
        filled: Source and type of each column.
        partition_by: Partition columns, whose values are checked.
        spec: Write whose sort order and bounds apply.
        snapshot: The table before the write.
        definition: The table after the write; without it, the snapshot's constraints and order
            apply.
        computed: Values of the columns that the rows lack.
        has_computed: True if the rows have the values of identity columns already.
        assigned: Source columns that are cast as an INSERT casts them.
    """
    quoted = quoted_names([*rows.types, *filled])
    casts = select_list(
        {
            name: f"CAST(NULL AS {kind})"
            if source is None
            else _cast(name, quoted[source], rows.types[source], kind, loosely=source in assigned)
            for name, (source, kind) in filled.items()
        }
    )
    table = definition or snapshot
    checked, simple = _checks(filled, quoted, partition_by, spec, table, computed)
    # The checks are in the SELECT list: DuckDB could push a failing filter below a join, where it
    # would see other rows.
    columns = ", ".join(f"{checked[name]} AS {quoted[name]}" if name in checked else quoted[name] for name in filled)
    table_order = definition.sort_by if definition is not None else () if snapshot is None else order_of(snapshot)
    order = _order_of(ref, filled, spec, table_order)
    along = "".join(f", {name}" for name in rows.carried)
    cast = f"SELECT {casts}{along} FROM ({rows.sql})"
    inner = _with_limits(cast, filled, None if table is None else table.schema)
    inner = _with_computed(inner, filled, computed)
    sql = f"SELECT {columns}{along} FROM ({inner}) AS {_ROWS}"
    types = {name: parsed_type(kind) for name, (_, kind) in filled.items()}
    numbering = {} if computed is None or has_computed else computed.numbering(filled)
    in_memory = _in_memory(rows, filled, sql, table) if simple and inner == cast and not (order or along) else None
    return Rows(rows.cursor, sql, types, rows.one_shot, order, rows.carried, numbering, in_memory)


def _in_memory(rows: Rows, filled: Filled, sql: str, table: TableDefinition | Snapshot | None) -> InMemory | None:
    """Return the fitted rows in memory; None if a cast may change values."""
    memory = rows.memory
    if memory is None:
        return None
    columns, casts = {}, {}
    for name, (source, kind) in filled.items():
        if source is None:
            return None
        columns[name] = memory.columns[source]
        if (source_kind := str(rows.types[source])) != kind:
            if source_kind not in _LOSSLESS.get(kind, ()):
                return None
            casts[name] = kind
    required = () if table is None else tuple(field.name for field in table.schema if not field.nullable)
    return InMemory(memory.table, columns, sql, casts, required)


def finished(
    form: Format,
    rows: Rows,
    snapshot: Snapshot,
    schema_mode: SchemaMode = "fail",
    *,
    spec: WriteSpec | None = None,
    cast: Collection[str] = (),
    has_computed: bool = False,
) -> Rows:
    """Fit rows to an existing table, and check its constraints as the rows stream.

    The table's generated, identity and default columns are filled if the rows lack them.

    Args:
        form: Format of the table.
        rows: Rows to fit.
        snapshot: Table to fit to, possibly with the schema after this commit.
        schema_mode: How columns that the table lacks are treated.
        spec: Write whose sort order and bounds apply.
        cast: Columns that only need to be castable to the table's types.
        has_computed: True if the computed columns have their values already.
    """
    target = types_of(snapshot)
    columns = Computed.of(form, snapshot.ref, snapshot, target)
    filled = fit_all(rows.types, target, schema_mode, cast=cast, native=form.native_types, optional=columns.optional)
    return fitted(
        snapshot.ref,
        rows,
        filled,
        snapshot.partition_columns if form.logs is not None else (),
        spec=spec,
        snapshot=snapshot,
        computed=columns,
        has_computed=has_computed,
    )


def cast_to_table(
    form: Format, spec: MergeSpec, rows: Rows, snapshot: Snapshot, mode: SchemaMode, more_types: Mapping[str, Any]
) -> Rows:
    """Cast the source of a merge to a table's types, without checks.

    Args:
        form: Format of the table.
        spec: The merge.
        rows: Rows to cast.
        snapshot: Table, possibly with the schema after this commit.
        mode: How columns that the table lacks are treated.
        more_types: Types of additional columns that are not the table's.
    """
    target = {**types_of(snapshot), **more_types}
    optional = Computed.of(form, snapshot.ref, snapshot, target).optional
    cast, assigned = castable_columns(spec, rows.types), assigned_columns(spec, rows.types)
    native = form.native_types
    filled = fit_all(rows.types, target, mode, cast=cast, assigned=assigned, native=native, optional=optional)
    to_cast = {name: by for name, by in filled.items() if by[0] is not None or name not in optional}
    return fitted(snapshot.ref, rows, to_cast, (), assigned=assigned)


def _with_limits(sql: str, filled: Filled, schema: pa.Schema | None) -> str:
    """SELECT of rows with CHAR(n) and VARCHAR(n) values padded and limited as by Spark."""
    values = {
        f.name: fitting(quote_identifier(f.name), f)
        for f in limited(schema or ())
        if f.name in filled and parsed_type(filled[f.name][1]) == parsed_type(sql_type(f.type))
    }
    replaced = {name: text for name, text in values.items() if text is not None}
    return f"SELECT * REPLACE ({select_list(replaced)}) FROM ({sql})" if replaced else sql


def _with_computed(sql: str, filled: Filled, computed: Computed | None) -> str:
    """SELECT of rows with the computed values of columns that they lack."""
    if computed is None:
        return sql
    expressions = {name: computed.filled(name) for name, (source, _) in filled.items() if source is None}
    values = {name: text for name, text in expressions.items() if text is not None}
    return f"SELECT * REPLACE ({select_list(values)}) FROM ({sql}) AS {_ROWS}" if values else sql


def _cast(name: str, column: str, source: Any, kind: str, *, loosely: bool = False) -> str:
    """Cast a source column of a type to the table's; an unfitting value raises with its column."""
    if str(source) == kind or loosely:
        return f"CAST({column} AS {kind})"
    tried = f"TRY_CAST({column} AS {kind})"
    if source.id == "timestamp_ns":
        tried = f"CASE WHEN {whole_microseconds(column)} THEN {tried} END"
    tried = _exactly(tried, column, kind_of(source), kind_of(parsed_type(kind)))
    value = f"left(CAST({column} AS VARCHAR), 100)"
    message = f"{quote_literal(f'column {name} cannot hold the value ')} || {value} || {quote_literal(f' as {kind}')}"
    return (
        f"CASE WHEN {column} IS NULL OR {tried} IS NOT NULL THEN {tried} ELSE "
        f"CAST({raising(SchemaMismatch, message)} AS {kind}) END"
    )


def _exactly(tried: str, column: str, source: Kind, target: Kind) -> str:
    """Make a cast NULL if it would change the value; a fitting type needs no test."""
    if fits(source, target) or target.name == "text":
        return tried
    same = f"{tried} = {column}"
    if source.name == "text":
        same = f"regexp_full_match(trim({column}), {quote_literal(text_pattern(target) or '')})"
        tried = tried.replace(column, f"trim({column})")
    return f"CASE WHEN {same} THEN {tried} END"


def _order_of(ref: TableRef, filled: Filled, spec: WriteSpec | None, table_order: Sequence[str]) -> tuple[str, ...]:
    """Columns to sort by: the spec's, else the table's."""
    if spec is not None and spec.sort_by:
        unknown = [c for c in spec.sort_by if c not in filled]
        if unknown:
            raise InvalidConfig(f"Table {ref}: sort_by names {', '.join(unknown)}, which is no column.")
        return spec.sort_by
    return tuple(c for c in table_order if c in filled)


def refuse_outside(ref: TableRef, rows: Rows, within: str, condition: str) -> None:
    """Raise RowsOutsidePartition with the number of rows outside ``within`` and three of them."""
    columns = list(rows.types)[:6]
    names = quoted_list(columns)
    outside = f"SELECT {names}, count(*) OVER () FROM ({rows.sql}) AS {_ROWS} WHERE ({within}) IS NOT TRUE LIMIT 3"
    examples = rows.cursor.execute(outside).fetchall()
    if examples:
        shown = "; ".join(", ".join(f"{c} = {v}" for c, v in zip(columns, row, strict=False)) for row in examples)
        raise rows_outside(ref, examples[0][-1], condition, shown)


def _inside(value: str, field: pa.Field, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Conditions for NOT NULL parts of a nested value, as (SQL, the part's name).

    As in Spark and delta_rs, a NULL struct has no such part.
    """
    if pa.types.is_struct(field.type):
        for part in field.type:
            at = part_of(value, part.name)
            if not part.nullable:
                yield f"({at} IS NOT NULL)", part.name
            yield from ((test, f"{part.name}.{name}") for test, name in _inside(at, part, depth))
    elif pa.types.is_list(field.type):
        item = f"x{depth}"
        for test, name in _inside(item, field.type.value_field, depth + 1):
            broken = f"list_filter({value}, lambda {item}: {item} IS NOT NULL AND NOT {test})"
            yield f"({value} IS NULL OR len({broken}) = 0)", f"element.{name}"


def _outside(condition: str, columns: Sequence[str], done: str) -> str:
    """SQL of the message about a row outside the written or replaced part: its first columns."""
    shown = " || ', ' || ".join(
        f"{quote_literal(c + ' = ')} || coalesce(CAST({quote_identifier(c)} AS VARCHAR), 'NULL')" for c in columns[:6]
    )
    return f"{quote_literal(f'a row lies outside the part being {done} ({condition}): ')} || {shown}"


def _checks(
    filled: Filled,
    quoted: Mapping[str, str],
    partition_by: Sequence[str],
    spec: WriteSpec | None,
    table: TableDefinition | Snapshot | None,
    computed: Computed | None,
) -> tuple[dict[str, str], bool]:
    """Column -> expression that raises for an invalid row, and is the column otherwise.

    The second value is True if they only check for years, texts of partition columns, and NULL in
    top-level columns.
    """
    tests: list[Test] = []
    simple = 0
    if table is not None and table.sql_types is not None:  # DuckLake's files cannot hold some values
        kinds = {name: kind for name, (_, kind) in filled.items()}
        tests += lake_tests(kinds, [name for name in table.partition_columns if name in kinds])
    for name in partition_by:
        refuse_partition_type(name, filled[name][1])
        if filled[name][1] == "VARCHAR":
            column, none = quoted[name], ", ".join(map(quote_literal, NO_PARTITION_VALUES))
            message = quote_literal(no_partition_value(name))
            tests.append((name, f"{column} IS NULL OR {column} NOT IN ({none})", SchemaMismatch, message))
            tests.append(folder_test(name))
            simple += 2
    for name, (_, stored) in filled.items():
        if stored in _YEARS:
            first, last = (f"CAST({text} AS {stored})" for text in _YEARS[stored])
            test = f"({quoted[name]} BETWEEN {first} AND {last}) IS NOT FALSE"
            tests.append((name, test, SchemaMismatch, quote_literal(outside_years(name))))
            simple += 1
    bounds = () if spec is None else ((spec.predicate, "replaced"), (spec.within, "written"))
    for bound, done in bounds:
        if spec is not None and bound is not None:
            test = f"({sql_names.transpile(bound, spec.dialect, 'duckdb')}) IS TRUE"
            tests.append((next(iter(filled)), test, RowsOutsidePartition, _outside(bound, list(filled), done)))
    fields = [] if table is None else [field for field in table.schema if field.name in filled]
    for field in fields:
        if not field.nullable:
            message = quote_literal(f"column {field.name} is NOT NULL, and the data has a NULL in it")
            tests.append((field.name, f"{quoted[field.name]} IS NOT NULL", SchemaMismatch, message))
            simple += 1
    for field in fields:
        parts = _inside(quoted[field.name], field) if table and field.name not in table.variants else ()
        for test, part in parts:
            message = quote_literal(f"{field.name}.{part} is NOT NULL, and the data has a NULL in it")
            tests.append((field.name, test, SchemaMismatch, message))
    for key, condition in ({} if table is None else table.checks).items():
        message = quote_literal(f"a row breaks the constraint {key} ({condition})")
        # In Spark a NULL condition breaks the constraint, unlike in SQL's CHECK.
        test = sql_names.transpile(condition, "spark", "duckdb")
        why = scalar.why_not_scalar(test, filled)
        # A foreign writer may have put the condition into the log: it must not read files, settings
        # or tables.
        if why is not None:
            raise UnsupportedFeature(
                f"the constraint {key} ({condition}) has {why}: only columns of the row and deterministic scalar "
                "functions are computed",
                remedy=f"ALTER TABLE … DROP CONSTRAINT {key}, if the rows need not fulfil it",
            )
        tests.append((next(iter(filled)), f"({test}) IS TRUE", SchemaMismatch, message))
    for name, expression in ({} if computed is None else computed.generated).items():
        if name in filled and filled[name][0] is not None:
            message = quote_literal(
                f"column {name} is generated, and a row has another value than its expression gives: "
            )
            shown = f"{message} || coalesce(CAST({quoted[name]} AS VARCHAR), 'NULL')"
            tests.append((name, f"{quoted[name]} IS NOT DISTINCT FROM {expression}", SchemaMismatch, shown))
    checked: dict[str, str] = {}
    for name, test, kind, message in tests:
        inner = checked.get(name, quoted[name])
        checked[name] = f"CASE WHEN {test} THEN {inner} ELSE CAST({raising(kind, message)} AS {filled[name][1]}) END"
    return checked, len(tests) == simple
