"""What a notebook shows of a Frame, a Table and a Commit: small HTML tables, every value escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckrun.frame import Frame
    from duckrun.table import Table
    from duckrun.values.rows import Commit

ROWS = 10
_WIDEST = 200  # characters of one value


def is_notebook() -> bool:
    """True in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def is_interactive() -> bool:
    """True where somebody watches: a terminal or a notebook. Progress is shown there only."""
    return is_notebook() or (sys.stdout is not None and sys.stdout.isatty())


def frame_html(frame: Frame, rows: int = ROWS) -> str:
    """The first rows of a frame; the number of all of them is not computed."""
    head = frame.limit(rows + 1).toArrow()
    names = [(field.name, str(field.type)) for field in frame.schema]
    shown = [[_text(value) for value in row.values()] for row in head.slice(0, rows).to_pylist()]
    more = f"<p>the first {rows} rows; there are more</p>" if head.num_rows > rows else ""
    return _table([name for name, _ in names], shown, titles=[kind for _, kind in names]) + more


def table_html(table: Table) -> str:
    """A table's name, place and state, and its first rows."""
    detail = table.detail()
    facts = {
        "location": detail["location"],
        "version": detail["version"],
        "partitioned by": ", ".join(detail["partitionColumns"]) or "nothing",
        "files": detail["numFiles"],
        "size": readable_bytes(detail["sizeInBytes"]),
        "description": detail["description"],
    }
    return f"<h4>{escape(str(table.ref))}</h4>{_facts(facts)}{frame_html(table.toDF(version=detail['version']))}"


def commit_html(commit: Commit) -> str:
    """What a commit did. What the log does not say is left out."""
    facts = {
        "mode": commit.mode,
        "engine": commit.engine,
        "writer": f"{commit.writer}: {commit.reason}" if commit.reason else commit.writer,
        "rows inserted": commit.rows_inserted,
        "rows updated": commit.rows_updated,
        "rows deleted": commit.rows_deleted,
        "files added": commit.files_added,
        "files removed": commit.files_removed,
        "bytes added": None if commit.bytes_added is None else readable_bytes(commit.bytes_added),
        "seconds": commit.seconds,
        "replayed": "yes: this was committed before" if commit.replayed else None,
    }
    return f"<h4>{escape(commit.table)}, version {commit.version}</h4>{_facts(facts)}"


def readable_bytes(count: float) -> str:
    """A number of bytes in a unit that people read.

    >>> readable_bytes(1536)
    '1.5 KiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _facts(facts: Mapping[str, Any]) -> str:
    return _table([], [[name, _text(value)] for name, value in facts.items() if value is not None])


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], titles: Sequence[str] = ()) -> str:
    head = "".join(
        f'<th title="{escape(title)}">{escape(name)}</th>' for name, title in zip(names, titles, strict=True)
    )
    body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
