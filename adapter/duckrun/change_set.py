"""ChangeSet: the lazy result of a change query, the same on both engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from duckrun.changes.applying import unfit_identity
from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.display.notebook import facts_html
from duckrun.frame import Frame
from duckrun.run.pins import NOTHING
from duckrun.values.changes import Identity, Source
from duckrun.values.rows import ReadSpec
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.sessions.tables import TableSession


class ChangeSet(Frame):
    """Changes of a table between two versions: a Frame that knows its range and sources.

    Example::

        s.table("sales.orders").changes("upsert", from_version=-1, key=["id"]).show()
    """

    session: TableSession

    def __init__(self, session: TableSession, ref: TableRef, spec: ChangeSpec) -> None:
        newest, reads = None, NOTHING
        if spec.to_version is None:
            newest = session.snapshot(ref)
            reads = session.reading(newest, ReadSpec())
        answer = Changes(session.lakes.of(ref).format, ref, spec, newest)
        engine = session.engine
        engine.reach(session.lakes.of(ref))
        rows = answer.rows(engine)
        super().__init__(rows.source, rows.engine, session, reads=reads)
        self.ref, self.spec = ref, spec
        self.from_version, self.to_version = answer.from_version, answer.to_version
        self.table_id = answer.to.table_id
        """Id of the table.

        Store it with ``to_version`` to detect a table that replaced this one.
        """
        self.identity: Identity = answer.identity
        """Identity of rows: key, row_id or none."""
        self.sources: Mapping[int, Source] = answer.sources
        """Source of each commit's rows, by version: feed, row_tracking or files."""

    def counts(self) -> dict[str, int]:
        """Compute the number of rows of each change type."""
        rows = self.source.native
        column = "_change_type"
        if column not in self.columns:
            return {"insert": self.count()}
        if self.engine == "spark":
            groups = [tuple(row) for row in rows.groupBy(column).count().collect()]
        else:
            groups = rows.aggregate(f"{column}, count(*)").fetchall()
        return dict(sorted(groups))

    def _repr_html_(self) -> str:
        facts = {
            "versions": f"after {self.from_version}, up to {self.to_version}",
            "identity": ", ".join(self.spec.key) if self.identity == "key" else self.identity,
            **self.counts(),
        }
        return facts_html(f"{self.spec.kind} of {self.ref}", facts) + super()._repr_html_()

    def unfit_for_keys(self, keys: Sequence[str]) -> str | None:
        """Return why these changes cannot be applied by key, or None if they pair rows by it."""
        pairs_rows = self.spec.kind in ("min_delta", "full_delta")
        return unfit_identity(keys, self.identity, self.spec.key) if pairs_rows else None

    def before(self) -> Frame:
        """Return the table's rows before the range, with the query's columns and predicate."""
        return self.after().limit(0) if self.from_version == -1 else self._state(self.from_version)

    def after(self) -> Frame:
        """Return the table's rows after the range, with the query's columns and predicate."""
        return self._state(self.to_version)

    def _state(self, version: int) -> Frame:
        spec = self.spec
        return self.session.scan(self.ref, ReadSpec(spec.columns, spec.predicate, version, dialect=spec.dialect))

    def computed(self, rows: Frame) -> ChangeSet:
        """Return this result with its rows already computed and stored elsewhere."""
        return self._with(rows.source)
