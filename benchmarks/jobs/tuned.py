"""deltalake, as somebody who knows it sets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPILL = 1024**3
"""Bytes after which a merge spills: what keeps one of a table larger than memory alive."""


def properties() -> Any:
    """Snappy, as DuckDB writes it here, and row groups of its own default number of rows."""
    from deltalake import WriterProperties

    return WriterProperties(compression="SNAPPY")


def write(table: Path, rows: Any, **named: Any) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(table), rows, writer_properties=properties(), **named)


def merge(table: Path, source: Any, on: str) -> Any:
    """A merge that may spill, and whose source's statistics prune the target's files (``streamed_exec=False``)."""
    from deltalake import DeltaTable

    return DeltaTable(str(table)).merge(
        source,
        on,
        source_alias="source",
        target_alias="target",
        max_spill_size=SPILL,
        streamed_exec=False,
        writer_properties=properties(),
    )
