"""The lake's own types: SQL to run, a Frame, and handles of a table that load nothing."""

from __future__ import annotations

from typing import Any

from duckrun import SQL, Frame, Table
from duckrun.errors import InvalidConfig
from duckrun_dagster.io_managers.handlers.handler import TableScan, TypeHandler


class DuckrunHandler(TypeHandler[SQL | Frame | Table]):
    """Handler of ``duckrun.SQL``, Frame and Table.

    ``duckrun.SQL`` is a value to write: the engine runs it, and no row passes through Python. A
    Table is a value to load, with its history and its frames at the versions that the step reads.
    """

    def to_source(self, value: SQL | Frame | Table) -> Any:
        if isinstance(value, Table):
            raise InvalidConfig("a duckrun.Table is a handle, not rows to write; return its toDF(), or duckrun.SQL.")
        return value

    def from_scan(self, scan: TableScan, as_type: type) -> Frame | Table:
        if issubclass(as_type, Frame):
            return scan.frame()
        if issubclass(as_type, SQL):
            raise InvalidConfig(
                "A table is not loaded as duckrun.SQL. Name the table in the query itself (and the asset in "
                "deps=[...]), "
                "or ask for a frame: pyarrow.Table, pandas.DataFrame, polars.LazyFrame, duckdb.DuckDBPyRelation."
            )
        if scan.requested.version is not None or scan.requested.timestamp is not None:
            raise InvalidConfig(
                f"a duckrun.Table is {scan.ref} at every version; leave 'version' and 'timestamp' out of the "
                "metadata, and "
                "ask it: table.toDF(version=…)."
            )
        scan.whole("duckrun.Table")
        return Table(scan.session, scan.ref)

    def is_lazy(self, as_type: type) -> bool:
        return True

    def is_handle(self, as_type: type) -> bool:
        return issubclass(as_type, Table)


class DeltaTableHandler(TypeHandler[Any]):
    """Handler of ``deltalake.DeltaTable``, at the version that the step reads."""

    def handles(self, declared: Any) -> bool:
        # By name, because only the core imports deltalake.
        return isinstance(declared, type) and any(base.__name__ == "DeltaTable" for base in declared.__mro__)

    def to_source(self, value: Any) -> Any:
        raise InvalidConfig(
            "a deltalake.DeltaTable is a handle, not rows to write; return what it reads, "
            "such as its to_pyarrow_table()."
        )

    def from_scan(self, scan: TableScan, as_type: type) -> Any:
        snapshot = scan.whole("deltalake.DeltaTable")
        return scan.logs(snapshot).handle(snapshot.ref, snapshot.version)

    def is_handle(self, as_type: type) -> bool:
        return True
