"""Frame: the lazy result of a query, the same on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from duckrun.engines.pandas_values import pandas_frame
from duckrun.errors import UnsupportedFeature
from duckrun.run.pins import NOTHING, Reads
from duckrun.values.columns import told_apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    import polars as pl

    from duckrun.session import Session
    from duckrun.writer import DataFrameWriter


def without_arrow_form(column: str, kind: str) -> UnsupportedFeature:
    """The error about a column that is to be read as Arrow, and cannot."""
    return UnsupportedFeature(
        f"column {column} has the type {kind.upper()}, which has no Arrow form: cast it in the query, leave it out, or read it as a "
        "PySpark DataFrame or a DuckDB relation (native)."
    )


class FrameSource(Protocol):
    """What an engine gives for one query. Nothing is computed before a method that needs rows is called."""

    native: Any

    def schema(self) -> pa.Schema: ...
    def reader(self) -> pa.RecordBatchReader: ...
    def polars_lazy(self) -> pl.LazyFrame: ...
    def count(self) -> int: ...
    def limit(self, rows: int) -> FrameSource: ...
    def renamed(self, columns: Sequence[tuple[str, str]]) -> FrameSource: ...
    def named(self, names: Sequence[str]) -> FrameSource: ...
    def create_view(self, name: str, reads: Reads) -> None: ...


class Frame:
    """Rows that are computed when they are asked for, from tables pinned at one version each.

    Example: ``s.sql("select carrier, count(*) n from main.flights group by all").pl()``. Transforms are SQL;
    ``native`` is the DuckDB relation or Spark DataFrame underneath, for everything else.
    """

    def __init__(
        self,
        source: FrameSource,
        engine: str,
        session: Session | None = None,
        alias: str | None = None,
        reads: Reads = NOTHING,
    ) -> None:
        self._source = source
        self.engine = engine
        self.session = session
        self.alias_name = alias
        self.reads = reads
        """The tables that the rows are computed from, at the version that was their newest."""

    @property
    def source(self) -> FrameSource:
        """The query of an engine. Raises InvalidConfig if the session that made this frame is closed."""
        if self.session is not None:
            self.session.ensure_open()
        return self._source

    @property
    def native(self) -> Any:
        """The DuckDB relation or the Spark DataFrame."""
        return self.source.native

    @property
    def schema(self) -> pa.Schema:
        """The columns and their Arrow types; nothing is computed."""
        return self.source.schema()

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of Arrow record batches; memory does not grow with their number."""
        return self.source.reader()

    def toArrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        return self.reader().read_all()

    def arrow(self) -> pa.Table:
        """The same as toArrow()."""
        return self.toArrow()

    def toPandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame. Integers with NULLs are float64, or Int64 where that would change a value."""
        return pandas_frame(self.toArrow())

    def df(self) -> pd.DataFrame:
        """The same as toPandas()."""
        return self.toPandas()

    def pl(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """All rows as a polars DataFrame; with ``lazy`` a LazyFrame whose filters and columns reach the scan."""
        import polars

        if lazy:
            return self.source.polars_lazy()
        frame = polars.from_arrow(self._told_apart())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def collect(self) -> list[dict[str, Any]]:
        """All rows as dictionaries. Of two columns with one name the second has a number behind it: ``x``, ``x_1``."""
        return self._told_apart().to_pylist()

    def _told_apart(self) -> pa.Table:
        rows = self.toArrow()
        return rows.rename_columns(told_apart(rows.column_names))

    def count(self) -> int:
        """The number of rows."""
        return self.source.count()

    def limit(self, rows: int) -> Frame:
        """The first ``rows`` rows of it."""
        return Frame(self.source.limit(rows), self.engine, self.session, reads=self.reads)

    def renamed(self, columns: Sequence[tuple[str, str]]) -> Frame:
        """Some columns under other names, as pairs (column, name), in that order."""
        return Frame(self.source.renamed(columns), self.engine, self.session, reads=self.reads)

    def named(self, names: Sequence[str]) -> Frame:
        """All columns under other names, by position."""
        return Frame(self.source.named(names), self.engine, self.session, reads=self.reads)

    def alias(self, name: str) -> Frame:
        """The same rows, known by a name in the condition and the clauses of a merge."""
        return Frame(self.source, self.engine, self.session, name, self.reads)

    @property
    def write(self) -> DataFrameWriter:
        """Write the rows: ``frame.write.mode("append").saveAsTable("sales.orders")``. Raises InvalidConfig for a frame
        that no session made.
        """
        from duckrun.writer import DataFrameWriter

        return DataFrameWriter(self)

    def show(self, rows: int = 20) -> None:
        """Print the first rows as a table."""
        import polars

        head = self.limit(rows).pl()
        with polars.Config(tbl_rows=rows, tbl_hide_dataframe_shape=True):
            print(head)  # noqa: T201 - the reason to call show()

    def createOrReplaceTempView(self, name: str) -> None:
        """Give the frame a name that later statements of this session can read."""
        self.source.create_view(name, self.reads)

    def _repr_html_(self) -> str:
        from duckrun.display.notebook import frame_html

        return frame_html(self)

    def __repr__(self) -> str:
        if self.session is not None and self.session.closed:
            return f"Frame on {self.engine} of a closed session"
        return f"Frame[{', '.join(f'{f.name}: {f.type}' for f in self.schema)}] on {self.engine}"
