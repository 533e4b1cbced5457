"""The lakes of a session: its own and those attached by name, and which of them a name or a path belongs to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.catalogued import open_lake
from duckrun.lake.lake import Lake, NameDefinition, ViewDefinition
from duckrun.storage.storage import Storage, normalise_root, refuse_location
from duckrun.values.lake_format import DELTA_LAKE, DUCKLAKE, LakeFormat
from duckrun.values.nearest import did_you_mean, nearest
from duckrun.values.snapshot import Snapshot, TableRef

OWN_CATALOGS = ("lake", "memory")
"""Catalogs by which a statement may name the session's own lake."""

_RESERVED = {*OWN_CATALOGS, "system", "temp", "main", "delta", "parquet", "csv", "json", "spark_catalog"}


def refuse_name(name: str) -> None:
    """Raise InvalidConfig for a name that no lake can have."""
    if not name or name.startswith("_") or "." in name or name.lower() in _RESERVED:
        raise InvalidConfig(
            f"{name!r} cannot name a lake: a name is not empty, has no dots, does not start with an underscore, and "
            f"is none of {', '.join(sorted(_RESERVED))}."
        )


@dataclass(frozen=True)
class Located:
    """What a name stands for: a table of a lake, there or not, or a persisted ``view``."""

    lake: Lake
    ref: TableRef
    definition: NameDefinition | None = None
    newest: Snapshot | None = None
    """The newest snapshot of the table, where looking up its name has read it."""

    @property
    def view(self) -> ViewDefinition | None:
        return self.definition if isinstance(self.definition, ViewDefinition) else None


class Lakes:
    """Names to (lake, table), over all lakes of a session. Names of lakes are the same in any case, as SQL's are."""

    def __init__(self, own: Lake, attached: Iterable[Lake] = ()) -> None:
        self.own = own
        self._attached: dict[str, Lake] = {str(lake.name).lower(): lake for lake in attached}
        self.lake, self.schema = own, own.default_schema
        """Where a name lies that says neither lake nor schema."""

    def __iter__(self) -> Iterator[Lake]:
        """The session's own lake, then the attached ones, as they were attached."""
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
        """Add a lake. Raises InvalidConfig for a name that is taken, by a lake, a schema or an engine."""
        key = name.lower()
        if key in self._attached:
            raise InvalidConfig(
                f"A lake is attached as {name!r} already, {self._attached[key].root}; detach it, or choose another name."
            )
        refuse_name(name)
        if key in {schema.lower() for schema in (*self.own.schemas(), self.own.default_schema)}:
            raise InvalidConfig(
                f"{name!r} is a schema of lake {self.own.root}, so {name}.x would mean two things; attach {os.fspath(root)} "
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
        self._attached[key] = lake
        return lake

    def detach(self, name: str) -> Lake:
        """Remove an attached lake from the session; its tables stay as they are. Raises InvalidConfig."""
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
        """The same lakes, those that are attached later too, where a name that says neither lies in this one's schema."""
        other = copy(self)
        other.lake, other.schema = lake, schema
        return other

    def schema_of(self, parts: Sequence[str]) -> tuple[Lake, str]:
        """The lake and the schema, whether it is there or not, of ``schema`` or ``lake.schema``."""
        return (self.named(parts[0], ".".join(parts)) if len(parts) > 1 else self.lake), parts[-1]

    def place(self, parts: Sequence[str]) -> tuple[Lake, str]:
        """The lake and the schema of ``schema``, ``lake`` (its default one) or ``lake.schema``. Raises TableNotFound with the nearest."""
        name = ".".join(parts)
        if len(parts) == 1 and self.lake.schema_named(name) is None and self.is_lake(name):
            lake = self.named(name, name)
            return lake, lake.default_schema
        lake, asked = self.schema_of(parts)
        schema = lake.schema_named(asked)
        if schema is None:
            lakes = [str(each.name) for each in self if each.name is not None] if len(parts) == 1 else []
            known = [*lake.schemas(), lake.default_schema]
            listed = f" Lake {lake.root} has {', '.join(sorted({*known}))}."
            raise TableNotFound(f"There is no schema {name}.{did_you_mean(asked, [*known, *lakes], listed)}")
        return lake, schema

    def is_lake(self, name: str) -> bool:
        """True for a name by which a statement may name a lake."""
        return name.lower() in (*OWN_CATALOGS, *self._attached)

    def locate(self, name: str | Sequence[str], *, to_write: bool = False) -> Located:
        """The lake and the table of a name, whether it exists or not: ``name``, ``schema.name`` or ``lake.schema.name``,
        as one string or as its parts. A table or view whose name differs in case only is found, if it is the only one.

        One definition is read, and one log listed; with ``to_write``, of a table that is known, none. Raises InvalidConfig for a name of another form, TableNotFound for a lake that
        is not attached.
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
        return _spelled(lake, schema, table)

    def catalogs(self, name: str) -> tuple[str, ...]:
        """The catalogs that name the same lake as this one; of "", those that name the lake of bare names."""
        lake = self.lake if not name else self.own if name.lower() in OWN_CATALOGS else None
        if lake is None:
            return (name,)
        return OWN_CATALOGS if lake is self.own else (str(lake.name),)

    def named(self, catalog: str, asked: str) -> Lake:
        """The lake that a catalog names. Raises TableNotFound."""
        if catalog.lower() in OWN_CATALOGS:
            return self.own
        found = self._attached.get(catalog.lower())
        if found is None:
            raise TableNotFound(
                f"There is no lake {catalog!r} in this session ({asked}){self._attached_names(catalog)}."
            )
        return found

    def at(self, path: str | os.PathLike[str]) -> Located:
        """The lake and the table of a folder, wherever it is. A folder in a lake belongs to that lake, which says whether
        it may be written; any other is reached with the credentials of the session's own lake where they fit.
        """
        location = normalise_root(path)
        around = [lake for lake in self if f"{location}/".startswith(f"{lake.root}/")]
        if not around:
            refuse_location("The location of a table", location)
            lake = self._alone(location)
            return Located(lake, lake.at(location))
        lake = max(around, key=lambda lake: len(lake.root))
        within = lake.within(location)
        if within is None and lake.format.name == DUCKLAKE:
            alone = self._alone(location)
            return Located(alone, alone.at(location))
        return Located(lake, lake.at(location)) if within is None else Located(lake, *within)

    def of(self, ref: TableRef) -> Lake:
        """The lake that a table belongs to, which has the credentials for its location."""
        if ref.catalog is not None:
            return self.named(ref.catalog, str(ref))
        if ref.format == self.own.format.name == DUCKLAKE:
            return self.own
        return self._alone(ref.location, ref.schema)

    def _alone(self, location: str, schema: str | None = None) -> Lake:
        """The lake for a Delta table in a folder of its own: the session's, whose credentials reach it, or one of that folder alone, which is
        read-only in the root of a DuckLake that is.
        """
        closed = any(
            lake.read_only and lake.format.name == DUCKLAKE and f"{location}/".startswith(f"{lake.root}/")
            for lake in self
        )
        if Storage(location).kind == self.own.storage.kind and self.own.format.name != DUCKLAKE and not closed:
            return self.own
        alone = Lake(
            location.rsplit("/", 1)[0], schema=schema or self.own.default_schema, read_only=closed or self.own.read_only
        )
        alone.waits_for = next((lake.root for lake in self if lake.in_transaction), None)
        return alone

    # -- what a session asks of whichever lake a table is in

    def snapshot(self, ref: TableRef, version: int | None = None, timestamp: str | None = None) -> Snapshot:
        """A table at a version, at a time, or now. Raises TableNotFound, VersionNotReadable."""
        return self.of(ref).snapshot(ref, version, timestamp)

    def names(self, without: Collection[tuple[str | None, str, str]] = ()) -> list[str]:
        """The tables and views of all lakes, by names that find them: ``schema.name``, and ``lake.schema.name`` of attached lakes. Those
        ``without`` are left out, by the name of their lake, their schema and their name.
        """
        own = None if self.lake is self.own else OWN_CATALOGS[0]
        return [
            str(TableRef(schema, name, "", catalog=lake.name or own))
            for lake in self
            for schema in lake.schemas()
            for name in sorted({*lake.tables(schema), *lake.views(schema)})
            if (lake.name, schema, name) not in without
        ]


def _spelled(lake: Lake, schema: str, name: str) -> Located:
    """What a name stands for, in the case in which the lake has it. The lists of names are read only where the name as it is given
    has nothing.
    """
    newest = lake.newest(schema, name)
    if newest is not None:
        return Located(lake, newest.ref, newest=newest)
    return Located(lake, *lake.look_up(schema, name))
