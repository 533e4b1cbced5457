"""Base class of type handlers, and the scan that they load a value from.

A handler knows how an engine writes values of its type, and how a scan becomes a value.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.formats.logs import LogTables
from duckrun.lake.lake import ViewDefinition
from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quoted_list
from duckrun.values.choices import EngineName
from duckrun.values.rows import ReadSpec
from duckrun.values.snapshot import Snapshot, TableRef

if TYPE_CHECKING:
    from duckrun.frame import Frame
    from duckrun.session import Session

Value = TypeVar("Value")


@dataclass(frozen=True)
class TableScan:
    """A requested read of one table or view, at a pinned version, with no row read yet."""

    session: Session
    ref: TableRef
    requested: ReadSpec
    """The read that the input's metadata names."""
    partitions: str | None = None
    """Predicate of the step's partitions."""

    @property
    def is_view(self) -> bool:
        """Return True if the scan reads a view."""
        return isinstance(self.session.lakes.of(self.ref).definition(self.ref), ViewDefinition)

    @property
    def spec(self) -> ReadSpec:
        """Return the read with both predicates combined."""
        # The line ends before the bracket, since a predicate may end with a comment.
        both = [f"({each}\n)" for each in (self.partitions, self.requested.predicate) if each is not None]
        predicate = " AND ".join(both) if len(both) == 2 else self.partitions or self.requested.predicate
        return replace(self.requested, predicate=predicate)

    def frame(self) -> Frame:
        """Return the rows as a lazy frame."""
        spec = self.spec
        if not self.is_view:
            return self.session.scan(self.ref, spec)
        if spec.version is not None or spec.timestamp is not None:
            raise InvalidConfig(f"{self.ref} is a view, which has no versions: leave out 'version' and 'timestamp'.")
        columns = "*" if spec.columns is None else quoted_list(spec.columns)
        where = "" if spec.predicate is None else f" WHERE {spec.predicate}"
        name = [part for part in (self.ref.catalog, self.ref.schema, self.ref.name) if part]
        return self.session.sql(f"SELECT {columns} FROM {quote_identifier(*name)}{where}")

    def one_column(self, as_type: str) -> Frame:
        """Return the rows for a type that holds one column.

        Raises:
            InvalidConfig: The scan has several columns.
        """
        frame = self.frame()
        if len(frame.columns) != 1:
            raise InvalidConfig(
                f"a {as_type} is one column, and {len(frame.columns)} of table {self.ref} were asked for: "
                f"{', '.join(frame.columns)}. Name one in metadata 'columns', or load a frame."
            )
        return frame

    def snapshot(self, as_type: str) -> Snapshot:
        """Return the version that is read, for a type that is a handle of the table.

        Raises:
            InvalidConfig: The scan reads a view.
        """
        if self.is_view:
            raise InvalidConfig(f"{self.ref} is a view, which has no files: it cannot be loaded as a {as_type}.")
        return self.session.snapshot(self.ref, self.requested)

    def whole(self, as_type: str) -> Snapshot:
        """Return the snapshot for a type that cannot leave out rows or columns.

        Raises:
            InvalidConfig: The input's metadata names columns or a predicate, or the scan reads a
                view.
        """
        narrowed = [key for key in ("columns", "predicate") if getattr(self.requested, key) is not None]
        if narrowed:
            raise InvalidConfig(
                f"a {as_type} is a handle of the whole table {self.ref}, "
                f"which metadata {' and '.join(map(repr, narrowed))} "
                "cannot narrow. Leave it out, or load a frame."
            )
        return self.snapshot(as_type)

    def logs(self, snapshot: Snapshot) -> LogTables:
        """Return the logs of the tables, for a type that reads the files of a snapshot by itself.

        The read is recorded.

        Raises:
            UnsupportedFeature: The table is a DuckLake table.
        """
        self.session.reading(snapshot, self.spec)
        logs = self.session.lakes.of(self.ref).format.logs
        if logs is None:
            raise UnsupportedFeature(
                f"Table {self.ref} is a DuckLake table, whose files alone are not its rows: read it by a session, "
                "or as a pyarrow Table or a RecordBatchReader."
            )
        return logs


class TypeHandler(ABC, Generic[Value]):
    """One family of types. A handler knows nothing of partitions, modes, metadata or engines.

    The types are those between the brackets::

        class PolarsHandler(TypeHandler[pl.DataFrame | pl.LazyFrame]): ...
    """

    types: ClassVar[tuple[type, ...]] = ()
    names: ClassVar[dict[str, type]] = {}
    """The names of types for ``default_type`` of the IO manager."""
    engine: ClassVar[EngineName | None] = None
    """The only engine that can read or write the types; None if both can."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is TypeHandler:
                declared = get_args(base)[0]
                union = get_origin(declared) in (Union, types.UnionType)
                cls.types = tuple(t for t in (get_args(declared) if union else (declared,)) if isinstance(t, type))

    def handles(self, declared: Any) -> bool:
        """Return True if values of this type belong to this handler."""
        return isinstance(declared, type) and issubclass(declared, self.types)

    @abstractmethod
    def to_source(self, value: Value) -> Any:
        """Return a value as a source that an engine can write.

        Sources are an Arrow table or stream, a lazy frame, SQL and a Spark frame.
        """

    @abstractmethod
    def from_scan(self, scan: TableScan, as_type: type) -> Value:
        """Return a pinned and pruned scan as the requested type. ``scan.frame()`` has its rows."""

    def nothing(self, as_type: Any) -> Value:
        """Return a value without rows and columns, for a table that does not exist yet.

        Raises:
            InvalidConfig: The type has no such value.
        """
        raise InvalidConfig(
            f"the table is not there yet, and a value of {as_type.__module__}.{as_type.__qualname__} cannot be "
            "without columns. Annotate "
            f"Optional[{as_type.__name__}], which gives None, or ask for a pandas, polars or pyarrow frame."
        )

    def is_untyped(self, kind: pa.DataType) -> bool:
        """Return True for the type of an untyped column in a value without rows."""
        return pa.types.is_null(kind)

    def is_lazy(self, as_type: type) -> bool:
        """Return True if a value of this type loads no rows before they are used."""
        return False

    def is_handle(self, as_type: type) -> bool:
        """Return True if a value of this type is a whole table, whatever rows are requested."""
        return False
