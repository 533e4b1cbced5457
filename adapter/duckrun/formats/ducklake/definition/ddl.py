"""DDL statements that create a DuckLake table, or change one definition into another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from duckrun.errors import UnsupportedFeature
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition
from duckrun.formats.ducklake.definition.partitions import Partition
from duckrun.formats.ducklake.definition.types import widens
from duckrun.sql.quoting import quote_identifier, quote_literal


def created_sql(table: str, definition: DuckLakeDefinition) -> Iterator[str]:
    """Yield the statements that create a table."""
    columns = ", ".join(_column(f) for f in definition.fields)
    yield f"CREATE TABLE {table} ({columns})"
    yield from _layout(table, {}, _orders(definition))
    yield from _comments(table, DuckLakeDefinition(()), definition)


def changed_sql(
    table: str,
    before: DuckLakeDefinition,
    after: DuckLakeDefinition,
    steps: Sequence[str] = (),
    *,
    empty: bool = False,
) -> Iterator[str]:
    """Yield the statements that change one definition into another.

    A column whose type does not widen is dropped and added again, without its values.

    Args:
        before: Definition after the ``steps``.
        steps: DDL behind ALTER TABLE that runs first.
        empty: The table has no rows. Columns in another order are then dropped and added again,
            too.
    """
    for step in steps:
        yield f"ALTER TABLE {table} {step}"
    were = {f["name"]: f for f in before.fields}
    gone = [name for name in were if name not in after.names]
    doomed = _anew(were, after, empty)
    moved = bool(gone or doomed)
    lost = {*gone, *doomed}
    was, wanted = _orders(before), _orders(after)
    for what, columns in zip(was, ([key.column for key in before.partition_by], before.sort_by), strict=True):
        if columns and moved and (was[what] != wanted[what] or not lost.isdisjoint(columns)):
            yield f"ALTER TABLE {table} RESET {what}"
            was[what] = ()
    # Rename before the drop: the new column needs the name, and a table needs at least one column.
    for name in doomed:
        yield f"ALTER TABLE {table} RENAME COLUMN {quote_identifier(name)} TO {quote_identifier(_GONE + name)}"
    fresh = [f for f in after.fields if f["name"] not in were or f["name"] in doomed]
    for f in fresh:
        yield f"ALTER TABLE {table} ADD COLUMN {_column(f, not_null=False)}"
    for name in (*gone, *(_GONE + name for name in doomed)):
        yield f"ALTER TABLE {table} DROP COLUMN {quote_identifier(name)}"
    for f in after.fields:
        old = were.get(f["name"])
        if old is not None and f["name"] not in doomed:
            yield from _changed_column(f"ALTER TABLE {table} ALTER COLUMN {quote_identifier(f['name'])}", old, f)
    for f in fresh:
        if not f["nullable"]:
            yield f"ALTER TABLE {table} ALTER COLUMN {quote_identifier(f['name'])} SET NOT NULL"
    yield from _layout(table, was, wanted, anew=moved)
    yield from _comments(table, before, after, {*doomed})


_GONE = "__duckrun_gone_"


def _anew(were: Mapping[str, Mapping[str, Any]], after: DuckLakeDefinition, empty: bool) -> list[str]:
    """Columns to drop and add again, in their new order."""
    unchanged = [
        f["name"]
        for f in after.fields
        if f["name"] in were
        and (f["type"] == were[f["name"]]["type"] or (not empty and widens(were[f["name"]]["type"], f["type"])))
    ]
    if empty:
        stays = [name for name in were if name in unchanged]
        ahead = 0
        while ahead < min(len(stays), len(after.fields)) and stays[ahead] == after.fields[ahead]["name"]:
            ahead += 1
        unchanged = stays[:ahead]
    return [f["name"] for f in after.fields if f["name"] in were and f["name"] not in unchanged]


def requires_added(before: DuckLakeDefinition, after: DuckLakeDefinition) -> bool:
    """True if changing an empty table would add a NOT NULL column."""
    were = {f["name"]: f for f in before.fields}
    anew = _anew(were, after, True)
    return any(not f["nullable"] and (f["name"] not in were or f["name"] in anew) for f in after.fields)


def one_part(table: object, definition: DuckLakeDefinition) -> Partition:
    """Return a partitioning with a single partition.

    Raises:
        UnsupportedFeature: No column has a type that DuckLake puts into buckets.
    """
    for f in definition.fields:
        if re.match(r"(U?(TINY|SMALL|BIG)?INT(EGER)?|DECIMAL|DATE|VARCHAR|TIMESTAMP|UUID|BLOB)", f["type"]):
            return Partition(f["name"], "bucket", 1)
    raise UnsupportedFeature(
        f"table {table} cannot lose its partitions in one commit with its rows: "
        "partition it otherwise, or create it anew"
    )


def _changed_column(start: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if new["type"] != old["type"]:
        yield f"{start} SET DATA TYPE {new['type']}"
    if new["nullable"] != old["nullable"]:
        yield f"{start} {'DROP' if new['nullable'] else 'SET'} NOT NULL"
    default = new.get("default")
    if default != old.get("default"):
        yield f"{start} {'DROP DEFAULT' if default is None else f'SET DEFAULT {default}'}"


def _column(f: Mapping[str, Any], *, not_null: bool = True) -> str:
    default = "" if f.get("default") is None else f" DEFAULT {f['default']}"
    return f"{quote_identifier(f['name'])} {f['type']}{default}{' NOT NULL' if not_null and not f['nullable'] else ''}"


def _orders(definition: DuckLakeDefinition) -> dict[str, tuple[str, ...]]:
    """Return the SQL keys of the clauses that lay out a table."""
    return {
        "PARTITIONED BY": tuple(key.sql for key in definition.partition_by),
        "SORTED BY": tuple(f"{quote_identifier(name)} ASC" for name in definition.sort_by),
    }


def _layout(
    table: str, was: Mapping[str, tuple[str, ...]], wanted: Mapping[str, tuple[str, ...]], *, anew: bool = False
) -> Iterator[str]:
    for what, keys in wanted.items():
        if keys and keys != was.get(what):
            yield f"ALTER TABLE {table} SET {what} ({', '.join(keys)})"
        elif not keys and was.get(what) and not anew:
            yield f"ALTER TABLE {table} RESET {what}"


def _comments(
    table: str, before: DuckLakeDefinition, after: DuckLakeDefinition, anew: Iterable[str] = ()
) -> Iterator[str]:
    if before.description != after.description:
        yield f"COMMENT ON TABLE {table} IS {_text(after.description)}"
    were = {f["name"]: f["metadata"].get("comment") for f in before.fields if f["name"] not in anew}
    for f in after.fields:
        comment = f["metadata"].get("comment")
        if were.get(f["name"]) != comment:
            yield f"COMMENT ON COLUMN {table}.{quote_identifier(f['name'])} IS {_text(comment)}"


def _text(comment: str | None) -> str:
    return "NULL" if comment is None else quote_literal(comment)
