"""What a table will be when a write is committed: its columns may be others than those of its files."""

from __future__ import annotations

from dataclasses import dataclass, fields

import duckdb
import pyarrow as pa

from duckrun.engines.duckdb.alter import projection
from duckrun.engines.duckdb.source import Rows, schema_of_types
from duckrun.engines.duckdb.types import store_all
from duckrun.formats.format import Alteration, Format, TableDefinition
from duckrun.sql.names import quote_identifier
from duckrun.values.rows import SchemaMode
from duckrun.values.snapshot import Snapshot


@dataclass(frozen=True)
class Target(Snapshot):
    """A snapshot whose columns change with the write. ``schema`` is the new one; the files are those of ``version``."""

    alteration: Alteration | None = None

    @property
    def stored_schema(self) -> pa.Schema:
        return self.schema if self.alteration is None else self.alteration.before.schema


def target_of(snapshot: Snapshot, rows: Rows, mode: SchemaMode, form: Format) -> Snapshot:
    """The snapshot itself, or a Target that takes the columns of some rows. Raises SchemaMismatch, InvalidConfig."""
    if mode == "fail":
        return snapshot
    incoming = form.fields_of(schema_of_types(store_all(rows.types), rows.cursor))
    alteration = form.evolved(snapshot, incoming, mode)
    if not alteration.changed:
        return snapshot
    values = {f.name: getattr(snapshot, f.name) for f in fields(Snapshot)}
    return Target(**{**values, "schema": alteration.after.schema}, alteration=alteration)


def definition_of(snapshot: Snapshot) -> TableDefinition | None:
    """The definition to commit with the rows; None where it stays."""
    alteration = getattr(snapshot, "alteration", None)
    return None if alteration is None else alteration.after


def written_anew(snapshot: Snapshot) -> bool:
    """True if no file of the table holds its rows in the form that they will have."""
    alteration: Alteration | None = getattr(snapshot, "alteration", None)
    return alteration is not None and alteration.rewrites


def rows_of(
    snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection, *, file: str | None = None, row: str | None = None
) -> str:
    """SELECT of all rows in the form that they will have; with ``file`` and ``row``, columns of these names say which it is."""
    alteration: Alteration | None = getattr(snapshot, "alteration", None)
    if alteration is None:
        names = [quote_identifier(c) for c in snapshot.schema.names]
    else:
        names = [projection(alteration, cursor)]
    names += [quote_identifier(name) for name in (file, row) if name is not None]
    return f"SELECT {', '.join(names)} FROM {snapshot.scan_sql(file=file, row=row)}"
