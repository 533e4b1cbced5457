"""Moves of tables between a session's lake and other lakes or databases."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from duckrun.display.progress import tracked
from duckrun.engines.duckdb.rows.source import SqlOnCursor
from duckrun.errors import CommitConflict, InvalidConfig, StorageError, UnsupportedFeature, outcome_of
from duckrun.formats.format import logs_of, transactions_of
from duckrun.frame import Frame
from duckrun.moving import adopting, database, exporting
from duckrun.moving.delta import TableToMove
from duckrun.moving.kinds import fitting
from duckrun.sessions.tables import TableSession
from duckrun.values.moved import Moved
from duckrun.values.options import given, names_in
from duckrun.values.rows import ReadSpec, WriteSpec
from duckrun.values.snapshot import TableRef

_DATABASE = (".duckdb", ".db", ".ddb")
_MOTHERDUCK = re.compile(r"(md|motherduck):", re.IGNORECASE)


class Moving:
    """Moves of tables into and out of a session's lake: ``s.moving``."""

    def __init__(self, session: TableSession, connect: Callable[..., TableSession]) -> None:
        """Move tables of a session's lake.

        Args:
            connect: Opens a session on the other lake.
        """
        self._session, self._lake, self._connect = session, session.lake, connect

    @outcome_of("import")
    def import_from(
        self, source: str | os.PathLike[str], tables: Any, adopt: bool, options: Mapping[str, Any] | None
    ) -> list[Moved]:
        """See ``Session.import_from``."""
        self._session.ensure_open()
        self._lake.transactions(": import_from() fills a lake of format ducklake. To leave one, export_to().")
        self._lake.ensure_writable(self._lake.schema_ref(self._lake.default_schema))
        text = os.fspath(given(source, (str, os.PathLike), "source", "import_from()"))
        names = None if tables is None else names_in([tables], "tables", "import_from()")
        if _MOTHERDUCK.match(text):
            raise UnsupportedFeature(
                f"{text.partition(':')[0]}: MotherDuck's databases and catalogs cannot be reached from here. "
                "There, COPY its tables to Parquet or to a DuckDB file, and import that"
            )
        if text.lower().startswith("duckdb:") or Path(text).suffix.lower() in _DATABASE:
            if adopt:
                raise UnsupportedFeature(
                    f"{text} is one file with all its tables, which no lake can adopt: leave adopt out."
                )
            return self._import_database(text[7:] if text.lower().startswith("duckdb:") else text, names)
        return self._import_lake(text, names, adopt, options)

    def _import_lake(
        self, root: str, names: Sequence[str] | None, adopt: bool, options: Mapping[str, Any] | None
    ) -> list[Moved]:
        # An adoption hides the source's logs, which is a write.
        with self._connect(root, storage_options=options, read_only=not adopt) as source:
            if adopt:
                # Logs that a killed adoption has hidden come back, so that their tables are listed.
                for ref in logs_of(source.lake.format).all_aside():
                    adopting.settle(source.lake, self._lake, ref)
            if names is None:
                views = {f"{schema}.{view}" for schema in source.lake.schemas() for view in source.lake.views(schema)}
                names = [name for name in source.tables() if name not in views]
                if not names:
                    raise StorageError(f"There is no Delta table in {root}")
            chosen = [source.ref(name) for name in names]
            unfit: list[str] = []
            moving, left_out = [], {}
            for ref in chosen:
                snapshot = source.lake.snapshot(ref)
                types = source.engine.column_types(snapshot)
                each = TableToMove(snapshot, f"{ref.schema}.{ref.name}", types)
                moving.append(each)
                left_out[each.name] = tuple(fitting(each.name, types, self._lake.format, unfit)) + each.left_out()
            if unfit:
                raise UnsupportedFeature(f"{root} cannot be moved as it is: {'; '.join(unfit)}")
            self._refuse_there([each.name for each in moving])
            if adopt:
                return self._adopt(source, moving, left_out)
            readers = (
                (each.name, each.write_spec(), _rows(source, each).reader())
                for each in tracked(moving, "import", "tables")
            )
            return self._copied(readers, left_out)

    def _adopt(
        self, source: TableSession, moving: Sequence[TableToMove], left_out: Mapping[str, tuple[str, ...]]
    ) -> list[Moved]:
        paths = {each.name: adopting.refuse_table(each, self._lake, source.lake) for each in moving}
        refs = {each.name: self._lake.parse(each.name) for each in moving}
        for each in moving:
            adopting.refuse_files(self._session.embedded.cursor(), self._lake, refs[each.name], paths[each.name])
        counts = {each.name: _rows(source, each).count() for each in moving}
        aside = adopting.set_aside(source.lake, self._lake, [each.snapshot.ref for each in moving])
        with aside, self._session.transaction(self._lake.name):
            for each in tracked(moving, "adopt", "tables"):
                ref = refs[each.name]
                self._session.execute(ref, each.create_spec())
                if paths[each.name]:
                    transactions_of(self._lake.format).add_files(
                        ref, paths[each.name], hive=bool(each.snapshot.partition_columns)
                    )
                count = self._session.scan(ref, engine="duckdb").count()
                if count != counts[each.name]:
                    raise StorageError(
                        f"Table {each.name} has {counts[each.name]} rows, and its files {count} to a DuckLake: move it "
                        "by copy"
                    )
        return [Moved(each.name, counts[each.name], adopted=True, left_out=left_out[each.name]) for each in moving]

    def _import_database(self, path: str, names: Sequence[str] | None) -> list[Moved]:
        embedded = self._session.embedded
        with database.attached(embedded.connection, path) as name:
            tables = database.tables_of(embedded.connection, name, path, names, self._lake.format)
            self._refuse_there([table.name for table in tables])
            others = database.others_of(embedded.connection, name) if names is None else []
            rows = (
                (each.name, each.spec, SqlOnCursor(embedded.cursor(), each.query))
                for each in tracked(tables, "import", "tables")
            )
            done = self._copied(rows, {each.name: each.left_out for each in tables})
            return done + ([Moved("", 0, 0, left_out=tuple(others))] if others else [])

    def _copied(
        self, tables: Iterable[tuple[str, WriteSpec, Any]], left_out: Mapping[str, tuple[str, ...]]
    ) -> list[Moved]:
        """Write tables (name, spec, rows) of another lake or database, as one snapshot."""
        with self._session.transaction(self._lake.name):
            commits = {name: self._session.execute(self._lake.parse(name), spec, rows) for name, spec, rows in tables}
        return [Moved(name, commit.rows_inserted or 0, left_out=left_out[name]) for name, commit in commits.items()]

    def _refuse_there(self, names: Sequence[str]) -> None:
        """Raise for tables that the lake has, or whose names it cannot tell apart by case."""
        known: dict[str, str] = {}
        for name in names:
            other = known.setdefault(name.lower(), name)
            if other != name:
                raise UnsupportedFeature(
                    f"{other} and {name} differ in letter case only, which lake {self._lake.root} does not tell "
                    "apart: name one of them by tables="
                )
            wanted = self._lake.parse(name)
            ref, definition = self._lake.look_up(wanted.schema, wanted.name)
            if self._lake.exists(ref) or definition is not None:
                raise CommitConflict(
                    f"{ref} is in lake {self._lake.root} already; drop it, or name the other tables by tables="
                )

    @outcome_of("adoption")
    def adopt_files(self, table: str | TableRef, files: str | Sequence[str]) -> Moved:
        """Make Parquet files part of a DuckLake table where they lie.

        From now on the lake owns them, and its cleanup() will remove them one day. If it fails,
        nothing is adopted.

        Raises:
            InvalidConfig: A file already belongs to a table of the lake.
            SchemaMismatch: A file has other columns, INT96 times, or NULL in a NOT NULL column.
            UnsupportedFeature: A file belongs to a Delta table; use ``import_from()`` with
                ``adopt``. Or the lake is encrypted.
        """
        self._session.ensure_open()
        ref = self._session.ref(table)
        lake = self._session.lakes.of(ref)
        transactions = lake.transactions("; adopt_files() is of tables of a DuckLake.")
        lake.ensure_writable(ref)
        paths = [
            str(Path(path).expanduser().resolve()) if "://" not in path else path
            for path in names_in([files], "files", "adopt_files()")
        ]
        snapshot = lake.snapshot(ref)
        for path in paths:
            around = next((folder for folder in Path(path).parents if (folder / "_delta_log").is_dir()), None)
            if around is not None:
                raise UnsupportedFeature(
                    f"Table {ref}: the file {path} is of the Delta table {around}, whose log says which rows of "
                    f"it hold: import_from({str(around.parent.parent)!r}, adopt=True)"
                )
        if transactions.encrypted:
            raise UnsupportedFeature(f"Table {ref}: its lake is encrypted, and these files are not")
        adopting.refuse_files(self._session.embedded.cursor(), lake, ref, paths)
        adopting.refuse_nulls(
            self._session.embedded.cursor(), ref, paths, [f.name for f in snapshot.schema if not f.nullable]
        )
        before = self._session.scan(ref).count()
        with self._session.transaction(lake.name):
            transactions.add_files(ref, paths, hive=bool(snapshot.partition_columns))
        return Moved(f"{ref.schema}.{ref.name}", self._session.scan(ref).count() - before, adopted=True)

    @outcome_of("export")
    def export_to(
        self, target: str | os.PathLike[str], tables: Any, versions: int, options: Mapping[str, Any] | None
    ) -> list[Moved]:
        """See ``Session.export_to``."""
        self._session.ensure_open()
        text = os.fspath(given(target, (str, os.PathLike), "target", "export_to()"))
        if text.lower().startswith("iceberg:"):
            raise UnsupportedFeature(
                f"{text}: export to Iceberg is not supported. Export to Delta, which Iceberg readers open by "
                "UniForm or Apache XTable"
            )
        if _MOTHERDUCK.match(text):
            raise UnsupportedFeature(f"{text.partition(':')[0]}: MotherDuck cannot be written from here")
        self._lake.transactions(" already; export_to() copies tables of a DuckLake to a Delta lake.")
        if isinstance(versions, bool) or not isinstance(versions, int) or versions < 1:
            raise InvalidConfig(f"versions is {versions!r}; it is how many of the last versions to copy, 1 or more.")
        every = (f"{schema}.{name}" for schema in self._lake.schemas() for name in self._lake.tables(schema))
        names = tuple(every) if tables is None else names_in([tables], "tables", "export_to()")
        if tables is None and not names:
            self._lake.refuse_other_format()
            raise StorageError(f"There is no table in lake {self._lake.root}")
        refs = [self._session.existing(name) for name in names]
        with self._connect(text, storage_options=options) as other:
            return exporting.export(self._session, other, refs, versions)


def _rows(source: TableSession, table: TableToMove) -> Frame:
    return source.scan(table.snapshot.ref, ReadSpec(version=table.snapshot.version))
