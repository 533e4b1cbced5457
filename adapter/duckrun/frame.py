"""Frame: the lazy result of a query, the same on both engines."""

from __future__ import annotations

from collections.abc import Sequence

from duckrun.engines.frame import FrameSource, LazyRows
from duckrun.errors import InvalidConfig
from duckrun.run.pins import NOTHING, Reads
from duckrun.writer import DataFrameWriter, WritingSession


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
        session: WritingSession | None = None,
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
        if self.session is None:
            raise InvalidConfig("This frame was made by no session; write it by session.execute(name, spec, frame).")
        return DataFrameWriter(self.session, self)

    def unfit_for_keys(self, keys: Sequence[str]) -> str | None:
        """Return why these rows cannot be applied to a table as changes by key, or None."""
        return None

    def __repr__(self) -> str:
        if self.session is not None and self.session.closed:
            return f"Frame on {self.engine} of a closed session"
        return super().__repr__()
