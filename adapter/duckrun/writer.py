"""DataFrameWriter: writing by Spark's names, the same on both engines. What is said becomes one WriteSpec."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, cast

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.values.layout import CODECS, Codec
from duckrun.values.options import as_bool, as_int, given, known_option, known_value, names_in
from duckrun.values.rows import AppTransaction, Commit, WriteSpec

if TYPE_CHECKING:
    from duckrun.frame import Frame
    from duckrun.session import Session

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


class DataFrameWriter:
    """What ``frame.write`` gives. Each of saveAsTable(), insertInto() and save() is one commit, and returns it.

    Example: ``frame.write.mode("overwrite").partitionBy("day").saveAsTable("sales.orders")``.
    """

    def __init__(self, frame: Frame) -> None:
        if frame.session is None:
            raise InvalidConfig("This frame was made by no session; write it by session.execute(name, spec, frame).")
        self._session: Session = frame.session
        self._frame = frame
        self._mode = "error"
        self._given: dict[str, Any] = {}
        self._partition_by: tuple[str, ...] | None = None
        self._cluster_by: tuple[str, ...] | None = None

    def format(self, source: str) -> Self:
        """``delta``, the one format that a lake is written in. Raises InvalidConfig."""
        if str(source).lower() != "delta":
            raise InvalidConfig(
                f"A lake's tables are delta, not {source!r}; write other files by frame.native or by frame.toArrow()."
            )
        return self

    def mode(self, saveMode: str) -> Self:
        """``error`` (the default; also ``errorifexists``), ``append``, ``overwrite`` or ``ignore``. Raises InvalidConfig."""
        mode = known_value(saveMode, _MODES, "mode of a write")
        self._mode = "error" if mode == "errorifexists" else mode
        return self

    def option(self, key: str, value: Any) -> Self:
        """``mergeSchema``, ``overwriteSchema``, ``replaceWhere``, ``partitionOverwriteMode``, ``txnAppId`` with
        ``txnVersion``, and table properties, which start with ``delta.``.
        """
        self._given[given(key, str, "key", "option()")] = value
        return self

    def options(self, **options: Any) -> Self:
        """Several options at once."""
        self._given |= options
        return self

    def partitionBy(self, *cols: str | Sequence[str]) -> Self:
        """The columns that a new or overwritten table is partitioned by."""
        self._partition_by = names_in(cols, "cols", "partitionBy()")
        return self

    def clusterBy(self, *cols: str | Sequence[str]) -> Self:
        """The columns of liquid clustering that a new or overwritten table gets."""
        self._cluster_by = names_in(cols, "cols", "clusterBy()")
        return self

    # -- the three ways to say where

    def saveAsTable(
        self,
        name: str,
        format: str | None = None,
        mode: str | None = None,
        partitionBy: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Commit:
        """Write a table of the lake, by name. Columns go by their names.

        Raises InvalidConfig for an unknown option or mode, before anything runs; CommitConflict in mode ``error`` where
        the table exists; SchemaMismatch, RowsOutsidePartition, ReadOnlyLake.
        """
        if format is not None:
            self.format(format)
        if mode is not None:
            self.mode(mode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        self.options(**options)
        return self._session.execute(name, self._spec(), self._frame)

    def save(self, path: str | os.PathLike[str]) -> Commit:
        """Write the Delta table in a folder, which need not lie in a lake. Raises as saveAsTable()."""
        return self._session.execute(self._session.lakes.at(path).ref, self._spec(), self._frame)

    def insertInto(self, tableName: str, overwrite: bool | None = None) -> Commit:
        """Add the rows to a table that exists, or put them in place of its rows. As in Spark, columns go by their
        position, and the table keeps its schema. Raises TableNotFound, SchemaMismatch.
        """
        if self._partition_by is not None or self._cluster_by is not None:
            raise InvalidConfig(
                f"insertInto {tableName}: the table has its partitions and clustering already; leave out partitionBy and clusterBy."
            )
        overwrites = self._mode == "overwrite" if overwrite is None else overwrite
        self._mode = "overwrite" if overwrites else "append"
        table = self._session.table(tableName)
        columns, names = self._frame.columns, table.snapshot().schema.names
        if len(columns) != len(names):
            raise SchemaMismatch(
                f"insertInto {table.ref} goes by position: the table has {len(names)} columns ({', '.join(names)}), the "
                f"rows have {len(columns)} ({', '.join(columns)})."
            )
        if overwrites:
            self._given.setdefault("overwriteSchema", False)
        return self._session.execute(table.ref, self._spec(), self._frame.named(names))

    # -- what was said, as a spec

    def _spec(self) -> WriteSpec:
        properties = {k: str(v) for k, v in self._given.items() if k.lower().startswith("delta.")}
        options = {k: v for k, v in self._given.items() if k not in properties}
        given = {known_option(key, _OPTIONS, "Writing delta"): value for key, value in options.items()}
        flags = {key: as_bool(given[key], key) for key in ("mergeSchema", "overwriteSchema") if key in given}
        mode, predicate = self._mode, given.get("replaceWhere")
        overwriting = str(given.get("partitionOverwriteMode", "static"))
        dynamic = known_value(overwriting, ("static", "dynamic"), "partitionOverwriteMode") == "dynamic"
        for option, asked in (("replaceWhere", predicate is not None), ("partitionOverwriteMode", dynamic)):
            if asked and mode != "overwrite":
                raise InvalidConfig(f"Option {option!r} goes with mode 'overwrite', not with {mode!r}.")
        if predicate is not None or dynamic:
            if dynamic and predicate is not None:
                raise InvalidConfig("replaceWhere and partitionOverwriteMode 'dynamic' exclude each other.")
            if flags.get("overwriteSchema"):
                raise InvalidConfig("overwriteSchema replaces the whole table; it does not go with a part of it.")
            mode = "replace"
        elif mode == "overwrite" and flags.get("overwriteSchema", not flags.get("mergeSchema")) is False:
            mode, predicate = (
                "replace",
                "true",
            )  # every row goes, the schema stays, with mergeSchema and what is new in the data
        return WriteSpec(
            mode,  # type: ignore[arg-type]
            partition_by=self._partition_by,
            cluster_by=self._cluster_by,
            predicate=None if predicate is None else str(predicate),
            schema_mode="append_new_columns" if flags.get("mergeSchema") else "fail",
            table_properties=properties,
            compression=cast(Codec, known_value(given["compression"], CODECS, "compression"))
            if "compression" in given
            else None,
            app=_app(given),
        )


def _app(given: dict[str, Any]) -> AppTransaction | None:
    if ("txnAppId" in given) != ("txnVersion" in given):
        raise InvalidConfig("txnAppId and txnVersion go together: the name of the work, and the count of its commits.")
    if "txnAppId" not in given:
        return None
    return AppTransaction(str(given["txnAppId"]), as_int(given["txnVersion"], "txnVersion"))
