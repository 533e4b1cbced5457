"""DuckLake as a whole: snapshots, multi-table transactions, maintenance and adopted files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import duckdb

from duckrun.errors import InvalidConfig, SchemaMismatch, TableNotFound, UnsupportedFeature, VersionNotReadable
from duckrun.formats.commits import NewCommit, TakenBack
from duckrun.formats.ducklake.catalog.catalog import INLINE_LIMIT, refuse_delta, set_option
from duckrun.formats.ducklake.commits.commits import Commits
from duckrun.formats.ducklake.commits.maintenance import maintain
from duckrun.formats.ducklake.commits.restore import LakeRestore, taken_back
from duckrun.formats.ducklake.commits.stored import Macros, Views
from duckrun.formats.ducklake.commits.work import Work
from duckrun.formats.ducklake.definition.types import refuse_type
from duckrun.formats.ducklake.state.records import Records
from duckrun.formats.ducklake.state.state import HIDDEN, TableState, state_of
from duckrun.formats.ducklake.state.state_reader import DuckLakeStates
from duckrun.formats.transactions import CommitFiles, Kept
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.upkeep import UpkeepSpec


class DuckLakeAsWhole:
    """TransactionalLake of one DuckLake."""

    def __init__(
        self,
        commits: Commits,
        records: Records,
        find: Callable[..., Snapshot],
        of_state: Callable[[TableRef, TableState], Snapshot],
    ) -> None:
        self._commits, self._records, self._find, self._of_state = commits, records, find, of_state
        self._transactor, self._catalog, self._states = commits.transactor, commits.catalog, commits.states
        self.views, self.macros = Views(commits.transactor), Macros(commits.transactor)
        self.address, self.data_path = commits.catalog.address, commits.catalog.data_path

    @property
    def states(self) -> DuckLakeStates:
        return DuckLakeStates(self._states, self._of_state, lambda: self._transactor.together)

    def refuse_type(self, column: str, kind: Any, *, inside: bool = False) -> None:
        refuse_type(column, kind, inside=inside)

    @property
    def encrypted(self) -> bool:
        # Only an attached catalog tells, if the lake's settings do not.
        if self._catalog.is_there():
            self._catalog.ensure()
        return self._catalog.encrypted

    @property
    def is_open(self) -> bool:
        return self._transactor.together is not None

    def close(self) -> None:
        self._catalog.close()

    def refuse_other_format(self) -> None:
        if not self._catalog.is_there():
            refuse_delta(self._catalog.storage)

    def is_known(self, ref: TableRef) -> bool:
        return self._states.is_known(ref)

    def schemas(self) -> list[str]:
        work = self._transactor.together
        if work is None:
            return self._states.schemas()
        listed = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? ORDER BY 1"
        return [name for (name,) in work.ask(listed, [work.alias]) if name != HIDDEN]

    def names(self, kind: Literal["table", "view"], schema: str) -> list[str]:
        work = self._transactor.together
        if work is None:
            return self._states.names(kind, schema)
        listed = f"SELECT {kind}_name FROM duckdb_{kind}s() WHERE database_name = ? AND schema_name = ? ORDER BY 1"
        return [name for (name,) in work.ask(listed, [work.alias, schema])]

    def make_schema(self, schema: str) -> None:
        self._transactor.run_alone(f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(schema)}")

    def drop_schema(self, schema: str) -> None:
        self._transactor.run_alone(f"DROP SCHEMA IF EXISTS {{lake}}.{quote_identifier(schema)}")

    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> AbstractContextManager[Work]:
        return self._transactor.together_on(cursor, database, lazily=lazily)

    def transaction(
        self, cursor: duckdb.DuckDBPyConnection | None, snapshot: Snapshot | None
    ) -> AbstractContextManager[Work]:
        return self._transactor.transaction(cursor or self._catalog.cursor(create=True), snapshot)

    def define(self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        self._commits.define(work, ref, snapshot, new)

    def taken_back(self, work: Work, taken: TakenBack) -> tuple[Snapshot, int]:
        return taken_back(work, taken)

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Snapshots of the lake, newest first."""
        return self._records.snapshots(limit)

    def staging_folder(self, ref: TableRef, snapshot: Snapshot | None) -> str:
        catalog = self._catalog
        # Create the catalog first: a new lake refuses a data folder that holds files.
        catalog.ensure(create=True)
        if catalog.encrypted:
            raise UnsupportedFeature(
                f"Table {ref} lies in an encrypted lake, where no file may hold rows as they are, and staged files do",
                remedy="write the rows in one commit",
            )
        if snapshot is None:  # the folder may not exist yet
            return f"{self.data_path}{ref.schema}/{ref.name}"
        return catalog.table_folder(state_of(snapshot).id).rstrip("/")

    # -- files of others

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        work = self._transactor.together
        assert work is not None, "within a transaction over several tables"
        try:
            self._add(work, ref, paths, hive=hive, allow_missing=True)
        except duckdb.Error as error:
            why = self._catalog.redacted(error).splitlines()[0].removeprefix("Invalid Input Error: ")
            raise SchemaMismatch(f"Table {ref}: {why}") from error
        work.note(ref, {"mode": "adopt", "engine": "duckdb", "writer": "ducklake", "files": len(paths)})
        work.changed = True

    def add_written(self, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        try:
            self._add(work, ref, paths, hive=hive, allow_missing=False)
        except duckdb.InvalidInputException as error:
            raise SchemaMismatch(self._catalog.redacted(error).splitlines()[0]) from error

    def _add(self, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool, allow_missing: bool) -> None:
        """Add files in place. A column that a file lacks is NULL with ``allow_missing``."""
        work.execute(
            f"CALL ducklake_add_data_files({quote_literal(work.alias)}, {quote_literal(ref.name)}, "
            f"[{', '.join(map(quote_literal, paths))}], schema => {quote_literal(ref.schema)}, "
            f"hive_partitioning => {str(hive).lower()}, allow_missing => {str(allow_missing).lower()})"
        )
        work.began[ref] = None

    def has_files_in(self, folder: str) -> bool:
        name = quote_literal(f"{folder.rstrip('/').rpartition('/')[2]}/")
        files = self._catalog.meta("ducklake_data_file")
        return bool(self._catalog.ask(f"SELECT 1 FROM {files} WHERE contains(path, {name}) LIMIT 1"))

    def owners_of(self, paths: Sequence[str]) -> dict[str, str]:
        marks = ", ".join("?" for _ in paths)
        return self._owners(f"place IN ({marks})", paths) if paths else {}

    def owners_below(self, folder: str) -> dict[str, str]:
        return self._owners("starts_with(place, ?)", [folder.rstrip("/") + "/"])

    def _owners(self, condition: str, values: Sequence[str]) -> dict[str, str]:
        """Return the lake's files, of any snapshot, whose path ``place`` meets a condition."""
        meta = self._catalog.meta
        place = (
            f"CASE WHEN f.path_is_relative THEN {quote_literal(self.data_path)} || s.path || t.path || f.path "
            "ELSE f.path END"
        )
        rows = self._catalog.ask(
            f"SELECT place, any_value(owner) FROM (SELECT {place} AS place, s.schema_name || '.' || t.table_name AS "
            f"owner FROM {meta('ducklake_data_file')} AS f JOIN {meta('ducklake_table')} AS t USING (table_id) "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id)) WHERE {condition} GROUP BY place",
            values,
        )
        return dict(rows)

    # -- upkeep

    def maintain(self, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
        return maintain(self._transactor, spec, ref, needed_from)

    def restore(self, version: int, note: Mapping[str, Any]) -> list[str]:
        known = [row["snapshot_id"] for row in self._records.snapshots()]  # newest first
        if version not in known:
            why = (
                f"it has expired, and the oldest is {known[-1]}" if version < known[0] else f"the newest is {known[0]}"
            )
            raise VersionNotReadable(f"Lake {self._catalog.storage.root} has no snapshot {version}: {why}")
        return LakeRestore(self._commits, self.views, self.macros, self._find).run(version, note)

    def figures(self, ref: TableRef | None) -> tuple[int, int]:
        return self._records.figures(None if ref is None else state_of(self._find(ref)))

    def commit_files(self, snapshot: Snapshot, version: int) -> CommitFiles | None:
        return self._records.commit_files(state_of(snapshot), version)

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Set the largest insert that stays in the catalog, for a table or (None) for the lake.

        Raises:
            InvalidConfig: A transaction is open.
        """
        if self._transactor.together is not None:
            raise InvalidConfig(
                f"inline_rows of lake {self._catalog.storage.root} cannot change within a transaction: "
                "DuckLake keeps it outside of them. Commit first."
            )
        if ref is not None and not self._states.exists(ref):
            raise TableNotFound(f"There is no table {ref}.")
        catalog, place = self._catalog, (None, None) if ref is None else (ref.schema, ref.name)
        with catalog.locked(), catalog.errors("inline_rows"):
            set_option(catalog.cursor(create=True), catalog.alias(), INLINE_LIMIT, int(rows), *place)
