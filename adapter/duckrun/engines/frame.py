"""LazyRows: the lazy result of a query, the same for both engines.

A session wraps it in a Frame.
"""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from duckrun.display.notebook import ROWS, rows_html
from duckrun.engines.tabular.pandas_values import pandas_frame
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.libraries import pa
from duckrun.run.pins import NOTHING, Reads
from duckrun.values.attributes import NamesAttributes
from duckrun.values.columns import told_apart
from duckrun.values.options import given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    import polars as pl


def without_arrow_form(column: str, kind: str) -> UnsupportedFeature:
    """Error for a column that is read as Arrow and has no Arrow type."""
    return UnsupportedFeature(
        f"column {column} has the type {kind.upper()}, which has no Arrow form: cast it in the query, leave it out, "
        "or read it as a PySpark DataFrame or a DuckDB relation (native)."
    )


class FrameSource(Protocol):
    """An engine's side of one query.

    Nothing is computed before a method that needs rows is called.
    """

    @property
    def native(self) -> Any:
        """The DuckDB relation or Spark DataFrame."""

    @property
    def bound(self) -> Any:
        """Relation or DataFrame with the columns and types of the rows. It may lack the rows."""

    def schema(self) -> pa.Schema: ...
    def reader(self) -> pa.RecordBatchReader: ...
    def polars(self) -> pl.DataFrame | None:
        """Return all rows as polars reads them from files; None if only the engine can."""

    def polars_lazy(self, check: Callable[[], None]) -> pl.LazyFrame: ...
    def count(self) -> int: ...
    def limit(self, rows: int) -> FrameSource: ...
    def renamed(self, columns: Sequence[tuple[Sequence[str], str]]) -> FrameSource: ...
    def named(self, names: Sequence[str]) -> FrameSource: ...
    def create_view(self, name: str, reads: Reads) -> None: ...


@runtime_checkable
class Projectable(Protocol):
    """A source whose bound query becomes part of another text."""

    def projected(self, names: Sequence[str], columns: Sequence[str]) -> FrameSource: ...


class LazyRows(NamesAttributes):
    """Rows that are computed on demand, from tables that are pinned at one version each.

    Transforms are SQL. For everything else, ``native`` is the DuckDB relation or Spark DataFrame
    underneath.
    """

    _INSTEAD = (
        "Transforms are SQL; collect(), toArrow(), toPandas() and pl() return the rows; native is the DuckDB relation "
        "or the Spark DataFrame, with its methods."
    )
    is_held = False
    """True for rows in a user's hands: names in their query may have changed meaning when they are
    written.
    """

    def __init__(self, source: FrameSource, engine: str, alias: str | None = None, reads: Reads = NOTHING) -> None:
        self._source = source
        self.engine = engine
        self.alias_name = alias
        self.reads = reads
        """Tables that the rows are computed from."""

    @property
    def source(self) -> FrameSource:
        """The engine's query."""
        return self._source

    @property
    def native(self) -> Any:
        """The DuckDB relation or the Spark DataFrame."""
        return self.source.native

    @property
    def schema(self) -> pa.Schema:
        """Columns and their Arrow types. Nothing is computed."""
        return self.source.schema()

    @property
    def columns(self) -> list[str]:
        """Names of the columns, also of those without an Arrow type."""
        return list(self.source.bound.columns)

    def reader(self) -> pa.RecordBatchReader:
        """Stream the rows as Arrow record batches; memory does not grow with their number."""
        return self.source.reader()

    def toArrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        return self.reader().read_all()

    def arrow(self) -> pa.Table:
        """Alias of toArrow()."""
        return self.toArrow()

    def toPandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame.

        Integers with NULLs are float64, or Int64 where float64 would change a value.

        Raises:
            InvalidConfig: pandas is not installed. The error names the extra to install.
        """
        if find_spec("pandas") is None:  # before the rows are read
            raise InvalidConfig(
                "toPandas() needs pandas, which is not installed. Install it with: "
                'pip install "duckrun-dagster[pandas]"'
            )
        return pandas_frame(self.toArrow())

    def df(self) -> pd.DataFrame:
        """Alias of toPandas()."""
        return self.toPandas()

    def pl(self, lazy: bool = False) -> pl.DataFrame | pl.LazyFrame:
        """Return all rows as a polars DataFrame.

        With ``lazy``, return a LazyFrame that pushes its filters and columns down to the scan.
        """
        import polars

        if lazy:
            return self.source.polars_lazy(self.reads.check)
        if (read := self.source.polars()) is not None:
            return read
        frame = polars.from_arrow(self._told_apart())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def collect(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries.

        Of two columns with one name, the second gets a number: ``x``, ``x_1``.

        Raises:
            UnsupportedFeature: A date or time that Python cannot represent, such as infinity.
        """
        rows = self._told_apart()
        try:
            return rows.to_pylist()
        except (OverflowError, ValueError) as error:
            names = [name for name in rows.column_names if not _is_of_python(rows.column(name))]
            if not names:
                raise
            raise UnsupportedFeature(
                f"Column {', '.join(names)} holds infinity, or a date or time outside of the years 1 to 9999, which "
                "Python does not have: read the rows by toArrow(), or cast the column to VARCHAR."
            ) from error

    def _told_apart(self) -> pa.Table:
        rows = self.toArrow()
        return rows.rename_columns(told_apart(rows.column_names))

    def count(self) -> int:
        """Return the number of rows."""
        return self.source.count()

    def limit(self, rows: int) -> Self:
        """The first ``rows`` rows."""
        return self._with(self.source.limit(given(rows, int, "rows", "limit()")))

    def renamed(self, columns: Sequence[tuple[Sequence[str], str]]) -> Self:
        """Select columns, or fields of structs, under other names.

        Args:
            columns: Pairs (path, name), in the order of the result.
        """
        return self._with(self.source.renamed(columns))

    def named(self, names: Sequence[str]) -> Self:
        """All columns under other names, by position."""
        return self._with(self.source.named(names))

    def alias(self, name: str) -> Self:
        """The same rows, under a name for the condition and the clauses of a merge."""
        return self._with(self.source, name)

    def _with(self, source: FrameSource, alias: str | None = None) -> Self:
        """Rows of another query over the same tables."""
        other = copy.copy(self)
        other._source, other.alias_name = source, alias
        return other

    def show(self, rows: int = 20) -> None:
        """Print the first rows as a table."""
        import polars

        head = self.limit(rows).pl()
        with polars.Config(tbl_rows=rows, tbl_hide_dataframe_shape=True):
            print(head)  # noqa: T201 - the reason to call show()

    def createOrReplaceTempView(self, name: str) -> None:
        """Register the frame under a name that later statements of this session can read."""
        self.source.create_view(given(name, str, "name", "createOrReplaceTempView()"), self.reads)

    def _repr_html_(self) -> str:
        return rows_html(self.limit(ROWS + 1).toArrow())

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{', '.join(f'{f.name}: {f.type}' for f in self.schema)}] on {self.engine}"


def projected(rows: LazyRows, names: Sequence[str], columns: Sequence[str]) -> LazyRows | None:
    """Return expressions over bound rows; None if their engine has to look at the query again.

    Args:
        rows: The rows.
        names: New names of all their columns, by position.
        columns: Expressions over these names in the engine's SQL, in the order of the result.
    """
    source = rows.source
    return rows._with(source.projected(names, columns)) if isinstance(source, Projectable) else None


def _is_of_python(column: pa.ChunkedArray) -> bool:
    """True if Python can represent every value of the column."""
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        return False
    return True
