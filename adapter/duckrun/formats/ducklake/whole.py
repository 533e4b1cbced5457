"""DuckLake as a whole: snapshots, multi-table transactions, maintenance and adopted files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import duckdb

from duckrun.errors import InvalidConfig, TableNotFound, UnsupportedFeature
from duckrun.formats.commits import NewCommit, TakenBack
from duckrun.formats.ducklake.adopted import add_files, add_written, owners
from duckrun.formats.ducklake.catalog import refuse_delta
from duckrun.formats.ducklake.folders import folder_for, knows_files_of
from duckrun.formats.ducklake.instead import taken_back
from duckrun.formats.ducklake.macros import Macros
from duckrun.formats.ducklake.maintenance import maintain
from duckrun.formats.ducklake.restore import restore_lake
from duckrun.formats.ducklake.state_reader import DuckLakeStates
from duckrun.formats.ducklake.types import refuse_type
from duckrun.formats.ducklake.views import Views
from duckrun.formats.ducklake.work import Work
from duckrun.formats.transactions import CommitFiles, Kept
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.lake_format import CatalogAddress
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.upkeep import UpkeepSpec

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat


class DuckLakeAsWhole:
    """TransactionalLake of one DuckLake."""

    def __init__(self, form: DuckLakeFormat) -> None:
        self._form = form

    @property
    def states(self) -> DuckLakeStates:
        return DuckLakeStates(self._form)

    refuse_type = staticmethod(refuse_type)

    @property
    def encrypted(self) -> bool:
        # Only an attached catalog tells, if the lake's settings do not.
        if self._form.catalog.is_there():
            self._form.catalog.ensure()
        return self._form.catalog.encrypted

    @property
    def address(self) -> CatalogAddress:
        return self._form.catalog.address

    @property
    def data_path(self) -> str:
        return self._form.catalog.data_path

    @property
    def views(self) -> Views:
        return self._form.views

    @property
    def macros(self) -> Macros:
        return self._form.macros

    @property
    def is_open(self) -> bool:
        return self._form.together is not None

    def close(self) -> None:
        self._form.catalog.close()

    def refuse_other_format(self) -> None:
        if not self._form.catalog.is_there():
            refuse_delta(self._form.storage)

    def is_known(self, ref: TableRef) -> bool:
        return self._form.states.is_known(ref)

    def schemas(self) -> list[str]:
        return self._form.schemas()

    def names(self, kind: Literal["table", "view"], schema: str) -> list[str]:
        return self._form.names(kind, schema)

    def make_schema(self, schema: str) -> None:
        self._form.run_alone(f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(schema)}")

    def drop_schema(self, schema: str) -> None:
        self._form.run_alone(f"DROP SCHEMA IF EXISTS {{lake}}.{quote_identifier(schema)}")

    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> AbstractContextManager[Work]:
        return self._form.together_on(cursor, database, lazily=lazily)

    def transaction(
        self, cursor: duckdb.DuckDBPyConnection | None, snapshot: Snapshot | None
    ) -> AbstractContextManager[Work]:
        return self._form.transaction(cursor or self._form.catalog.cursor(create=True), snapshot)

    def define(self, work: Work, ref: TableRef, snapshot: Snapshot | None, new: NewCommit) -> None:
        self._form.define(work, ref, snapshot, new)

    def taken_back(self, work: Work, taken: TakenBack) -> tuple[Snapshot, int]:
        return taken_back(self._form, work, taken)

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Snapshots of the lake, newest first."""
        return self._form.records.snapshots(limit)

    def staging_folder(self, ref: TableRef, snapshot: Snapshot | None) -> str:
        catalog = self._form.catalog
        # Create the catalog first: a new lake refuses a data folder that holds files.
        catalog.ensure(create=True)
        if catalog.encrypted:
            raise UnsupportedFeature(
                f"Table {ref} lies in an encrypted lake, where no file may hold rows as they are, and staged files do",
                remedy="write the rows in one commit",
            )
        return folder_for(catalog, ref, None if snapshot is None else snapshot.format_state).rstrip("/")

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        assert self._form.together is not None, "within a transaction over several tables"
        add_files(self._form.catalog, self._form.together, ref, paths, hive=hive)

    def add_written(self, work: Work, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        add_written(self._form.catalog, work, ref, paths, hive=hive)

    def has_files_in(self, folder: str) -> bool:
        return knows_files_of(self._form.catalog, folder)

    def owners_of(self, paths: Sequence[str]) -> dict[str, str]:
        marks = ", ".join("?" for _ in paths)
        return owners(self._form.catalog, f"place IN ({marks})", paths) if paths else {}

    def owners_below(self, folder: str) -> dict[str, str]:
        return owners(self._form.catalog, "starts_with(place, ?)", [folder.rstrip("/") + "/"])

    def maintain(self, spec: UpkeepSpec, ref: TableRef | None, needed_from: int | None) -> Kept:
        return maintain(self._form, spec, ref, needed_from)

    def restore(self, version: int, note: Mapping[str, Any]) -> list[str]:
        return restore_lake(self._form, version, note)

    def figures(self, ref: TableRef | None) -> tuple[int, int]:
        return self._form.records.figures(None if ref is None else self._form.snapshot(ref).format_state)

    def commit_files(self, snapshot: Snapshot, version: int) -> CommitFiles | None:
        return self._form.records.commit_files(snapshot.format_state, version)

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Set the largest insert that stays in the catalog, for a table or (None) for the lake.

        Raises:
            InvalidConfig: A transaction is open.
        """
        if self._form.together is not None:
            raise InvalidConfig(
                f"inline_rows of lake {self._form.storage.root} cannot change within a transaction: "
                "DuckLake keeps it outside of them. Commit first."
            )
        if ref is not None and not self._form.states.exists(ref):
            raise TableNotFound(f"There is no table {ref}.")
        place = (
            "" if ref is None else f", schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)}"
        )
        with self._form.catalog.locked(), self._form.catalog.errors("inline_rows"):
            self._form.catalog.cursor(create=True).execute(
                f"CALL {quote_identifier(self._form.catalog.alias())}.set_option('data_inlining_row_limit', "
                f"{int(rows)}{place})"
            )
