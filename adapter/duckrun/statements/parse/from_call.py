"""CALL of DuckLake's maintenance functions, and CHECKPOINT.

``CALL ducklake_merge_adjacent_files('lake', 'orders')`` and ``CALL lake.merge_adjacent_files()``
work as in DuckDB. The lake's name is optional. Source: DuckLake's documentation, Maintenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import duckdb

from duckrun.changes.own import FUNCTIONS, LAKE_FUNCTIONS
from duckrun.errors import InvalidConfig
from duckrun.sql.names import parse_query
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader
from duckrun.statements.values import InlineRows, OnLake, Query, Statement
from duckrun.values.nearest import did_you_mean
from duckrun.values.upkeep import (
    CleanupSpec,
    ExpireSpec,
    FlushSpec,
    LakeCheckpointSpec,
    MergeFilesSpec,
    OrphansSpec,
    RewriteSpec,
    UpkeepSpec,
)

_WORDS: dict[str, tuple[str, ...]] = {
    "flush_inlined_data": ("table_name", "schema_name"),
    "merge_adjacent_files": ("table_name", "schema"),
    "rewrite_data_files": ("table_name", "schema", "delete_threshold"),
    "expire_snapshots": ("versions", "older_than", "dry_run", "spare_consumers"),
    "cleanup_old_files": ("older_than", "cleanup_all", "dry_run"),
    "delete_orphaned_files": ("older_than", "cleanup_all", "dry_run"),
    "set_option": ("option", "value", "schema", "table_name"),
}
"""Argument names by function. ``_POSITIONAL`` lists those that may be given by position."""
_POSITIONAL = {
    "merge_adjacent_files": ("table_name",),
    "rewrite_data_files": ("table_name",),
    "set_option": ("option", "value"),
}
_INLINE = "data_inlining_row_limit"


def checkpoint(reader: TokenReader) -> Statement:
    """Read ``CHECKPOINT`` or ``CHECKPOINT lake``."""
    return OnLake(LakeCheckpointSpec(), lake=reader.identifier() if reader.left else None)


def call(reader: TokenReader) -> Statement:
    """Read ``CALL function(...)`` or ``CALL lake.function(...)``."""
    name = reader.name()
    function = name[-1].lower().removeprefix("ducklake_")
    if function in (*LAKE_FUNCTIONS, *FUNCTIONS):  # functions that only read are queries
        tokens, reader.at = reader.source.tokens, len(reader.source.tokens)
        text = reader.source.with_(tokens[1:]).written
        return Query(parse_query(f"SELECT * FROM {text}", reader.source.dialect))
    if function not in _WORDS or len(name) > 2:
        near = did_you_mean(function, list(_WORDS))
        raise unsupported(f"CALL {'.'.join(name)}.{near}" if near else f"CALL {'.'.join(name)}")
    parts = [part for part in reader.brackets() if part]
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for part in parts:
        words = [token.text for token in part]
        arrow = next((at for at in range(1, min(len(words), 3)) if words[at] in ("=>", ":=")), None)
        if arrow is None:
            positional.append(_value(reader.source.with_(part)))
            continue
        word = words[0].lower()
        if word not in _WORDS[function]:
            raise InvalidConfig(
                f"CALL {'.'.join(name)} has no argument {words[0]}; it has {', '.join(_WORDS[function])}."
                f"{did_you_mean(word, _WORDS[function])}"
            )
        named[word] = _value(reader.source.with_(part[arrow + 1 :]))
    lake = name[0] if len(name) > 1 else None
    known = _POSITIONAL.get(function, ())
    if lake is None and len(positional) > (len(known) if function == "set_option" else 0):
        lake = str(positional.pop(0))
    if len(positional) > len(known):
        raise InvalidConfig(f"CALL {'.'.join(name)} takes {', '.join(('lake', *known))}; the rest is named with =>.")
    named = {**dict(zip(known, positional, strict=False)), **named}
    return _statement(function, lake, named)


def _statement(function: str, lake: str | None, arguments: Mapping[str, Any]) -> Statement:
    table = None
    if arguments.get("table_name") is not None:
        schema = arguments.get("schema", arguments.get("schema_name"))
        parts = (schema, arguments["table_name"]) if schema is not None else (arguments["table_name"],)
        table = tuple(str(part) for part in parts)
        table = (lake, *(table if len(table) > 1 else ("main", *table))) if lake is not None else table
    elif arguments.get("schema") or arguments.get("schema_name"):
        raise unsupported(f"CALL {function} of a schema; name a table too, or leave the schema out; it")
    if function == "set_option":
        if str(arguments.get("option")).lower() != _INLINE:
            raise unsupported(f"CALL set_option of anything but {_INLINE}")
        value = arguments.get("value")
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidConfig(f"{_INLINE} is {value!r}; it is a number of rows, 0 for none.")
        return InlineRows(value, lake=lake, table=table)
    return OnLake(_spec(function, arguments), lake=lake, table=table)


def _spec(function: str, arguments: Mapping[str, Any]) -> UpkeepSpec:
    older = _moment(arguments.get("older_than"))
    dry_run = bool(arguments.get("dry_run", False))
    if arguments.get("cleanup_all"):
        older = datetime.now(UTC)
    match function:
        case "flush_inlined_data":
            return FlushSpec()
        case "merge_adjacent_files":
            return MergeFilesSpec()
        case "rewrite_data_files":
            share = arguments.get("delete_threshold")
            return RewriteSpec(None if share is None else float(share))
        case "expire_snapshots":
            versions = arguments.get("versions")
            listed = None if versions is None else tuple(int(v) for v in versions)
            return ExpireSpec(listed, older, bool(arguments.get("spare_consumers", True)), dry_run)
        case "cleanup_old_files":
            return CleanupSpec(older, dry_run)
    return OrphansSpec(older, dry_run)


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise InvalidConfig(f"older_than is {value!r}, which is no time, such as now() - INTERVAL '7 days'.")
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _value(source: StatementText) -> Any:
    """Return the value of a constant expression, such as ``now() - INTERVAL '1 week'``."""
    text = source.written if source.dialect == "duckdb" else source.parse().sql(dialect="duckdb")
    config: dict[str, Any] = {"threads": "1", "enable_external_access": "false"}
    with duckdb.connect(config=config) as alone:
        alone.execute("SET TimeZone = 'UTC'")
        try:
            row = alone.execute(f"SELECT {text}").fetchone()
        except duckdb.Error as error:
            raise InvalidConfig(f"{text} is no value: {str(error).splitlines()[0]}") from error
    assert row is not None, "a SELECT without FROM has a row"
    return float(row[0]) if type(row[0]).__name__ == "Decimal" else row[0]
