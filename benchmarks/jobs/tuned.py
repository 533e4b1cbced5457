"""deltalake, as somebody who knows it sets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SPILL = 1024**3
"""Bytes after which a merge spills: what keeps one of a table larger than memory alive."""
SPILL_OF_ALL = 9 * SPILL
"""The same for a merge that reads the whole table. With less, the join fails, or a streamed one waits for ever (1.6.6)."""


def properties() -> Any:
    """Snappy, as DuckDB writes it here, and row groups of its own default number of rows."""
    from deltalake import WriterProperties

    return WriterProperties(compression="SNAPPY")


def write(table: Path, rows: Any, **named: Any) -> None:
    from deltalake import write_deltalake

    write_deltalake(str(table), rows, writer_properties=properties(), **named)


def merge(table: Path, source: Any, on: str, *, whole: bool = False) -> Any:
    """A merge that may spill, and whose source's statistics prune the target's files (``streamed_exec=False``).

    One that reads the whole table has nothing to prune, and streams its source.
    """
    from deltalake import DeltaTable

    return DeltaTable(str(table)).merge(
        source,
        on,
        source_alias="source",
        target_alias="target",
        max_spill_size=SPILL_OF_ALL if whole else SPILL,
        streamed_exec=whole,
        writer_properties=properties(),
    )
