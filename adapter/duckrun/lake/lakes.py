"""Lakes of a session: its own and the attached ones, and the lake of a name or path."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake, NameDefinition, ViewDefinition
from duckrun.storage.roots import normalise_root, refuse_location
from duckrun.storage.storage import Storage
from duckrun.values.frozen import frozen
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, LakeFormat
from duckrun.values.nearest import did_you_mean, nearest
from duckrun.values.snapshot import Snapshot, TableRef

OWN_CATALOGS = ("lake", "memory")
"""Catalogs that name the session's own lake in statements."""

_RESERVED = {*OWN_CATALOGS, "system", "temp", "main", "delta", "parquet", "csv", "json", "spark_catalog"}


def refuse_name(name: str) -> None:
    """Raise InvalidConfig for a name that no lake may have."""
    if not name or name.startswith("_") or "." in name or name.lower() in _RESERVED:
        raise InvalidConfig(
            f"{name!r} cannot name a lake: a name is not empty, has no dots, does not start with an underscore, and "
            f"is none of {', '.join(sorted(_RESERVED))}."
        )


@frozen
class Located:
    """The table or view of a name, existing or not, and its lake."""

    lake: Lake
    ref: TableRef
    definition: NameDefinition | None = None
    newest: Snapshot | None = None
    """Newest snapshot of the table, if the lookup has read it."""

    @property
    def view(self) -> ViewDefinition | None:
        return self.definition if isinstance(self.definition, ViewDefinition) else None


class Lakes:
    """Lookup of lakes and tables by name, over all lakes of a session.

    Lake names ignore case, as in SQL.
    """

    def __init__(self, first: Lake, attached: Iterable[Lake] = ()) -> None:
        self.own = first
        self._attached: dict[str, Lake] = {str(lake.name).lower(): lake for lake in attached}
        self.lake, self.schema = first, first.default_schema
        """Where a name lies that says neither lake nor schema."""

    def __iter__(self) -> Iterator[Lake]:
        """Iterate over the session's own lake and then the attached ones, in order."""
        return iter((self.own, *self._attached.values()))

    # -- attaching

    def attach(
        self,
        root: str | os.PathLike[str],
        name: str,
        *,
        read_only: bool,
        storage_options: Mapping[str, Any] | None,
        form: LakeFormat = DELTA_LAKE,
    ) -> Lake:
        """Attach a lake.

        Raises InvalidConfig for a name that a lake, schema or engine already has.
        """
        key = name.lower()
        if key in self._attached:
            raise InvalidConfig(
                f"A lake is attached as {name!r} already, {self._attached[key].root}; detach it, or "
                "choose another name."
            )
        refuse_name(name)
        if key in {schema.lower() for schema in (*self.own.schemas(), self.own.default_schema)}:
            raise InvalidConfig(
                f"{name!r} is a schema of lake {self.own.root}, so {name}.x would mean two things; "
                f"attach {os.fspath(root)} "
                "by another name."
            )
        lake = open_lake(
            root,
            schema=self.own.default_schema,
            storage_options=storage_options,
            read_only=read_only or self.own.read_only,
            name=name,
            form=form,
        )
        lake.waits_for = self._in_transaction()
        self._attached[key] = lake
        return lake

    def _in_transaction(self) -> str | None:
        """Return the root of the lake whose transaction is open, if any."""
        return next((lake.root for lake in self if lake.in_transaction), None)

    def detach(self, name: str) -> Lake:
        """Detach a lake; its tables stay unchanged. Raises InvalidConfig."""
        if name.lower() not in self._attached:
            raise InvalidConfig(f"No lake is attached as {name!r}{self._attached_names(name)}.")
        if self._attached[name.lower()] is self.lake:
            raise InvalidConfig(f"Lake {name!r} is in use: USE another one first, such as USE {OWN_CATALOGS[0]}.")
        return self._attached.pop(name.lower())

    def _attached_names(self, name: str) -> str:
        names = [str(lake.name) for lake in self._attached.values()]
        close = nearest(name, names)
        if close:
            return f"; did you mean {close[0]!r}"
        return f"; attached are {', '.join(names)}" if names else "; none is attached"

    # -- names and paths

    def using(self, lake: Lake, schema: str) -> Lakes:
        """Return the same lakes, also future ones, with another default lake and schema."""
        other = copy(self)
        other.lake, other.schema = lake, schema
        return other

    def after_use(self, parts: Sequence[str], *, must_exist: bool) -> Lakes:
        """Return the lakes that resolve names after USE of a schema.

        Raises:
            TableNotFound: The schema must exist, and does not; or there is no such lake.
        """
        try:
            return self.using(*self.place(parts))
        except TableNotFound:
            if must_exist:
                raise
            return self.using(*self.schema_of(parts))

    def schema_of(self, parts: Sequence[str]) -> tuple[Lake, str]:
        """Return the lake and schema, existing or not, of ``schema`` or ``lake.schema``."""
        return (self.named(parts[0], ".".join(parts)) if len(parts) > 1 else self.lake), parts[-1]

    def place(self, parts: Sequence[str]) -> tuple[Lake, str]:
        """Return the lake and schema of ``schema``, ``lake`` (its default one) or ``lake.schema``.

        Raises:
            TableNotFound: No such schema; the message has the nearest names.
        """
        name = ".".join(parts)
        if len(parts) == 1 and self.lake.schema_named(name) is None and self.is_lake(name):
            lake = self.named(name, name)
            return lake, lake.default_schema
        lake, wanted = self.schema_of(parts)
        schema = lake.schema_named(wanted)
        if schema is None:
            lakes = [str(each.name) for each in self if each.name is not None] if len(parts) == 1 else []
            known = [*lake.schemas(), lake.default_schema]
            listed = f" Lake {lake.root} has {', '.join(sorted({*known}))}."
            raise TableNotFound(f"There is no schema {name}.{did_you_mean(wanted, [*known, *lakes], listed)}")
        return lake, schema

    def is_lake(self, name: str) -> bool:
        """True if a statement may use the name for a lake."""
        return name.lower() in (*OWN_CATALOGS, *self._attached)

    def locate(self, name: str | Sequence[str], *, to_write: bool = False) -> Located:
        """Return the lake and table of a name, existing or not, in any case.

        Args:
            name: ``name``, ``schema.name`` or ``lake.schema.name``, as one string or as its parts.
            to_write: Skip the lookup for a cached table. Otherwise one definition is read and one
                log listed.

        Raises:
            InvalidConfig: The name has another form.
            TableNotFound: The lake is not attached.
        """
        parts = name.split(".") if isinstance(name, str) else [part for part in name if part]
        if not 1 <= len(parts) <= 3 or not all(parts):
            raise InvalidConfig(
                f"{'.'.join(parts)!r} is not a table's name; write name (in {self.schema}), schema.name, or "
                "lake.schema.name for an attached lake."
            )
        lake = self.named(parts[0], ".".join(parts)) if len(parts) == 3 else self.lake
        schema, table = (parts[-2] if len(parts) > 1 else self.schema), parts[-1]
        if to_write and (ref := lake.known(schema, table)) is not None:
            return Located(lake, ref)
        newest = lake.newest(schema, table)
        if newest is not None:
            return Located(lake, newest.ref, newest=newest)
        # The lake lists its names only if the exact one is missing.
        ref, definition, newest = lake.place(schema, table)
        return Located(lake, ref, definition, newest)

    def catalogs(self, name: str) -> tuple[str, ...]:
        """Return the catalogs of the same lake as this one; for "", those of the default lake."""
        lake = self.lake if not name else self.own if name.lower() in OWN_CATALOGS else None
        if lake is None:
            return (name,)
        return OWN_CATALOGS if lake is self.own else (str(lake.name),)

    def named(self, catalog: str, qualified: str) -> Lake:
        """Return the lake of a catalog. Raises TableNotFound."""
        if catalog.lower() in OWN_CATALOGS:
            return self.own
        lake = self._attached.get(catalog.lower())
        if lake is None:
            raise TableNotFound(
                f"There is no lake {catalog!r} in this session ({qualified}){self._attached_names(catalog)}."
            )
        return lake

    def at(self, path: str | os.PathLike[str]) -> Located:
        """Return the lake and table of a folder.

        A folder in a lake belongs to that lake, which decides whether it is writable. Another
        folder uses the credentials of the session's own lake, where they fit.
        """
        location = normalise_root(path)
        around = [lake for lake in self if f"{location}/".startswith(f"{lake.root}/")]
        if not around:
            refuse_location("The location of a table", location)
        lake = max(around, key=lambda lake: len(lake.root), default=None)
        within = None if lake is None else lake.within(location)
        if lake is not None and within is not None:
            return Located(lake, *within)
        if lake is None or lake.format.name == DUCKLAKE:
            lake = self._alone(location)
        return Located(lake, lake.at(location))

    def of(self, ref: TableRef) -> Lake:
        """Return the lake of a table, which has the credentials for its location."""
        if ref.catalog is not None:
            return self.named(ref.catalog, str(ref))
        if ref.format == self.own.format.name == DUCKLAKE:
            return self.own
        return self._alone(ref.location, ref.schema)

    def _alone(self, location: str, schema: str | None = None) -> Lake:
        """Return the lake for a Delta table in a standalone folder.

        This is the session's lake if its credentials fit, else a lake for the folder alone. The
        latter is read-only inside the root of a read-only DuckLake.
        """
        closed = any(
            lake.read_only and lake.format.name == DUCKLAKE and f"{location}/".startswith(f"{lake.root}/")
            for lake in self
        )
        fits = f"{location}/".startswith(f"{self.own.root}/") or Storage(location).kind == self.own.storage.kind
        if fits and self.own.format.name != DUCKLAKE and not closed:
            return self.own
        alone = Lake(
            location.rsplit("/", 1)[0], schema=schema or self.own.default_schema, read_only=closed or self.own.read_only
        )
        alone.waits_for = self._in_transaction()
        return alone

    # -- operations on the lake of a table

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """Return a table at a version, at a time, or now.

        Raises TableNotFound, VersionNotReadable.
        """
        return self.of(ref).snapshot(ref, version, timestamp)

    def names(self, without: Collection[tuple[str | None, str, str]] = ()) -> list[str]:
        """Return the tables and views of all lakes, as ``schema.name`` or ``lake.schema.name``.

        Args:
            without: Tables to leave out, as triples of lake, schema and name.
        """
        default_name = None if self.lake is self.own else OWN_CATALOGS[0]
        return [
            str(TableRef(schema, name, "", catalog=lake.name or default_name))
            for lake in self
            for schema in lake.schemas()
            for name in sorted({*lake.tables(schema), *lake.views(schema)})
            if (lake.name, schema, name) not in without
        ]
