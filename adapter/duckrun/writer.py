"""DataFrameWriter: writing by Spark's method names, the same on both engines.

It builds a WriteSpec.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, Self, cast

from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.lake.lakes import Lakes
from duckrun.values.attributes import NamesAttributes
from duckrun.values.layout import CODECS, Codec
from duckrun.values.options import as_bool, as_int, given, known_option, known_value, names_in
from duckrun.values.rows import AppTransaction, Commit, WriteSpec
from duckrun.values.snapshot import TableRef

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")
_OPTIONS = (
    "mergeSchema",
    "overwriteSchema",
    "replaceWhere",
    "partitionOverwriteMode",
    "compression",
    "txnAppId",
    "txnVersion",
)


class WritingSession(Protocol):
    """Part of a session that its frames need, to be read and written."""

    closed: bool

    def ensure_open(self) -> None: ...
    @property
    def lakes(self) -> Lakes: ...
    def existing(self, name: str | TableRef) -> TableRef: ...
    def execute(self, name: str | TableRef, spec: WriteSpec, source: Any | None = None) -> Commit: ...


class DataFrameWriter(NamesAttributes):
    """Writer of ``frame.write``. saveAsTable(), insertInto() and save() each return one commit.

    Example: ``frame.write.mode("overwrite").partitionBy("day").saveAsTable("sales.orders")``.
    """

    _INSTEAD = "It writes the tables of a lake; frame.native and frame.toArrow() write other files."

    def __init__(self, session: WritingSession, rows: LazyRows) -> None:
        self._session, self._rows = session, rows
        self._mode = "error"
        self._given: dict[str, Any] = {}
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None

    def format(self, source: str) -> Self:
        """Set the format, which can only be ``delta``.

        Raises:
            InvalidConfig: Any other format.
        """
        if str(source).lower() != "delta":
            raise InvalidConfig(
                f"A lake's tables are delta, not {source!r}; write other files by frame.native or by frame.toArrow()."
            )
        return self

    def mode(self, saveMode: str) -> Self:
        """Set the mode: ``error`` (or ``errorifexists``), ``append``, ``overwrite`` or ``ignore``.

        The default is ``error``.

        Raises:
            InvalidConfig: The mode is unknown.
        """
        mode = known_value(saveMode, _MODES, "mode of a write")
        self._mode = "error" if mode == "errorifexists" else mode
        return self

    def option(self, key: str, value: Any) -> Self:
        """Set an option.

        Args:
            key: ``mergeSchema``, ``overwriteSchema``, ``replaceWhere``, ``partitionOverwriteMode``,
                ``compression``, ``txnAppId`` with ``txnVersion``, or a table property ``delta.…``.
        """
        self._given[given(key, str, "key", "option()")] = value
        return self

    def options(self, **options: Any) -> Self:
        """Set several options at once."""
        self._given |= options
        return self

    def partitionBy(self, *cols: str | Sequence[str]) -> Self:
        """Set the partition columns of a new or overwritten table."""
        self._partition_by = names_in(cols, "cols", "partitionBy()")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> Self:
        """Set the columns of liquid clustering of a new or overwritten table."""
        self._cluster_by = names_in(cols, "cols", "clusterBy()")
        return self

    # -- the three targets: a name, a folder, an existing table

    def saveAsTable(
        self,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Commit:
        """Write a table of the lake, by name. Columns match by name.

        Raises:
            InvalidConfig: An option or mode is unknown; nothing ran.
            CommitConflict: The table exists and the mode is ``error``.
            SchemaMismatch: The rows do not fit the table.
            RowsOutsidePartition: A row does not satisfy ``replaceWhere``.
            ReadOnlyLake: The lake is open read-only.
        """
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        self.options(**options)
        return self._session.execute(name, self._spec(), self._rows)

    def save(self, path: str | os.PathLike[str]) -> Commit:
        """Write the Delta table in a folder, inside or outside a lake. Raises as saveAsTable()."""
        return self._session.execute(self._session.lakes.at(path).ref, self._spec(), self._rows)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> Commit:
        """Append to an existing table, or overwrite its rows. The table keeps its schema.

        As in Spark, columns match by position.

        Raises:
            TableNotFound: No such table.
            SchemaMismatch: The rows do not fit the table.
        """
        if self._partition_by is not None or self._cluster_by is not None:
            raise InvalidConfig(
                f"insertInto {tableName}: the table has its partitions and clustering already; leave "
                "out partitionBy and clusterBy."
            )
        overwrites = self._mode == "overwrite" if overwrite is None else overwrite
        self._mode = "overwrite" if overwrites else "append"
        ref = self._session.existing(tableName)
        columns, names = self._rows.columns, self._session.lakes.snapshot(ref).schema.names
        if len(columns) != len(names):
            raise SchemaMismatch(
                f"insertInto {ref} goes by position: the table has {len(names)} columns "
                f"({', '.join(names)}), the "
                f"rows have {len(columns)} ({', '.join(columns)})."
            )
        if overwrites:
            self._given.setdefault("overwriteSchema", False)
        return self._session.execute(ref, self._spec(), self._rows.named(names))

    # -- the options as a spec

    def _spec(self) -> WriteSpec:
        properties = {k: str(v) for k, v in self._given.items() if k.lower().startswith("delta.")}
        options = {known_option(k, _OPTIONS, "Writing delta"): v for k, v in self._given.items() if k not in properties}
        merges, redefines = (
            as_bool(options[key], key) if key in options else None for key in ("mergeSchema", "overwriteSchema")
        )
        overwriting = str(options.get("partitionOverwriteMode", "static"))
        dynamic = known_value(overwriting, ("static", "dynamic"), "partitionOverwriteMode") == "dynamic"
        mode, predicate = self._mode, options.get("replaceWhere")
        for option, is_set in (("replaceWhere", predicate is not None), ("partitionOverwriteMode", dynamic)):
            if is_set and mode != "overwrite":
                raise InvalidConfig(f"Option {option!r} goes with mode 'overwrite', not with {mode!r}.")
        if predicate is not None or dynamic:
            if dynamic and predicate is not None:
                raise InvalidConfig("replaceWhere and partitionOverwriteMode 'dynamic' exclude each other.")
            if redefines:
                raise InvalidConfig("overwriteSchema replaces the whole table; it does not go with a part of it.")
            mode = "replace"
        elif mode == "overwrite" and (merges if redefines is None else not redefines):
            # Every row goes. The schema stays, with the new columns of the data for mergeSchema.
            mode, predicate = "replace", "true"
        return WriteSpec(
            mode,  # type: ignore[arg-type]
            partition_by=self._partition_by,
            cluster_by=self._cluster_by,
            predicate=None if predicate is None else str(predicate),
            schema_mode="append_new_columns" if merges else "fail",
            table_properties=properties,
            compression=cast(Codec, known_value(options["compression"], CODECS, "compression"))
            if "compression" in options
            else None,
            app=_app(options),
        )


def _app(options: dict[str, Any]) -> AppTransaction | None:
    if ("txnAppId" in options) != ("txnVersion" in options):
        raise InvalidConfig("txnAppId and txnVersion go together: the name of the work, and the count of its commits.")
    if "txnAppId" not in options:
        return None
    return AppTransaction(str(options["txnAppId"]), as_int(options["txnVersion"], "txnVersion"))
