"""The table as a commit will leave it: its columns may differ from those of its files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, fields

from duckrun.engines.duckdb.rows.fitted import stored_types, types_of
from duckrun.engines.duckdb.rows.source import Rows, schema_of_types
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.format import Format
from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quoted_names
from duckrun.values.choices import SchemaMode
from duckrun.values.frozen import frozen
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot


@frozen
class Target(Snapshot):
    """A snapshot whose columns change with the commit.

    ``schema`` is the new schema; the files are those of ``version``.
    """

    alteration: Alteration = field(kw_only=True)

    @property
    def stored_schema(self) -> pa.Schema:
        return self.alteration.before.schema


def altered(snapshot: Snapshot, alteration: Alteration) -> Target:
    """The table of a snapshot with an altered schema."""
    values = {f.name: getattr(snapshot, f.name) for f in fields(Snapshot)}
    after = alteration.after
    changed = {"schema": after.schema, "sql_types": after.sql_types, "variants": after.variants}
    return Target(**values | changed, alteration=alteration)


def target_of(
    snapshot: Snapshot, rows: Rows, mode: SchemaMode, form: Format, takes: Callable[[str], bool] = lambda column: True
) -> Snapshot:
    """Return the snapshot, or a Target if rows bring new columns that it ``takes``.

    Raises:
        SchemaMismatch: The rows do not fit the table.
        InvalidConfig: The schema cannot change this way.
    """
    if mode == "fail":
        return snapshot
    table_names = {name.lower() for name in snapshot.schema.names}
    types = {name: kind for name, kind in rows.types.items() if name.lower() in table_names or takes(name)}
    stored = stored_types(form, types)
    incoming = form.fields_of(schema_of_types(stored, rows.cursor), stored)
    alteration = form.evolved(snapshot, incoming, mode)
    return altered(snapshot, alteration) if alteration.changed else snapshot


def definition_of(snapshot: Snapshot) -> TableDefinition | None:
    """Definition to commit with the rows; None if it stays the same."""
    return snapshot.alteration.after if isinstance(snapshot, Target) else None


def written_anew(snapshot: Snapshot) -> bool:
    """True if every file of the table must be rewritten in the new schema."""
    return isinstance(snapshot, Target) and snapshot.alteration.rewrites


def rows_of(
    snapshot: Snapshot,
    *,
    files: Sequence[ScanFile] | None = None,
    file: str | None = None,
    row: str | None = None,
    also: Sequence[str] = (),
) -> str:
    """SELECT of the table's rows in its new schema.

    Args:
        snapshot: The table.
        files: Files to read; None reads all.
        file: Name of an additional column with the row's file.
        row: Name of an additional column with the row's number in its file.
        also: Columns of the files that are not the table's.
    """
    names = list(quoted_names(snapshot.schema.names).values())
    if isinstance(snapshot, Target):
        kinds = types_of(snapshot)
        names = [
            f"CAST({'NULL' if old is None else quote_identifier(old)} AS {kinds[new]}) AS {quote_identifier(new)}"
            for new, old in snapshot.alteration.columns.items()
        ]
    names += quoted_names([name for name in (file, row, *also) if name is not None]).values()
    more = {"also": also} if also else {}
    return f"SELECT {', '.join(names)} FROM {snapshot.scan_sql(files=files, file=file, row=row, **more)}"
