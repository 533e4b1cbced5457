"""A lake whose catalog, a SQL database, holds the names: of schemas, tables and views."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from typing import Any, NoReturn

from duckrun.errors import InvalidConfig, StorageError, TableNotFound, UnsupportedFeature
from duckrun.formats.ducklake.catalog import refuse_delta
from duckrun.formats.ducklake.ducklake import DuckLakeFormat
from duckrun.lake.lake import Lake, LocationDefinition, NameDefinition, ViewDefinition
from duckrun.sql.names import dotted_names, quote_identifier
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, TABLES, LakeFormat
from duckrun.values.macros import Macro
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
    """The lake of a root, in its format. Raises InvalidConfig, StorageError for a root of another format."""
    made = CatalogLake if form.name == DUCKLAKE else Lake
    return made(root, schema=schema, storage_options=storage_options, read_only=read_only, name=name, form=form)


class CatalogLake(Lake):
    """A DuckLake: the same names and questions as of a lake of folders, answered by its catalog.

    Example::

        lake = open_lake("lake/", form=LakeFormat.of("ducklake"))
        lake.tables("sales")
    """

    format: DuckLakeFormat

    @property
    def address(self) -> str:
        return str(self.format.catalog.address)

    @property
    def for_one_process(self) -> bool:
        return self.format.catalog.address.kind == "duckdb"

    def close(self) -> None:
        self.format.catalog.close()

    # -- names

    def resolve(self, schema: str, name: str) -> TableRef:
        # Where a table is does not depend on a definition, so that the catalog is not asked for one.
        self.check_name(schema)
        self.check_name(name)
        return self._ref(schema, name, None)

    def _ref(self, schema: str, name: str, definition: NameDefinition | None) -> TableRef:
        # No data lies there: the folder, below one that no table has, holds what consumers note beside a table.
        place = f"{self.root}/{TABLES}/{folder_of(schema)}/{folder_of(name)}"
        return TableRef(schema, name, place, format=DUCKLAKE, catalog=self.name)

    def known(self, schema: str, name: str) -> TableRef | None:
        ref = self._ref(schema, name, None)
        return ref if self.format.states.is_known(ref) else None

    def newest(self, schema: str, name: str) -> Snapshot | None:
        self.check_name(schema)
        self.check_name(name)
        if self.format.together is not None:
            return None
        try:
            return self.format.snapshot(self._ref(schema, name, None))
        except TableNotFound:
            return None

    def at(self, location: str | os.PathLike[str], *, schema: str | None = None, name: str | None = None) -> NoReturn:
        raise UnsupportedFeature(
            f"Lake {self.root} is of format ducklake, whose tables have no folders: name one as schema.name, not {os.fspath(location)!r}."
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
        return self.format.schemas()

    def tables(self, schema: str) -> list[str]:
        return self.format.names("table", schema)

    def views(self, schema: str) -> list[str]:
        return self.format.names("view", schema)

    def _like(self, schema: str, name: str) -> list[str]:
        return [each for each in (*self.tables(schema), *self.views(schema)) if each.lower() == name.lower()]

    # -- views, which lie in the catalog

    def _definitions(self, schema: str, like: str | None = None) -> dict[str, NameDefinition]:
        names = [name for name in self.views(schema) if like is None or name.lower() == like.lower()]
        found = {name: self._read_definition(schema, name) for name in names}
        return {name: definition for name, definition in found.items() if definition is not None}

    def _read_definition(self, schema: str, name: str) -> NameDefinition | None:
        found = self.format.views.find(schema, name)
        if found is None:
            return None
        sql, comment = found
        return ViewDefinition(sql, "duckdb", (), tuple(sorted(self._named_in(sql))), None, comment)

    def _named_in(self, sql: str) -> set[str]:
        """The tables and views of this lake that a query names with their schema."""
        chains = {chain[-2:] for chain in dotted_names(sql) if len(chain) > 1}
        known = {schema for schema, _ in chains} & {*self.schemas()}
        names = {schema: {*self.tables(schema), *self.views(schema)} for schema in known}
        return {f"{schema}.{name}" for schema, name in chains if name in names.get(schema, ())}

    def put_definition(self, ref: TableRef, definition: NameDefinition) -> None:
        """Make a view of the catalog. Raises UnsupportedFeature for what a catalog has not."""
        self.ensure_writable(ref)
        if isinstance(definition, LocationDefinition):
            raise UnsupportedFeature(
                f"Table {ref} cannot have a location of its own: the catalog of a DuckLake says where its files lie."
            )
        if definition.dialect != "duckdb":
            raise UnsupportedFeature(
                f"View {ref} is written in the dialect {definition.dialect}, and a DuckLake holds views of DuckDB's SQL: write it in that, or make it a table."
            )
        if self.format.views.is_as(ref, definition.sql, definition.comment):
            return  # a view that says so already makes no snapshot
        with self.format.locked(ref):
            self.format.views.put(ref, definition.sql, definition.comment)

    def remove_definition(self, ref: TableRef) -> None:
        if self.format.views.find(ref.schema, ref.name) is not None:
            self.ensure_writable(ref)
            with self.format.locked(ref):
                self.format.views.drop(ref)

    # -- macros, which lie there too

    def macros(self) -> Mapping[tuple[str, str], Macro]:
        return self.format.macros.all()

    def put_macro(self, macro: Macro) -> None:
        ref = self.schema_ref(macro.schema)
        self.ensure_writable(ref)
        with self.format.locked(ref):
            self.format.macros.put(macro)

    def drop_macro(self, schema: TableRef, name: str) -> None:
        self.ensure_writable(schema)
        with self.format.locked(schema):
            self.format.macros.drop(schema.schema, name)

    # -- writing

    def ensure_writable(self, ref: TableRef) -> None:
        super().ensure_writable(ref)
        if self.storage.is_local and self.storage.list_names("_delta_log") != ([], []):
            raise StorageError(f"{self.root} is a Delta table, not the root of a lake.")

    def refuse_other_format(self) -> None:
        if not self.format.catalog.is_there():
            refuse_delta(self.storage)

    def rename(self, ref: TableRef, new: TableRef) -> None:
        self.ensure_writable(ref)
        taken = ", ".join(f"{new.schema}.{name}" for name in self._like(new.schema, new.name))
        if taken and new.name.lower() != ref.name.lower():
            raise InvalidConfig(
                f"{ref} cannot be renamed to {new}: {taken} is there. Drop it first, or choose another name."
            )
        view = self.definition(ref)
        if not isinstance(view, ViewDefinition):
            self.format.rename(ref, new)
            if self.format.together is None:  # else it may be rolled back
                self._move_notes(ref, new)
            return
        if ref.schema != new.schema:
            raise UnsupportedFeature(
                f"View {ref} cannot move to schema {new.schema}, where its bare names are others: create it there."
            )
        with self.format.locked(ref):
            self.format.views.rename(ref, new, view.sql, view.comment)

    def drop_table(self, ref: TableRef) -> None:
        super().drop_table(ref)
        if self.format.together is None:
            self._remove_notes(ref)

    def _move_notes(self, ref: TableRef, new: TableRef) -> None:
        """Take what consumers of changes noted beside a table to where they look for it now."""
        self._remove_notes(new)
        for key in list(self.storage.keys(ref.location)):
            note = self.storage.read_at(ref.location, key["path"])
            if note is not None:
                self.storage.put_new(new.location, key["path"], note)
        self._remove_notes(ref)

    def _remove_notes(self, ref: TableRef) -> None:
        """Forget what consumers of changes noted beside a table."""
        self.storage.remove_below(ref.location, [key["path"] for key in self.storage.keys(ref.location)])

    def make_schema(self, schema: str) -> None:
        """Make a schema without tables."""
        with self.format.locked(self.schema_ref(schema)):
            self.format.run_alone(f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(schema)}")

    def others_in(self, schema: str, tables: Set[str]) -> Iterator[str]:
        """Nothing: the catalog knows all that a schema has."""
        return iter(())

    def remove_schema(self, schema: str) -> None:
        """Remove a schema that has no tables; one that has some, which came meanwhile, stays."""
        with self.format.locked(self.schema_ref(schema)):
            if self.tables(schema) or self.views(schema):
                return
            self.format.run_alone(f"DROP SCHEMA IF EXISTS {{lake}}.{quote_identifier(schema)}")
