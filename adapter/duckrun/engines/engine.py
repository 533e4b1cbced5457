"""The seam between the lake and what computes: an engine scans and executes, and knows its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

    from duckrun.frame import Frame
    from duckrun.specs import Commit, ReadSpec, Spec
    from duckrun.storage import Storage
    from duckrun.table import Scan, Snapshot
    from duckrun.transaction import Transaction


@runtime_checkable
class Engine(Protocol):
    """DuckDB or Spark. Everything above this seam is written once for both."""

    name: str

    def scan(self, snapshot: Snapshot, spec: ReadSpec) -> Frame:
        """The rows of one snapshot, pruned by columns and predicate: lazy."""

    def open(self, scan: Scan) -> Frame:
        """The rows of the files of a scan, which may come from another process."""

    def query(self, sql: str, tables: dict[str, Snapshot], dialect: str) -> Frame:
        """A SELECT whose table names (the keys of ``tables``) stand for pinned snapshots: lazy."""

    def reach(self, storage: Storage) -> None:
        """Take the credentials of another lake, so that its tables can be read and written. Again is fine."""

    def accepts(self, value: Any) -> bool:
        """True if this engine must be the one that writes this value."""

    def execute(self, spec: Spec, source: Any | None, transaction: Transaction) -> Commit:
        """Carry out one spec as one commit. ``source`` is any value the session accepts, or None."""

    def schema_of(self, source: Any) -> pa.Schema:
        """The schema a source would be written with."""

    def register(self, name: str, value: Any) -> None:
        """Give a Frame or a local table a name that later queries can read."""

    def has_name(self, name: str) -> bool:
        """True for a name that was given by register() or by a frame."""

    def close(self) -> None:
        """Give back what the engine holds. A Spark session that was handed in stays open."""
