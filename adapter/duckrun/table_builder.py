"""Spark's builder of a table, column by column: the same statement as CREATE TABLE in SQL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

from duckrun.errors import InvalidConfig
from duckrun.lake.lake import LocationDefinition
from duckrun.lake.lakes import Located
from duckrun.sessions.schemas import columns_of, said, sql_type
from duckrun.sessions.tables import TableSession
from duckrun.statements.run import create
from duckrun.values.options import given, names_in
from duckrun.values.snapshot import TableRef
from duckrun.values.tables import ColumnSpec, CreateSpec, Identity, IdentityGenerator

TableT = TypeVar("TableT")


class DeltaTableBuilder(Generic[TableT]):
    """Builder of ``DeltaTable.create(s)`` and its variants. Only execute() reads or writes.

    Types and the expressions of generated columns are Spark SQL: TIMESTAMP has a time zone,
    TIMESTAMP_NTZ has none.
    """

    def __init__(
        self,
        session: TableSession,
        table: Callable[[TableSession, TableRef], TableT],
        method: str,
        if_exists: Literal["error", "ignore", "replace"],
        *,
        must_exist: bool = False,
    ) -> None:
        """Start a table (see ``DeltaTable.create``).

        Args:
            table: Makes what execute() returns.
        """
        self._session, self._table = session, table
        self._method = method
        self._if_exists = if_exists
        self._must_exist = must_exist
        self._name: str | None = None
        self._location: str | None = None
        self._columns: list[ColumnSpec] = []
        self._partition_by: tuple[str, ...] = ()
        self._cluster_by: tuple[str, ...] = ()
        self._properties: dict[str, str] = {}
        self._comment: str | None = None

    def tableName(self, identifier: str) -> Self:
        """Set the table's name: ``name``, ``schema.name`` or ``lake.schema.name``."""
        self._name = given(identifier, str, "identifier", "tableName()")
        return self

    def location(self, location: str | os.PathLike[str]) -> Self:
        """Set the table's folder, if not the default one of its name.

        A table may have a folder and no name.
        """
        self._location = os.fspath(given(location, (str, os.PathLike), "location", "location()"))
        return self

    def addColumn(
        self,
        colName: str,
        dataType: Any,
        nullable: bool = True,
        generatedAlwaysAs: str | IdentityGenerator | None = None,
        generatedByDefaultAs: IdentityGenerator | None = None,
        comment: str | None = None,
    ) -> Self:
        """Add a column at the end.

        Args:
            dataType: SQL, or a type of pyarrow or PySpark.
            generatedAlwaysAs: Expression over other columns, or an IdentityGenerator for rows that
                never bring a value.
            generatedByDefaultAs: IdentityGenerator for rows that may bring a value.

        Raises:
            InvalidConfig: An argument has another type, or both generators are set.
            SchemaMismatch: Delta lacks the type.
            UnsupportedFeature: A nested field refuses NULL.
        """
        name = given(colName, str, "colName", "addColumn()")
        what = f"addColumn({name!r})"
        given(nullable, bool, "nullable", what)
        expression = identity = None
        if isinstance(generatedAlwaysAs, str):
            expression = generatedAlwaysAs
        elif generatedAlwaysAs is not None:
            identity = _identity(generatedAlwaysAs, "generatedAlwaysAs", what, always=True)
        if generatedByDefaultAs is not None:
            if generatedAlwaysAs is not None:
                raise InvalidConfig(f"{what} has generatedAlwaysAs and generatedByDefaultAs: say one of the two.")
            identity = _identity(generatedByDefaultAs, "generatedByDefaultAs", what, always=False)
        comment = None if comment is None else given(comment, str, "comment", what)
        kind = sql_type(self._session, dataType, name, f"{what}: dataType")
        self._columns.append(ColumnSpec(name, kind, nullable, comment, expression, identity))
        return self

    def addColumns(self, cols: Any) -> Self:
        """Add the columns of a schema, or of a list of its fields: pyarrow's or PySpark's.

        Raises:
            SchemaMismatch: Delta lacks a type.
            UnsupportedFeature: A nested field refuses NULL.
        """
        self._columns += columns_of(self._session, cols, "addColumns(): cols")
        return self

    def partitionedBy(self, *cols: str | Sequence[str]) -> Self:
        """Set the partition columns."""
        self._partition_by = names_in(cols, "cols", "partitionedBy()")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> Self:
        """Set the columns of liquid clustering."""
        self._cluster_by = names_in(cols, "cols", "clusterBy()")
        return self

    def property(self, key: str, value: str) -> Self:
        """Set a table property."""
        self._properties[given(key, str, "key", "property()")] = given(value, str, "value", f"property({key!r})")
        return self

    def comment(self, comment: str) -> Self:
        """Set the table's description."""
        self._comment = given(comment, str, "comment", "comment()")
        return self

    def execute(self) -> TableT:
        """Create the table, as one commit, and return it.

        Raises:
            InvalidConfig: The name or the columns are missing.
            CommitConflict: create(), and the table exists.
            TableNotFound: replace(), and there is no table.
            SchemaMismatch: A column's type does not fit.
            ReadOnlyLake: The lake is open read-only.
            UnsupportedFeature: The engine cannot create such a table.
        """
        if self._name is None and self._location is None:
            raise InvalidConfig(f"DeltaTable.{self._method}() needs tableName(), location(), or both.")
        if not self._columns:
            raise InvalidConfig(
                f"DeltaTable.{self._method}() of {self._name or self._location} needs a column: addColumn()."
            )
        target = self._target()
        if self._must_exist:
            self._session.existing(target.ref)
        spec = CreateSpec(
            tuple(self._columns),
            self._if_exists,
            description=self._comment,
            partition_by=self._partition_by,
            cluster_by=self._cluster_by,
            table_properties=self._properties,
            dialect="spark",
        )
        create(self._session, target, spec)
        if self._name is not None and target.lake.resolve(target.ref.schema, target.ref.name) != target.ref:
            target.lake.put_definition(target.ref, LocationDefinition(target.ref.location))
        return self._table(self._session, self._session.existing(target.ref))

    def _target(self) -> Located:
        lakes = self._session.lakes
        if self._name is None:
            assert self._location is not None, "one of the two is given"
            return lakes.at(self._location)
        named = lakes.locate(self._name)
        if self._location is None:
            return named
        ref = named.lake.at(self._location, schema=named.ref.schema, name=named.ref.name)
        if named.view is None and named.lake.exists(named.ref) and named.ref.location != ref.location:
            raise InvalidConfig(
                f"Table {named.ref} is at {named.ref.location}, not at {ref.location}: leave out "
                "location(), or drop the table first."
            )
        return Located(named.lake, ref, named.definition)


def _identity(value: Any, argument: str, what: str, *, always: bool) -> Identity:
    """Convert an IdentityGenerator, also delta-spark's, which has the same two fields."""
    start, step = getattr(value, "start", None), getattr(value, "step", None)
    if not isinstance(start, int) or not isinstance(step, int):
        raise InvalidConfig(
            f"{what}: {argument} is {said(value)}; give an IdentityGenerator(start, step){' or SQL' if always else ''}."
        )
    return Identity(start, step, always)
