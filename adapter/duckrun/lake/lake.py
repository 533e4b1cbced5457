"""A lake: a root folder, its schemas and tables, found by listing, and their definition files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields
from itertools import compress
from typing import Any

from duckrun.errors import InvalidConfig, ReadOnlyLake, StorageError, TableNotFound, UnsupportedFeature
from duckrun.formats.factory import format_of
from duckrun.formats.format import Format
from duckrun.formats.transactions import TransactionalLake
from duckrun.lake import schema_folders
from duckrun.storage.parallel import at_once
from duckrun.storage.roots import normalise_root, refuse_location
from duckrun.storage.storage import Storage
from duckrun.values.checked import checked
from duckrun.values.frozen import frozen
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE_MARK, LakeFormat
from duckrun.values.macros import Macro
from duckrun.values.names import RESERVED, folder_of, name_of, why_no_name
from duckrun.values.nearest import nearest
from duckrun.values.records import built, damaged, newer, parsed
from duckrun.values.snapshot import Snapshot, TableRef

__all__ = ["Lake", "LocationDefinition", "TableRef", "ViewDefinition"]

INFORMATION = "information_schema"
"""The schema of every lake that lists its contents. No folder has this name."""


@frozen
class ViewDefinition:
    """A persisted view: its SQL and the columns and tables behind it."""

    sql: str
    dialect: str = "duckdb"
    columns: tuple[tuple[str, str], ...] = ()
    """Pairs of name and type."""
    reads: tuple[str, ...] = ()
    """Tables that the view reads."""
    catalog: str | None = None
    """Database name under which the SQL may name this lake's own tables."""
    comment: str | None = None
    column_comments: tuple[tuple[str, str], ...] = ()


@frozen
class LocationDefinition:
    """A table with a folder other than ``<root>/<schema>/<name>``."""

    location: str


NameDefinition = ViewDefinition | LocationDefinition

_LOG = "_delta_log"
_FILES = {"csv": "read_csv", "tsv": "read_csv", "parquet": "read_parquet", "json": "read_json", "ndjson": "read_json"}


def _reading(name: str) -> str:
    """Return how SQL reads a name that is a file's; empty for other names.

    >>> _reading("sales/orders.csv"), _reading("orders")
    ("Read a file by read_csv('sales/orders.csv')", '')
    """
    function = _FILES.get(name.removesuffix(".gz").rpartition(".")[2].lower())
    return f"Read a file by {function}({name!r})" if function and "." in name else ""


class Lake:
    """Names and tables of one root, with one set of credentials.

    Example::

        lake = Lake("lake/")
        lake.snapshot(lake.parse("sales.orders")).version
    """

    @checked
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        schema: str = "main",
        storage_options: Mapping[str, Any] | None = None,
        read_only: bool = False,
        name: str | None = None,
        form: LakeFormat = DELTA_LAKE,
    ) -> None:
        self.storage = Storage(root, storage_options)
        self.storage_options = storage_options
        self.root = self.storage.root
        self.default_schema = schema
        self.read_only = read_only
        self.name = name
        """The name by which a session has attached this lake."""
        self._spellings: dict[tuple[str, str], tuple[str, str]] = {}
        self.in_transaction = False
        self.by: tuple[str, str] | None = None
        """Step of an orchestrator and its attempt; what they write in a branch names them."""
        self.waits_for: str | None = None
        """Lake of the session's open transaction, which blocks writes to this one."""
        self.format: Format = self._open_format(form, read_only=read_only)

    branch_name: str | None = None
    """Name of the branch that is read and written; None for the lake itself."""

    def is_of_main(self, ref: TableRef) -> bool:
        """True if a table is read from the lake itself, and not from a branch."""
        return True

    def _open_format(self, form: LakeFormat, *, read_only: bool) -> Format:
        """Return the format object of the lake's tables."""
        return format_of(self.storage, form, read_only=read_only)

    def transactions(self, why: str) -> TransactionalLake:
        """Return the transactions of a lake whose format has them.

        Args:
            why: What the operation needs instead; it follows the lake's format in the message.

        Raises:
            UnsupportedFeature: The lake has format delta.
        """
        if self.format.transactions is None:
            raise UnsupportedFeature(f"Lake {self.root} is of format {self.format.name}{why}")
        return self.format.transactions

    has_catalog = False
    """True if a catalog stores the names, views and macros, and tables have no folders to open."""

    @property
    def address(self) -> str:
        """Place of the table names, without a password: the root, or the address of a catalog."""
        return self.root

    @property
    def for_one_process(self) -> bool:
        """True if only one process at a time may open the lake."""
        return False

    def branch_suffix(self, ref: TableRef, version: int) -> str:
        """Return the id of the branch that has a version of a table, after a dot; empty for main.

        It tells versions of the same number in main and in branches apart.
        """
        return ""

    def __repr__(self) -> str:
        return f"Lake({self.root!r})"

    def close(self) -> None:
        """Close resources for metadata; the next use reopens them."""

    # -- names

    def resolve(self, schema: str, name: str) -> TableRef:
        """Return the ref of a name, existing or not.

        Raises InvalidConfig for a name that leaves the root.
        """
        return self.find(schema, name)[0]

    def find(self, schema: str, name: str) -> tuple[TableRef, NameDefinition | None]:
        """Return the ref of a name, existing or not, and its definition file, which tells a view.

        Raises:
            InvalidConfig: The name leaves the root.
        """
        self.check_name(schema, name)
        definition = self._read_definition(schema, name)
        return self._ref(schema, name, definition), definition

    def look_up(self, schema: str, name: str) -> tuple[TableRef, NameDefinition | None]:
        """Return the ref of a name in any case, existing or not, and its definition file.

        The exact spelling wins. Names are listed only if the exact one is missing, and the lake's
        spelling is cached. A new table gets the spelling of an existing schema.

        Raises:
            InvalidConfig: Several names differ from the given one only in case.
        """
        return self.place(schema, name)[:2]

    def place(self, schema: str, name: str) -> tuple[TableRef, NameDefinition | None, Snapshot | None]:
        """Return what ``look_up()`` returns, and the table's newest snapshot if that is as cheap.

        Raises:
            InvalidConfig: Several names differ from the given one only in case.
        """
        ref, definition = self.find(*self._spellings.get((schema, name), (schema, name)))
        logs = self.format.logs
        newest = None if definition is not None or logs is None else logs.newest_known(ref)
        if definition is not None or newest is not None or self.exists(ref):
            return ref, definition, newest
        place = self.spelled_schema(schema)
        like = self._like(place, name)
        spelled = (
            place,
            _only(name, like, f"Lake {self.root} has several tables or views", lambda each: f"{place}.{each}"),
        )
        self._spellings[schema, name] = spelled
        if spelled != (ref.schema, ref.name):
            ref, definition = self.find(*spelled)
        return ref, definition, None

    def spelled_schema(self, name: str) -> str:
        """Return a schema as the lake spells it; a missing one unchanged.

        Raises:
            InvalidConfig: Several schemas differ from the given one only in case.
        """
        like = [each for each in self.schemas() if each.lower() == name.lower()]
        if not like and self.default_schema.lower() == name.lower():
            return self.default_schema
        return _only(name, like, f"Lake {self.root} has several schemas", str)

    def known(self, schema: str, name: str) -> TableRef | None:
        """Return the cached ref of a table, for lakes where looking it up again is expensive."""
        return None

    def newest(self, schema: str, name: str) -> Snapshot | None:
        """Return a table's newest snapshot, if that is as cheap as looking up its name.

        Else None.
        """
        return None

    def parse(self, dotted: str) -> TableRef:
        """Return the ref of ``name`` (in the default schema) or ``schema.name``."""
        parts = dotted.split(".")
        if len(parts) > 2:
            raise InvalidConfig(
                f"{dotted!r} is not a table's name; write schema.name, or name for {self.default_schema}."
            )
        return self.resolve(parts[0] if len(parts) == 2 else self.default_schema, parts[-1])

    def at(self, location: str | os.PathLike[str], *, schema: str | None = None, name: str | None = None) -> TableRef:
        """Return the ref of a table in any folder."""
        root = normalise_root(location)
        refuse_location(f"The location of table {schema or self.default_schema}.{name or '(unnamed)'}", root)
        return TableRef(schema or self.default_schema, name or root.rsplit("/", 1)[-1], root, catalog=self.name)

    def output_at(self, location: str) -> TableRef | None:
        """Return the table that a consumer of changes writes, by location.

        None if it belongs to a lake with another catalog.
        """
        return self.at(location)

    def within(self, location: str) -> tuple[TableRef, NameDefinition | None] | None:
        """Return the table whose name maps to a location, and its definition file.

        None if there is none.
        """
        inside = location.removeprefix(f"{self.root}/").split("/")
        names = [name for folder in inside if (name := name_of(folder)) is not None]
        return self.find(*names) if len(inside) == len(names) == 2 and location.startswith(f"{self.root}/") else None

    def folder(self, schema: str, name: str = "") -> str:
        """Return the folder of a schema or table, as a path below the root."""
        return "/".join(filter(None, (folder_of(schema), folder_of(name))))

    def is_name(self, *names: str) -> bool:
        """True if all names are valid for schemas and tables."""
        return all(self._why_no_name(name) is None for name in names)

    def check_name(self, *names: str) -> None:
        """Raise InvalidConfig for a name that is invalid for schemas and tables."""
        for name in names:
            if (why := self._why_no_name(name)) is not None:
                raise InvalidConfig(
                    f"{name!r} cannot name a schema or table of lake {self.root}: it {why}.", remedy=_reading(name)
                )

    def _why_no_name(self, name: str) -> str | None:
        why = why_no_name(name)
        if why is None and "://" in self.root and "?" in name:
            why = "holds a ?, after which DuckDB reads the options of a URL"
        if why is None and self.storage.kind == "azure" and name.endswith("."):
            why = "ends with a dot, which Azure takes off a folder"
        return why

    # -- discovery

    def schemas(self) -> list[str]:
        """Return the folders below the root, except those with only locks of dropped tables."""
        names = self._named(self.storage.list_names("")[0])
        return [name for name in names if not self._is_left(name)] if self.storage.is_local else names

    def _is_left(self, schema: str) -> bool:
        """True for the folder of a dropped schema.

        A lock file stays, since a process may wait for it.
        """
        inside = f"{self.folder(schema)}/{RESERVED}"
        if self.storage.list_names(self.folder(schema)) != ([RESERVED], []):
            return False
        return self.storage.list_names(inside) == (["locks"], [])

    def schema_named(self, name: str) -> str | None:
        """Return a schema in any case, as the lake spells it; None if missing.

        The default one exists.
        """
        spelled = self.spelled_schema(name)
        return spelled if spelled in {*self.schemas(), self.default_schema} else None

    def _named(self, folders: Iterable[str]) -> list[str]:
        """Return the names of folders; foreign folders without a valid name are skipped."""
        return sorted(name for folder in folders if (name := name_of(folder)) is not None)

    def tables(self, schema: str) -> list[str]:
        """Return the tables of a schema: folders whose log has a commit, and location definitions.

        One listing gives the names. Then the first key of each log is read, in parallel. No log is
        opened.
        """
        folders = self.storage.list_names(self.folder(schema))[0]
        return self._present(schema, self._named(folders), self._definitions_in(folders, schema))

    def _present(self, schema: str, folders: Iterable[str], defined: Mapping[str, NameDefinition]) -> list[str]:
        located = {n for n, d in defined.items() if isinstance(d, LocationDefinition)}
        candidates = sorted(({*folders} - {*defined}) | located)
        exist = at_once(lambda name: self.format.exists(self._ref(schema, name, defined.get(name))), candidates)
        return list(compress(candidates, exist))

    def named_like(self, schema: str, name: str) -> list[tuple[str, str]]:
        """Return the tables and views that match a name in any case."""
        schemas = [spelled for spelled in self.schemas() if spelled.lower() == schema.lower()]
        return [(spelled, same) for spelled in schemas for same in self._like(spelled, name)]

    def _like(self, schema: str, name: str) -> list[str]:
        folders = self.storage.list_names(self.folder(schema))[0]
        defined = self._definitions_in(folders, schema, name)
        names = (n for n in self._named(folders) if n.lower() == name.lower())
        return [*self._present(schema, names, defined), *_views(defined)]

    def macros(self) -> Mapping[tuple[str, str], Macro]:
        """Return the macros of the lake by schema and name; empty if no catalog stores any."""
        transactions = self.format.transactions
        return {} if transactions is None else transactions.macros.all()

    def put_macro(self, macro: Macro) -> None:
        """Create or replace a macro. Raises UnsupportedFeature if no catalog stores any."""
        transactions = self.transactions(f", which stores no macros such as {macro}.")
        ref = self.schema_ref(macro.schema)
        self.ensure_writable(ref)
        with self.format.locked(ref):
            transactions.macros.put(macro)

    def drop_macro(self, schema: TableRef, name: str) -> None:
        """Remove a macro of a schema. Raises UnsupportedFeature if no catalog stores any."""
        transactions = self.transactions(f", which stores no macros such as {schema.schema}.{name}.")
        self.ensure_writable(schema)
        with self.format.locked(schema):
            transactions.macros.drop(schema.schema, name)

    def views(self, schema: str) -> list[str]:
        """Return the persisted views of a schema."""
        return _views(self._definitions(schema))

    def _ref(self, schema: str, name: str, definition: NameDefinition | None) -> TableRef:
        if isinstance(definition, LocationDefinition):
            return TableRef(schema, name, definition.location, catalog=self.name)
        return TableRef(schema, name, f"{self.root}/{self.folder(schema, name)}", catalog=self.name)

    def exists(self, ref: TableRef) -> bool:
        """True if a table (not a view) of that name exists."""
        return self.format.exists(ref)

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """Return a table at a version, at a time, or now.

        Raises:
            TableNotFound: No such table; the message has the nearest names.
            VersionNotReadable: The table has no such version or time.
        """
        try:
            return self.format.snapshot(ref, version, timestamp)
        except TableNotFound as error:
            self.refuse_other_format()
            raise TableNotFound(f"{error}{self.nearest(ref)}") from None

    def nearest(self, ref: TableRef) -> str:
        """Return sentences with the nearest names, and other reasons why the table is missing."""
        names = [
            str(TableRef(schema, name, "", catalog=self.name))
            for schema in self.schemas()
            for name in (*self.tables(schema), *self.views(schema))
        ]
        close = nearest(str(ref), names, count=3, cutoff=0.5)
        if by_function := _reading(ref.name):
            return f" {by_function}."
        if close:
            return f" Did you mean {', '.join(close)}?"
        return f" Lake {self.root} holds {', '.join(names[:10])}." if names else f" {self.why_empty()}"

    def why_empty(self) -> str:
        """Return why the lake has no table: its root may be another folder than the user means."""
        folders, files = self.storage.list_names("")
        if _LOG in folders:
            return f"{self.root} is the folder of a table. The root of its lake is two folders above."
        if table := next((name for name in folders[:10] if _LOG in self.storage.list_names(name)[0]), None):
            return (
                f"{self.root} is the folder of a schema, with table {table}. The root of its lake is the folder above."
            )
        if self.storage.is_local and not folders and not files and not os.path.isdir(self.root):
            return f"There is no folder {self.root}."
        return f"Lake {self.root} holds no tables yet."

    # -- schemas without checks (schemas.py checks first)

    def make_schema(self, schema: str) -> None:
        """Create a schema without tables; an existing one is no error."""
        schema_folders.make(self.storage, self.folder(schema))

    def others_in(self, schema: str, tables: Set[str]) -> Iterator[str]:
        """Yield the contents of a schema's folder that are no table, view or internal file."""
        return schema_folders.others(self.storage, self.folder(schema), tables)

    def remove_schema(self, schema: str) -> None:
        """Remove the rest of a schema without tables and views."""
        schema_folders.remove(self.storage, self.folder(schema))

    # -- definition files

    def definition(self, ref: TableRef) -> NameDefinition | None:
        """Return the definition of a name: a view, or a table with its own location; else None."""
        return self._read_definition(ref.schema, ref.name)

    def put_definition(self, ref: TableRef, definition: NameDefinition) -> None:
        """Write a definition, atomically. A definition wins over a folder of that name."""
        self.ensure_writable(ref)
        self.refuse_other_format()
        kind = "view" if isinstance(definition, ViewDefinition) else "location"
        if isinstance(definition, LocationDefinition):
            definition = LocationDefinition(self.storage.relative(definition.location))
        values = {"kind": kind, **{each.name: getattr(definition, each.name) for each in fields(definition)}}
        # A line for each value: with an indent for each column json would be ten times slower.
        lines = (f"  {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
        body = "{\n" + ",\n".join(lines) + "\n}"
        self._put_definition(ref, body.encode())

    def _put_definition(self, ref: TableRef, body: bytes) -> None:
        self.storage.put(self._definition_path(ref.schema, ref.name), body)

    def remove_definition(self, ref: TableRef) -> None:
        """Remove a definition; a missing one is no error."""
        if self._read_definition(ref.schema, ref.name) is not None:
            self.ensure_writable(ref)
            self.storage.remove(self._definition_path(ref.schema, ref.name))

    def claim(self, ref: TableRef) -> None:
        """Record who drops or defines a name, which has no commit; a branch does so."""

    def _definition_path(self, schema: str, name: str) -> str:
        return f"{folder_of(schema)}/{RESERVED}/{folder_of(name)}.json"

    def _definitions(self, schema: str, like: str | None = None) -> dict[str, NameDefinition]:
        names = self._defined(schema)
        definitions = {n: self._read_definition(schema, n) for n in names if like is None or n.lower() == like.lower()}
        return {name: definition for name, definition in definitions.items() if definition is not None}

    def _definitions_in(self, folders: list[str], schema: str, like: str | None = None) -> dict[str, NameDefinition]:
        """Return the definitions of a schema with these folders; no request if it has none."""
        return self._definitions(schema, like) if RESERVED in folders else {}

    def _defined(self, schema: str) -> list[str]:
        """Return the names that have a definition."""
        files = self.storage.list_names(f"{self.folder(schema)}/{RESERVED}")[1]
        return self._named(f.removesuffix(".json") for f in files if f.endswith(".json"))

    def _read_definition(self, schema: str, name: str) -> NameDefinition | None:
        path = self._definition_path(schema, name)
        raw = self.storage.read(path)
        return None if raw is None else self._parsed(raw, path)

    def _parsed(self, raw: bytes, path: str) -> NameDefinition:
        """Return the definition in a file.

        Raises:
            StorageError: The file is damaged.
            UnsupportedFeature: A newer version of the package has written it.
        """
        place = f"{self.root}/{path}"
        values = parsed(raw, place)
        kind = values.pop("kind", None)
        if kind == "location":
            return LocationDefinition(self.storage.absolute(built(LocationDefinition, values, place).location))
        if kind != "view":
            raise newer(place, f"a definition of kind {kind!r}")
        try:
            for key in ("columns", "column_comments"):
                values[key] = tuple((name, text) for name, text in values.get(key, ()))
            values["reads"] = tuple(values["reads"])
        except (ValueError, KeyError, TypeError) as error:
            raise damaged(place, error) from error
        return built(ViewDefinition, values, place)

    # -- writing

    def ensure_writable(self, ref: TableRef) -> None:
        """Raise InvalidConfig, ReadOnlyLake, UnsupportedFeature or StorageError before any work."""
        if ref.schema.lower() == INFORMATION:
            raise InvalidConfig(
                f"{ref}: what is in {INFORMATION} is computed, and is not written.", remedy="Choose another schema"
            )
        if self.read_only:
            raise ReadOnlyLake(f"Lake {self.root} is open read-only; table {ref} was not changed.")
        if self.waits_for is not None:
            raise UnsupportedFeature(
                f"{ref} is of lake {self.root}, and the transaction that is open is of lake {self.waits_for}: no "
                "commit spans two lakes. Write to it before or after"
            )
        self.storage.check_writable(ref.location)

    def refuse_other_format(self) -> None:
        """Raise StorageError if the root holds tables of another format."""
        folders, files = self.storage.list_names("")
        inside = self.storage.list_names(RESERVED)[1] if RESERVED in folders else []
        for sign in (DUCKLAKE_MARK, "catalog.sqlite"):
            if sign in (*files, *(f"{RESERVED}/{name}" for name in inside)):
                raise StorageError(
                    f"{self.root} is the root of a DuckLake ({sign} lies in it), and was opened as a lake of "
                    "Delta tables: open it with format: ducklake, or choose another root"
                )

    def drop_table(self, ref: TableRef, *, force: bool = False) -> None:
        """Remove a table's folder, atomically for readers; a missing table is no error.

        Args:
            ref: The table.
            force: Remove it although branches continue from it.

        Raises:
            CommitConflict: Branches continue from the table.
        """
        self.ensure_writable(ref)
        self.format.drop(ref, force=force)

    def drop(self, ref: TableRef, *, force: bool = False) -> None:
        """Drop a table or a view by name; a missing one is no error. See ``drop_table()``."""
        if not isinstance(self.definition(ref), ViewDefinition):
            self.drop_table(ref, force=force)
        self.remove_definition(ref)

    def rename(self, ref: TableRef, new: TableRef) -> None:
        """Rename a table or view within this lake. Readers see it whole under one of the names.

        One rename moves a table's folder, under the locks of both names. A view, or a table with
        its own location, briefly has both names. After a kill in that moment, the same rename
        completes the work.

        Raises:
            InvalidConfig: The new name is taken.
            UnsupportedFeature: The folder is on an object store, which has no rename.
        """
        self.ensure_writable(ref)
        self.ensure_writable(new)
        (old, definition), (_, other) = self.find(ref.schema, ref.name), self.find(new.schema, new.name)
        same = [each for each in self.named_like(new.schema, new.name) if each != (ref.schema, ref.name)]
        is_repeated = definition is not None and other == definition and same == [(new.schema, new.name)]
        refuse_rename(ref, new, definition, () if is_repeated else [".".join(each) for each in same])
        if definition is None:
            if ref != old:
                raise UnsupportedFeature(
                    f"{ref.location} has no name in lake {self.root} that could be another one: move the folder."
                )
            self.format.rename(ref, new)
        else:
            self.put_definition(new, definition)
            self.remove_definition(ref)

    def readers(self, ref: TableRef) -> list[str]:
        """Return the persisted views that read a table or view, as ``schema.name``."""
        name = f"{ref.schema}.{ref.name}".lower()
        return [
            f"{schema}.{view}"
            for schema in self.schemas()
            for view, definition in sorted(self._definitions(schema).items())
            if isinstance(definition, ViewDefinition) and name in {read.lower() for read in definition.reads}
        ]

    def schema_ref(self, schema: str) -> TableRef:
        """Return the ref of a schema's own folder, for ensure_writable()."""
        return TableRef(schema, "", f"{self.root}/{self.folder(schema)}", catalog=self.name)


def refuse_rename(ref: TableRef, new: TableRef, definition: NameDefinition | None, taken: Sequence[str]) -> None:
    """Raise if a table or view cannot be renamed.

    Raises:
        InvalidConfig: Names like the new one are taken.
        UnsupportedFeature: A view would move to another schema.
    """
    if taken:
        raise InvalidConfig(
            f"{ref} cannot be renamed to {new}: {', '.join(taken)} is there. Drop it first, or choose another name."
        )
    if isinstance(definition, ViewDefinition) and ref.schema != new.schema:
        raise UnsupportedFeature(
            f"View {ref} cannot move to schema {new.schema}, where its bare names are others: create it there."
        )


def _only(name: str, like: Sequence[str], several: str, shown: Callable[[str], str]) -> str:
    """Return the exact spelling of a name, else its only match in any case, else the name."""
    if name in like or not like:
        return name
    if len(like) == 1:
        return like[0]
    raise InvalidConfig(
        f"{several} that {name!r} may mean, which differ in letter case only: "
        f"{', '.join(map(shown, sorted(like)))}. Write the exact one."
    )


def _views(defined: Mapping[str, NameDefinition]) -> list[str]:
    return sorted(name for name, definition in defined.items() if isinstance(definition, ViewDefinition))
