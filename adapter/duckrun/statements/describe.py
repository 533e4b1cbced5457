"""Results of SHOW and DESCRIBE: the contents of a lake and the properties of a table, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from sqlglot import exp

from duckrun.errors import InvalidConfig
from duckrun.lake.lakes import Lakes, Located
from duckrun.statements.information import column_types, held
from duckrun.statements.reading import Reading
from duckrun.statements.values import Describe, Parts, Show
from duckrun.values.columns import comment_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import Snapshot, TableRef


def names(lakes: Lakes, temporary: Sequence[str], statement: Show, hidden: Iterable[TableRef] = ()) -> pa.Table:
    """Return the rows of SHOW: schemas, or tables and views.

    Args:
        lakes: the lakes of the session.
        temporary: the names of temporary views.
        statement: the SHOW.
        hidden: tables that this run must not see.
    """
    if statement.what == "schemas":
        schemas = [".".join(filter(None, (lake.name, name))) for lake in lakes for name in sorted(lake.schemas())]
        return _table({"schema": pa.string()}, [(name,) for name in schemas])
    lake, schema = lakes.schema_of(statement.within) if statement.within else (lakes.lake, None)
    without = {(ref.schema, ref.name) for ref in hidden if ref.catalog == lake.name}
    shown = (each for each in held(lake, schema) if each[:2] not in without)
    rows = [each for each in shown if statement.what == "tables" or each[2] == "view"]
    if statement.what == "views":
        rows += [(s, name, each.kind) for (s, name), each in sorted(lake.macros().items()) if schema in (None, s)]
    rows += [("", name, "temporary view") for name in sorted(temporary) if schema is None]
    return _table(dict.fromkeys(("schema", "name", "kind"), pa.string()), rows)


def description(reading: Reading, statement: Describe, located: Located | None) -> pa.Table:
    """Return the rows of DESCRIBE: columns, properties, detail or history of a table or view.

    Args:
        reading: the reads of the statement.
        statement: the DESCRIBE.
        located: the table or view; None for a temporary name.

    Raises:
        InvalidConfig: for anything but the columns of a view, and for an unknown property.
        TableNotFound: for an unknown table, with the nearest names.
    """
    table = located if located is not None and located.view is None else None
    if statement.what == "columns":
        return _columns(reading, statement.target, None if table is None else table.ref)
    if table is None:
        raise InvalidConfig(f"{'.'.join(statement.target)} is a view, which has no {statement.what}.")
    snapshot = reading.snapshot(table.ref)  # raises TableNotFound with the nearest names
    if statement.what == "properties":
        return _properties(snapshot, statement.key)
    if statement.what == "detail":
        return _rows([table.lake.format.detail(table.ref)])
    commits = table.lake.format.history(table.ref, statement.limit)
    moments = (datetime.fromtimestamp(commit["timestamp"] / 1000, UTC) for commit in commits)
    first = {"version": None, "timestamp": None}
    return _rows([first | c | {"timestamp": at} for c, at in zip(commits, moments, strict=True)])


def _columns(reading: Reading, target: Parts, ref: TableRef | None) -> pa.Table:
    if ref is not None:
        snapshot = reading.snapshot(ref)
        types = reading.engine.column_types(snapshot)
        rows = [(f.name, types[f.name], f.nullable, comment_of(f) or None) for f in snapshot.schema]
    else:
        schema, catalog = (*reversed(target[:-1]), None, None)[:2]
        table = exp.table_(target[-1], db=schema, catalog=catalog, quoted=True)
        frame = reading.frame(exp.select("*").from_(table))
        rows = [(name, kind, True, None) for name, kind in column_types(frame)]
    text = pa.string()
    return _table({"column_name": text, "data_type": text, "nullable": pa.bool_(), "comment": text}, rows)


def _properties(snapshot: Snapshot, key: str | None) -> pa.Table:
    """Return a table's properties, or the one named ``key``.

    Raises:
        InvalidConfig: for an unknown property, with the nearest names.
    """
    properties = snapshot.properties
    if key is not None and key not in properties:
        raise InvalidConfig(f"Table {snapshot.ref} has no property {key!r}.{did_you_mean(key, properties)}")
    rows = [(name, value) for name, value in sorted(properties.items()) if key in (None, name)]
    return _table(dict.fromkeys(("key", "value"), pa.string()), rows)


def _table(columns: Mapping[str, pa.DataType], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.table({n: pa.array([row[i] for row in rows], kind) for i, (n, kind) in enumerate(columns.items())})


def _rows(entries: Sequence[dict[str, Any]]) -> pa.Table:
    """Return log entries as a table: maps become JSON, and empty columns become strings."""
    names = list(dict.fromkeys(name for entry in entries for name in entry))
    columns: dict[str, pa.Array] = {}
    for name in names:
        values = [entry.get(name) for entry in entries]
        values = [json.dumps(v, ensure_ascii=False) if isinstance(v, dict) else v for v in values]
        array = pa.array(values)
        if pa.types.is_null(array.type) or (pa.types.is_list(array.type) and pa.types.is_null(array.type.value_type)):
            array = array.cast(pa.string() if pa.types.is_null(array.type) else pa.list_(pa.string()))
        columns[name] = array
    return pa.table(columns)
