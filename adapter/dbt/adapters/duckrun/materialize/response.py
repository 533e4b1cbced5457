"""dbt's response of a node: the Commit, in run_results.json and in the log line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dbt.adapters.contracts.connection import AdapterResponse

from duckrun.values.rows import Commit


@dataclass
class DuckrunResponse(AdapterResponse):
    """A Commit, with the versions that the node read. Absent fields are unknown."""

    table: str | None = None
    location: str | None = None
    version: int | None = None
    mode: str | None = None
    engine: str | None = None
    writer: str | None = None
    reason: str | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    files_marked: int | None = None
    files_pruned: int | None = None
    bytes_added: int | None = None
    seconds: float | None = None
    memory: dict[str, int] | None = None
    peak_bytes: int | None = None
    replayed: bool | None = None
    retracted: dict[str, Any] | None = None
    reads: dict[str, int] = field(default_factory=dict)
    """Version of each table that the node's SQL names."""

    @classmethod
    def of_commit(cls, commit: Commit, reads: Mapping[str, int]) -> DuckrunResponse:
        """Return the response of a commit."""
        values: dict[str, Any] = {f.name: getattr(commit, f.name) for f in fields(Commit)}
        values |= {name: asdict(values[name]) for name in ("memory", "retracted") if values[name]}
        counts = [commit.rows_inserted, commit.rows_updated, commit.rows_deleted]
        known = [count for count in counts if count is not None]
        return cls(
            _message=message(commit),
            code=commit.mode,
            rows_affected=sum(known) if known else None,
            reads=dict(reads),
            **values,
        )


def message(commit: Commit) -> str:
    """Return the text at the end of dbt's line: ``merge v4 +10 ~5 -0``."""
    signs = (("+", commit.rows_inserted), ("~", commit.rows_updated), ("-", commit.rows_deleted))
    counts = " ".join(f"{sign}{count:,}" for sign, count in signs if count)
    return " ".join(filter(None, [commit.mode, f"v{commit.version}", counts, "replayed" if commit.replayed else ""]))
