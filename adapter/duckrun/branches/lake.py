"""A lake as a branch sees it: main's names and tables, with those of the branch in their place."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from duckrun.branches import registry
from duckrun.errors import CommitConflict, InvalidConfig, ReadOnlyLake, UnsupportedFeature
from duckrun.formats.branches import BranchTables
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake, NameDefinition
from duckrun.values.branches import Branch, check_branch_name
from duckrun.values.lake_format import DELTA_LAKE, LakeFormat
from duckrun.values.names import folder_of
from duckrun.values.snapshot import DELTA, TableRef


def open_branch(
    root: str | os.PathLike[str],
    branch: str | None,
    *,
    at: str | None = None,
    schema: str = "main",
    storage_options: Mapping[str, Any] | None = None,
    read_only: bool = False,
    name: str | None = None,
    form: LakeFormat = DELTA_LAKE,
) -> Lake:
    """Open a branch of a lake, which is created at its first use; without one the lake itself.

    Raises:
        InvalidConfig: The name cannot name a branch.
        ReadOnlyLake: The lake is opened read-only.
        UnsupportedFeature: The lake has format ducklake.
    """
    if branch is None:
        return open_lake(
            root, schema=schema, storage_options=storage_options, read_only=read_only, name=name, form=form
        )
    check_branch_name(branch)
    if form.name != DELTA:
        raise UnsupportedFeature(
            f"branch {branch!r}: a lake of format {form.name} has no branches, which are lines of Delta logs",
            remedy="its transactions publish several tables together: s.transaction(), or publish: together in dbt",
        )
    if read_only:
        raise ReadOnlyLake(
            f"branch {branch!r}: lake {os.fspath(root)} is opened read-only, and a branch is written: leave one of the "
            "two out"
        )
    return BranchLake(root, branch, at=at, schema=schema, storage_options=storage_options)


def refuse_spark_names(lake: Lake) -> None:
    """Refuse names of a branch's tables in Spark's catalog.

    Raises:
        UnsupportedFeature: The lake is a branch.
    """
    if lake.branch_name is not None:
        raise UnsupportedFeature(
            f"Branch {lake.branch_name} of lake {lake.root}: a name in Spark's catalog stands for a folder, which has "
            "main's log, so PySpark would write to main by it",
            remedy="Read and write the branch by a session on Spark: duckrun.session('spark'), session.table(…)",
        )


class BranchLake(Lake):
    """A lake in a branch: the interface of Lake, where writes go to the branch.

    Example::

        lake = open_branch("lake/", "pr-42")
        lake.tables("sales")
    """

    format: BranchTables

    def __init__(
        self,
        root: str | os.PathLike[str],
        branch: str,
        *,
        at: str | None = None,
        schema: str = "main",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.branch_name = self._name = branch
        self.branch_at = at
        super().__init__(root, schema=schema, storage_options=storage_options)

    def __repr__(self) -> str:
        return f"BranchLake({self.root!r}, {self.branch_name!r})"

    @cached_property
    def main(self) -> Lake:
        """The lake itself."""
        return Lake(self.root, schema=self.default_schema, storage_options=self.storage_options)

    @cached_property
    def branch(self) -> Branch:
        """The branch. Its first use creates it.

        Raises:
            InvalidConfig: The branch reads another time than this session wants.
        """
        branch = registry.create(self._main, self._name, self.branch_at)
        if self.branch_at is not None and branch.at != self.branch_at:
            time = "now" if branch.at is None else f"as of {branch.at}"
            raise InvalidConfig(
                f"Branch {branch.name} exists, and reads tables without a fork {time}, not as of {self.branch_at}: "
                "leave branch_at out, or take another branch."
            )
        return branch

    def branch_suffix(self, ref: TableRef, version: int) -> str:
        line = self.format.line(ref)
        return "" if line is None or version <= line.base else f".{self.branch.folder}"

    def is_of_main(self, ref: TableRef) -> bool:
        return self.format.line(ref) is None

    def _open_format(self, form: LakeFormat, *, read_only: bool) -> BranchTables:
        self._main = self.storage
        opened = registry.open_tables(self._main, lambda: self.branch)
        self.storage = opened.storage  # notes of consumers beside tables are the branch's, too
        return opened

    def close(self) -> None:
        super().close()
        self.format.close()

    # -- definitions: those of the branch, then main's

    def _own_definition_path(self, schema: str, name: str) -> str:
        return f"{self.branch.home}/definitions/{folder_of(schema)}/{folder_of(name)}.json"

    def _read_definition(self, schema: str, name: str) -> NameDefinition | None:
        path = self._own_definition_path(schema, name)
        raw = self.storage.read(path)
        if raw is None:
            return super()._read_definition(schema, name)
        return None if raw == registry.DROPPED else self._parsed(raw, path)

    def _put_definition(self, ref: TableRef, body: bytes) -> None:
        path = self._own_definition_path(ref.schema, ref.name)
        objects = {path: body, **registry.claim(self.branch, ref, self.by)}
        if self.storage.read(path) is None:  # a publish compares main's definition then with that of now
            before = self._main.read(self._definition_path(ref.schema, ref.name)) or b""
            objects = {registry.base_path(self.branch, path): before, **objects}
        self._write(objects)

    def _write(self, objects: Mapping[str, bytes | None]) -> None:
        registry.write(self._main, self.branch, objects)

    def claim(self, ref: TableRef) -> None:
        self._write(registry.claim(self.branch, ref, self.by))

    def drop_table(self, ref: TableRef, *, force: bool = False) -> None:
        super().drop_table(ref, force=force)
        with suppress(CommitConflict):  # of a publish that has the drop
            self.claim(ref)

    def remove_definition(self, ref: TableRef) -> None:
        if self._read_definition(ref.schema, ref.name) is None:
            return
        self.ensure_writable(ref)
        if super()._read_definition(ref.schema, ref.name) is not None:
            self._put_definition(ref, registry.DROPPED)
        else:
            self._write({self._own_definition_path(ref.schema, ref.name): None})

    def _defined(self, schema: str) -> list[str]:
        files = self.storage.list_names(f"{self.branch.home}/definitions/{folder_of(schema)}")[1]
        local = self._named(file.removesuffix(".json") for file in files if file.endswith(".json"))
        return sorted({*super()._defined(schema), *local})

    def _definitions_in(self, folders: list[str], schema: str, like: str | None = None) -> dict[str, NameDefinition]:
        return self._definitions(schema, like)  # the branch's lie in none of these folders

    # -- schemas

    def schemas(self) -> list[str]:
        home = self.branch.home
        folders = {each for part in ("schemas", "definitions") for each in self.storage.list_names(f"{home}/{part}")[0]}
        return sorted({*super().schemas(), *self._named(folders)})

    def make_schema(self, schema: str) -> None:
        if schema not in super().schemas():
            self._write({self._schema_path(schema): json.dumps(schema).encode()})

    def remove_schema(self, schema: str) -> None:
        if schema in super().schemas():
            raise UnsupportedFeature(
                f"Schema {schema} is main's, and branch {self.branch_name} cannot drop it",
                remedy="drop its tables and views here; drop the schema in the lake itself",
            )
        self._write({self._schema_path(schema): None})

    def _schema_path(self, schema: str) -> str:
        return f"{self.branch.home}/schemas/{folder_of(schema)}/schema.json"
