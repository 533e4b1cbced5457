"""A lake whose names of schemas, tables and views come from a catalog, a SQL database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from typing import Any, NoReturn

from duckrun.errors import StorageError, TableNotFound, UnsupportedFeature
from duckrun.formats.format import transactions_of
from duckrun.formats.transactions import TransactionalLake
from duckrun.lake.lake import Lake, LocationDefinition, NameDefinition, ViewDefinition, refuse_rename
from duckrun.sql.plain_names import dotted_names
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, TABLES, LakeFormat
from duckrun.values.names import folder_of
from duckrun.values.snapshot import Snapshot, TableRef


def open_lake(
    root: str | os.PathLike[str],
    *,
    schema: str = "main",
    storage_options: Mapping[str, Any] | None = None,
    read_only: bool = False,
    name: str | None = None,
    form: LakeFormat = DELTA_LAKE,
) -> Lake:
    """Open the lake of a root, in its format.

    Raises:
        InvalidConfig: An argument is invalid.
        StorageError: The root has another format.
    """
    lake_class = CatalogLake if form.name == DUCKLAKE else Lake
    return lake_class(root, schema=schema, storage_options=storage_options, read_only=read_only, name=name, form=form)


class CatalogLake(Lake):
    """A DuckLake: the interface of Lake, answered by its catalog.

    Example::

        lake = open_lake("lake/", form=LakeFormat.of("ducklake"))
        lake.tables("sales")
    """

    has_catalog = True

    @property
    def catalog(self) -> TransactionalLake:
        """The lake's role: its names, views and macros, and its transactions."""
        return transactions_of(self.format)

    @property
    def address(self) -> str:
        return str(self.catalog.address)

    @property
    def for_one_process(self) -> bool:
        return self.catalog.address.kind == "duckdb"

    def close(self) -> None:
        self.catalog.close()

    # -- names

    def resolve(self, schema: str, name: str) -> TableRef:
        # The location does not depend on a definition, so the catalog is not queried.
        self.check_name(schema, name)
        return self._ref(schema, name, None)

    def _ref(self, schema: str, name: str, definition: NameDefinition | None) -> TableRef:
        # No data lies there: the folder only holds the notes of change consumers.
        place = f"{self.root}/{TABLES}/{folder_of(schema)}/{folder_of(name)}"
        return TableRef(schema, name, place, format=DUCKLAKE, catalog=self.name)

    def known(self, schema: str, name: str) -> TableRef | None:
        ref = self._ref(schema, name, None)
        return ref if self.catalog.is_known(ref) else None

    def newest(self, schema: str, name: str) -> Snapshot | None:
        self.check_name(schema, name)
        if self.catalog.is_open:
            return None
        try:
            return self.format.snapshot(self._ref(schema, name, None))
        except TableNotFound:
            return None

    def at(self, location: str | os.PathLike[str], *, schema: str | None = None, name: str | None = None) -> NoReturn:
        raise UnsupportedFeature(
            f"Lake {self.root} is of format ducklake, whose tables have no folders: name one as "
            f"schema.name, not {os.fspath(location)!r}."
        )

    def output_at(self, location: str) -> TableRef | None:
        within = self.within(location)
        return None if within is None else within[0]

    def within(self, location: str) -> tuple[TableRef, NameDefinition | None] | None:
        inside = location.removeprefix(f"{self.root}/{TABLES}/").split("/")
        if len(inside) == 2 and location.startswith(f"{self.root}/{TABLES}/"):
            return self.find(*inside)
        return None

    # -- discovery

    def schemas(self) -> list[str]:
        return self.catalog.schemas()

    def tables(self, schema: str) -> list[str]:
        return self.catalog.names("table", schema)

    def views(self, schema: str) -> list[str]:
        return self.catalog.names("view", schema)

    def _like(self, schema: str, name: str) -> list[str]:
        return [each for each in (*self.tables(schema), *self.views(schema)) if each.lower() == name.lower()]

    # -- views, stored in the catalog

    def _defined(self, schema: str) -> list[str]:
        return self.views(schema)

    def _read_definition(self, schema: str, name: str) -> NameDefinition | None:
        view = self.catalog.views.find(schema, name)
        if view is None:
            return None
        sql, comment = view
        return ViewDefinition(sql, "duckdb", (), tuple(sorted(self._named_in(sql))), None, comment)

    def _named_in(self, sql: str) -> set[str]:
        """Return the tables and views of this lake that a query names with their schema."""
        chains = {chain[-2:] for chain in dotted_names(sql) if len(chain) > 1}
        known = {schema for schema, _ in chains} & {*self.schemas()}
        names = {schema: {*self.tables(schema), *self.views(schema)} for schema in known}
        return {f"{schema}.{name}" for schema, name in chains if name in names.get(schema, ())}

    def put_definition(self, ref: TableRef, definition: NameDefinition) -> None:
        """Create or replace a view of the catalog.

        Raises UnsupportedFeature for other definitions.
        """
        self.ensure_writable(ref)
        if isinstance(definition, LocationDefinition):
            raise UnsupportedFeature(
                f"Table {ref} cannot have a location of its own: the catalog of a DuckLake says where its files lie."
            )
        if definition.dialect != "duckdb":
            raise UnsupportedFeature(
                f"View {ref} is written in the dialect {definition.dialect}, and a DuckLake holds "
                "views of DuckDB's SQL: write it in that, or make it a table."
            )
        if self.catalog.views.is_as(ref, definition.sql, definition.comment):
            return  # a view that says so already makes no snapshot
        with self.format.locked(ref):
            self.catalog.views.put(ref, definition.sql, definition.comment)

    def remove_definition(self, ref: TableRef) -> None:
        if self.catalog.views.find(ref.schema, ref.name) is not None:
            self.ensure_writable(ref)
            with self.format.locked(ref):
                self.catalog.views.drop(ref)

    # -- writing

    def ensure_writable(self, ref: TableRef) -> None:
        super().ensure_writable(ref)
        if self.storage.is_local and self.storage.list_names("_delta_log") != ([], []):
            raise StorageError(f"{self.root} is a Delta table, not the root of a lake.")

    def refuse_other_format(self) -> None:
        self.catalog.refuse_other_format()

    def rename(self, ref: TableRef, new: TableRef) -> None:
        self.ensure_writable(ref)
        is_other = new.name.lower() != ref.name.lower()
        taken = [f"{new.schema}.{name}" for name in self._like(new.schema, new.name)] if is_other else []
        view = self.definition(ref)
        refuse_rename(ref, new, view, taken)
        if not isinstance(view, ViewDefinition):
            self.format.rename(ref, new)
            if not self.catalog.is_open:  # else it may be rolled back
                self._move_notes(ref, new)
            return
        with self.format.locked(ref):
            self.catalog.views.rename(ref, new, view.sql, view.comment)

    def drop_table(self, ref: TableRef, *, force: bool = False) -> None:
        super().drop_table(ref, force=force)
        if not self.catalog.is_open:
            self._remove_notes(ref)

    def _move_notes(self, ref: TableRef, new: TableRef) -> None:
        """Move the notes of change consumers to the folder of a table's new name."""
        self._remove_notes(new)
        for key in list(self.storage.keys(ref.location)):
            note = self.storage.read_at(ref.location, key["path"])
            if note is not None:
                self.storage.put_new(new.location, key["path"], note)
        self._remove_notes(ref)

    def _remove_notes(self, ref: TableRef) -> None:
        """Remove the notes of change consumers beside a table."""
        self.storage.remove_below(ref.location, [key["path"] for key in self.storage.keys(ref.location)])

    def make_schema(self, schema: str) -> None:
        """Create a schema without tables."""
        with self.format.locked(self.schema_ref(schema)):
            self.catalog.make_schema(schema)

    def others_in(self, schema: str, tables: Set[str]) -> Iterator[str]:
        """Yield nothing: the catalog knows everything in a schema."""
        return iter(())

    def remove_schema(self, schema: str) -> None:
        """Remove a schema without tables; one that meanwhile has some stays."""
        with self.format.locked(self.schema_ref(schema)):
            if self.tables(schema) or self.views(schema):
                return
            self.catalog.drop_schema(schema)
