"""A DuckLake as a whole: its snapshots, transactions over several tables, upkeep, and the files that it takes of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import duckdb

from duckrun.errors import InvalidConfig, TableNotFound, UnsupportedFeature
from duckrun.formats.ducklake.adopted import add_files, owners
from duckrun.formats.ducklake.folders import folder_for
from duckrun.formats.ducklake.maintenance import maintain
from duckrun.formats.ducklake.restore import restore_lake
from duckrun.formats.ducklake.work import Work
from duckrun.formats.lakes import CommitFiles, Kept
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.upkeep import UpkeepSpec

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat


class DuckLakeAsWhole:
    """One lake, as WholeLake says."""

    def __init__(self, form: DuckLakeFormat) -> None:
        self._form = form

    @property
    def encrypted(self) -> bool:
        return self._form.catalog.encrypted

    def together_on(
        self, cursor: duckdb.DuckDBPyConnection, database: str | None = None, *, lazily: bool = False
    ) -> AbstractContextManager[Work]:
        return self._form.together_on(cursor, database, lazily=lazily)

    def snapshots(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The snapshots of the lake, newest first."""
        return self._form.records.snapshots(limit)

    def staging_folder(self, ref: TableRef, snapshot: Snapshot | None) -> str:
        catalog = self._form.catalog
        catalog.ensure(create=True)  # a data folder that holds files is refused as that of a new lake
        if catalog.encrypted:
            raise UnsupportedFeature(
                f"Table {ref} lies in an encrypted lake, where no file may hold rows as they are, and staged files do. Nothing was written; write the "
                "rows in one commit."
            )
        return folder_for(catalog, ref, None if snapshot is None else snapshot.own).rstrip("/")

    def add_files(self, ref: TableRef, paths: Sequence[str], *, hive: bool) -> None:
        assert self._form.together is not None, "within a transaction over several tables"
        add_files(self._form.catalog, self._form.together, ref, paths, hive=hive)

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
        return self._form.records.figures(None if ref is None else self._form.snapshot(ref).own)

    def commit_files(self, snapshot: Snapshot, version: int) -> CommitFiles | None:
        return self._form.records.commit_files(snapshot.own, version)

    def set_inline_rows(self, rows: int, ref: TableRef | None) -> None:
        """Up to how many rows of an insert lie in the catalog, for a table or the lake. Raises InvalidConfig within a transaction."""
        if self._form.together is not None:
            raise InvalidConfig(
                f"inline_rows of lake {self._form.storage.root} cannot change within a transaction: DuckLake keeps it outside of them. Commit first."
            )
        if ref is not None and not self._form.states.exists(ref):
            raise TableNotFound(f"There is no table {ref}.")
        place = (
            "" if ref is None else f", schema => {quote_literal(ref.schema)}, table_name => {quote_literal(ref.name)}"
        )
        with self._form.catalog.locked(), self._form.catalog.errors("inline_rows"):
            self._form.catalog.cursor(create=True).execute(
                f"CALL {quote_identifier(self._form.catalog.alias())}.set_option('data_inlining_row_limit', {int(rows)}{place})"
            )
