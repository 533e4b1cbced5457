"""ChangeSet: the lazy answer of a change query, the same on both engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.display.notebook import facts_html
from duckrun.frame import Frame
from duckrun.run.pins import NOTHING
from duckrun.values.changes import Identity, Source
from duckrun.values.rows import ReadSpec
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.session import Session


class ChangeSet(Frame):
    """What happened to a table between two versions: a Frame of the rows, which knows its range, its ``identity`` (key, row_id or
    none) and, for each commit of the range, the ``source`` of its rows (feed, row_tracking or files).

    Example::

        s.table("sales.orders").changes("upsert", from_version=-1, key=["id"]).show()
    """

    def __init__(self, session: Session, ref: TableRef, spec: ChangeSpec) -> None:
        newest, reads = None, NOTHING
        if spec.to_version is None:
            newest = session.snapshot(ref)
            reads = session.reading(newest, ReadSpec())
        found = Changes(session.lakes.of(ref).format, ref, spec, newest)
        engine = session.engine
        engine.reach(session.lakes.of(ref))
        rows = found.rows(engine)
        super().__init__(rows.source, rows.engine, session, reads=reads)
        self.ref, self.spec = ref, spec
        self.from_version, self.to_version = found.from_version, found.to_version
        self.table_id = found.to.table_id
        """The id of the table. A consumer that stores it beside ``to_version`` is told when another table has taken its place."""
        self.identity: Identity = found.identity
        self.sources: Mapping[int, Source] = found.sources

    def counts(self) -> dict[str, int]:
        """How many rows there are of each change type: computed now."""
        rows = self.source.native
        column = "_change_type"
        if column not in self.columns:
            return {"insert": self.count()}
        if self.engine == "spark":
            found = [tuple(row) for row in rows.groupBy(column).count().collect()]
        else:
            found = rows.aggregate(f"{column}, count(*)").fetchall()
        return dict(sorted(found))

    def _repr_html_(self) -> str:
        assert self.session is not None
        facts = {
            "versions": f"after {self.from_version}, up to {self.to_version}",
            "identity": ", ".join(self.spec.key) if self.identity == "key" else self.identity,
            **self.counts(),
        }
        return facts_html(f"{self.spec.kind} of {self.ref}", facts) + super()._repr_html_()

    def before(self) -> Frame:
        """The rows of the table at the beginning of the range, in the columns of the query and those that its predicate is true for."""
        return self.after().limit(0) if self.from_version == -1 else self._state(self.from_version)

    def after(self) -> Frame:
        """The same at the end of the range."""
        return self._state(self.to_version)

    def _state(self, version: int) -> Frame:
        assert self.session is not None
        spec = self.spec
        return self.session.scan(self.ref, ReadSpec(spec.columns, spec.predicate, version, dialect=spec.dialect))

    def computed(self, rows: Frame) -> ChangeSet:
        """This answer, whose rows were computed and lie elsewhere."""
        return self._with(rows.source)
