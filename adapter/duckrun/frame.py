"""Frame: the lazy result of a query, the same on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.engines.frame import FrameSource, LazyRows
from duckrun.run.pins import NOTHING, Reads

if TYPE_CHECKING:
    from duckrun.session import Session
    from duckrun.writer import DataFrameWriter


class Frame(LazyRows):
    """Lazy rows of a session's query; each table is pinned at one version.

    Transforms are SQL. ``native`` is the DuckDB relation or Spark DataFrame underneath, for
    everything else.

    Example::

        s.sql("select item, count(*) as n from sales.orders group by item").pl()
    """

    is_held = True

    def __init__(
        self,
        source: FrameSource,
        engine: str,
        session: Session | None = None,
        alias: str | None = None,
        reads: Reads = NOTHING,
    ) -> None:
        super().__init__(source, engine, alias, reads)
        self.session = session

    @property
    def source(self) -> FrameSource:
        """The engine's query.

        Raises:
            InvalidConfig: The session of the frame is closed.
            VersionNotReadable: A table that it reads was dropped and created again since.
            TableNotFound: A table that it reads was dropped since.
        """
        if self.session is not None:
            self.session.ensure_open()
            self.reads.check()
        return self._source

    @property
    def write(self) -> DataFrameWriter:
        """Writer of the rows: ``frame.write.mode("append").saveAsTable("sales.orders")``.

        Raises:
            InvalidConfig: The frame belongs to no session.
        """
        from duckrun.writer import DataFrameWriter

        return DataFrameWriter(self)

    def __repr__(self) -> str:
        if self.session is not None and self.session.closed:
            return f"Frame on {self.engine} of a closed session"
        return super().__repr__()
