"""Output for notebooks: small HTML tables, with every value escaped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 10
_WIDEST = 200  # characters per value


def is_notebook() -> bool:
    """True in a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def rows_html(head: pa.Table) -> str:
    """Return the first rows of a table as HTML.

    Args:
        head: Up to ``ROWS`` rows, and one more if the table has more.
    """
    names = [(field.name, str(field.type)) for field in head.schema]
    shown = [[_text(value) for value in row.values()] for row in head.slice(0, ROWS).to_pylist()]
    more = f"<p>the first {ROWS} rows; there are more</p>" if head.num_rows > ROWS else ""
    return _table([name for name, _ in names], shown, titles=[kind for _, kind in names]) + more


def facts_html(title: str, facts: Mapping[str, Any]) -> str:
    """Return a title over a table of facts as HTML, without those that are None."""
    return f"<h4>{escape(title)}</h4>" + _table([], [[k, _text(v)] for k, v in facts.items() if v is not None])


def table_html(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a title over a table of records as HTML; columns without any value are left out."""
    names = [name for name in (rows[0] if rows else ()) if any(row[name] not in (None, ()) for row in rows)]
    shown = [["" if row[name] is None else _text(row[name]) for name in names] for row in rows]
    return f"<h4>{escape(title)}</h4>" + _table(names, shown, titles=[""] * len(names))


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]], titles: Sequence[str] = ()) -> str:
    head = "".join(
        f'<th title="{escape(title)}">{escape(name)}</th>' for name, title in zip(names, titles, strict=True)
    )
    body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
