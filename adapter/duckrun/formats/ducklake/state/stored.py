"""Catalog entries of one table at all snapshots, read by a single query.

Each query costs milliseconds, however little it reads. Source: the DuckLake specification 1.0,
Tables.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from duckrun.formats.ducklake.catalog.bounds import bounds_sql, unbucketed_sql
from duckrun.formats.ducklake.catalog.catalog import Catalog
from duckrun.formats.ducklake.catalog.schema_versions import unlisted_sql
from duckrun.formats.ducklake.definition.definition import DuckLakeDefinition, field, properties_of
from duckrun.formats.ducklake.definition.partitions import Partition
from duckrun.values.tables import SORT_BY

ROWS = ("inserted_into_table", "deleted_from_table", "inlined_insert", "inlined_delete")
"""Kinds in ``changes_made`` that change rows.

Source: the DuckLake specification 1.0, ducklake_snapshot_changes.
"""
DEFINITION = ("altered_table",)
LAYOUT = ("merge_adjacent", "rewrite_delete", "inline_flush")
"""Kinds in ``changes_made`` that move the same rows to other files."""
EVERY = (*ROWS, *DEFINITION, *LAYOUT)
_TYPES = {"int": "BIGINT", "bool": "BOOLEAN", "str": "VARCHAR"}


def touching(kinds: Iterable[str], *tables: int) -> str:
    """Return the condition for snapshots with changes of some kinds to one of some tables."""
    return f"regexp_matches(changes_made, '(^|,)({'|'.join(kinds)}):({'|'.join(map(str, tables))})(,|$)')"


@dataclass(frozen=True)
class Entry:
    """Row of the catalog. The meaning of a field depends on its source (see ``_question``)."""

    begun: int | None = None
    """First snapshot of the entry."""
    ended: int | None = None
    """First snapshot without the entry; None if it is current."""
    column: int | None = None
    """Id of the column that the entry describes."""
    number: int | None = None
    flag: bool | None = None
    name: str | None = None
    value: str | None = None
    more: str | None = None
    kind: str | None = None

    def is_there(self, snapshot: int) -> bool:
        """True if the entry is valid at a snapshot."""
        return (self.begun is None or self.begun <= snapshot) and (self.ended is None or self.ended > snapshot)


class Stored:
    """Catalog entries of a table, seen from a snapshot of the lake.

    Args:
        of: Kinds of entries to read; empty reads all.
    """

    def __init__(self, catalog: Catalog, table_id: int, at: int, of: Collection[str] = ()) -> None:
        self._at = at
        self._entries: defaultdict[str, list[Entry]] = defaultdict(list)
        for what, *row in catalog.ask(_question(catalog, table_id, at, of)):
            self._entries[what].append(Entry(*row))

    def _one(self, what: str) -> Entry:
        return self._entries[what][0]

    def _there(self, what: str) -> list[Entry]:
        """Entries at the snapshot. Partition and sort keys are in their order."""
        there = [entry for entry in self._entries[what] if entry.is_there(self._at)]
        return there if what == "column" else sorted(there, key=lambda entry: entry.number or 0)

    # -- which snapshots changed it

    @property
    def version(self) -> int:
        """Last snapshot that changed the table, or the oldest one left if that has expired."""
        columns, tables = self._entries["column"], self._entries["table"]
        seen = [e.begun for e in (*tables, *columns)] + [e.ended for e in columns] + [self._one("changed").begun]
        return max(self._one("oldest").begun or 0, *(at for at in seen if at is not None and at <= self._at))

    @property
    def begun(self) -> int:
        """First snapshot that had the table."""
        return min(e.begun for what in ("table", "column") for e in self._entries[what] if e.begun is not None)

    @property
    def rewritten(self) -> bool:
        """True if files were rewritten later.

        DuckLake's column bounds then cover only the rows that were left.
        """
        return bool(self._one("changed").flag)

    # -- its columns

    @property
    def widened(self) -> int:
        """Snapshot at which a column last changed its type; 0 for none."""
        columns = self._entries["column"]
        before = {(e.column, e.ended): e.kind for e in columns}
        snapshots = (e.begun for e in columns if before.get((e.column, e.begun), e.kind) != e.kind and e.begun)
        return max(snapshots, default=0)

    @property
    def narrow(self) -> frozenset[str]:
        """Columns with wrong bounds, with files outside of buckets, or with another type elsewhere.

        A field's type counts as that of its column.
        """
        kinds: defaultdict[int | None, set[str | None]] = defaultdict(set)
        for entry in self._entries["column"]:
            kinds[entry.column].add(entry.kind)
        untrue = {entry.column for entry in self._entries["bounds"] if entry.flag}
        untrue |= {entry.column for entry in self._entries["unbucketed"]}
        there = {entry.column: entry for entry in self._there("column")}
        names = set()
        for entry in there.values():
            if len(kinds[entry.column]) > 1 or entry.column in untrue:
                while entry.number is not None:
                    entry = there[entry.number]
                names.add(str(entry.name))
        return frozenset(names)

    @property
    def fresh(self) -> bool:
        """True if the table has never had a row. The first commit with rows may lose column bounds.

        A column that is added later has no bounds to lose.
        """
        return not self._entries["bounds"]

    @property
    def inlined(self) -> int | None:
        """Schema version of the oldest table of inlined rows; None if there is none."""
        return self._one("inlined").begun

    @property
    def has_unlisted(self) -> bool:
        """True if the catalog does not list a schema of inlined rows (schema_versions.py)."""
        return bool(self._entries["unlisted"])

    @property
    def has_old_inlined(self) -> bool:
        """True if a table of inlined rows has an older schema than the table."""
        newest = self._one("schema").number
        return self.inlined is not None and newest is not None and self.inlined < newest

    @property
    def first_schema(self) -> int | None:
        """First schema version of the table."""
        return self._one("schema").begun

    # -- what it is apart from its rows

    def column_ids(self) -> dict[str, int]:
        """Ids of the top-level columns, by name."""
        return {str(e.name): int(e.column or 0) for e in self._there("column") if e.number is None}

    def definition(self, types: Mapping[str, str]) -> DuckLakeDefinition:
        """Return the definition of the table.

        Args:
            types: Column names and types in DuckDB SQL, in order.
        """
        return DuckLakeDefinition(
            tuple(self._fields(types)),
            tuple(self._partitions()),
            properties=self._properties(types),
            description=next((e.value for e in self._there("comment")), None),
        )

    def _fields(self, types: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        entries = {e.name: e for e in self._there("column") if e.number is None}
        comments = {e.column: e.value for e in self._there("column comment")}
        for name, kind in types.items():
            entry = entries[name]
            literal = None if entry.value in (None, "NULL") else entry.value
            if literal is not None and entry.more == "literal":
                literal = "'" + literal.replace("'", "''") + "'"
            yield field(name, kind, bool(entry.flag), comments.get(entry.column), literal)

    def _partitions(self) -> Iterator[Partition]:
        names = {e.column: str(e.name) for e in self._there("column")}
        return (Partition.stored(str(e.value), names[e.column]) for e in self._there("partition"))

    def _properties(self, types: Mapping[str, str]) -> dict[str, str]:
        names = {name.lower(): name for name in types}
        order = [names.get(str(e.value).strip('"').lower(), e.value) for e in self._there("sort")]
        options = {str(e.name): str(e.value) for e in self._there("option")}
        return {**properties_of(options), **({SORT_BY: json.dumps(order)} if order else {})}


def _question(catalog: Catalog, table_id: int, at: int, of: Collection[str]) -> str:
    meta, of_table = catalog.meta, f"WHERE table_id = {table_id}"
    lifetime = {"begun": "begin_snapshot", "ended": "end_snapshot"}
    columns = {"column": "column_id", "number": "parent_column", "flag": "nulls_allowed", "name": "column_name",
               "value": "default_value", "more": "default_value_type", "kind": "column_type"}  # fmt: skip
    changed = {
        "begun": f"max(snapshot_id) FILTER (WHERE snapshot_id <= {at})",
        "flag": f"coalesce(bool_or(snapshot_id > {at} AND {touching(['rewrite_delete'], table_id)}), false)",
    }
    comment = "AND key = 'comment'"

    def keys(kind: str, key: str) -> str:
        info, each = meta(f"ducklake_{kind}_info"), meta(f"ducklake_{kind}_{key}")
        return f"(SELECT {kind}_id, begin_snapshot, end_snapshot FROM {info} {of_table}) JOIN {each} USING ({kind}_id)"

    sources: dict[str, tuple[Mapping[str, str], str]] = {
        "table": (lifetime, f"{meta('ducklake_table')} {of_table}"),
        "column": (lifetime | columns, f"{meta('ducklake_column')} {of_table}"),
        "changed": (changed, f"{meta('ducklake_snapshot_changes')} WHERE {touching(EVERY, table_id)}"),
        "bounds": ({"column": "column_id", "flag": "untrue"}, bounds_sql(catalog, at, table_id)),
        "unbucketed": ({"column": "column_id"}, unbucketed_sql(catalog, at, table_id)),
        "oldest": ({"begun": "min(snapshot_id)"}, meta("ducklake_snapshot")),
        "inlined": ({"begun": "min(schema_version)"}, f"{meta('ducklake_inlined_data_tables')} {of_table}"),
        "schema": (
            {"begun": "min(schema_version)", "number": "max(schema_version)"},
            f"{meta('ducklake_schema_versions')} {of_table}",
        ),
        "unlisted": ({"begun": "schema_version"}, unlisted_sql(catalog, table_id)),
        "column comment": (
            lifetime | {"column": "column_id", "value": "value"},
            f"{meta('ducklake_column_tag')} {of_table} {comment}",
        ),
        "comment": (lifetime | {"value": "value"}, f"{meta('ducklake_tag')} WHERE object_id = {table_id} {comment}"),
        "option": (
            {"name": "key", "value": "value"},
            f"{meta('ducklake_metadata')} WHERE scope = 'table' AND scope_id = {table_id}",
        ),
        "partition": (
            lifetime | {"column": "column_id", "number": "partition_key_index", "value": "transform"},
            keys("partition", "column"),
        ),
        "sort": (lifetime | {"number": "sort_key_index", "value": "expression"}, keys("sort", "expression")),
    }
    # All sources share the row layout of Entry, so that one query reads them.
    return " UNION ALL ".join(_entries(what, *source) for what, source in sources.items() if not of or what in of)


def _entries(what: str, columns: Mapping[str, str], source: str) -> str:
    values = (
        f"CAST({columns.get(each.name, 'NULL')} AS {_TYPES[str(each.type).partition(' ')[0]]})"
        for each in fields(Entry)
    )
    return f"SELECT '{what}', {', '.join(values)} FROM {source}"


def types_in(catalog: Catalog, epoch: int | str, schema: str, name: str, version: int) -> dict[str, str]:
    """Columns of a table at a version, with their types in DuckDB SQL."""
    with catalog.errors(f"table {schema}.{name}"):
        relation = catalog.cursor().sql(f"SELECT * FROM {catalog.rows(epoch, schema, name, version)}")
        return dict(zip(relation.columns, map(str, relation.types), strict=True))
