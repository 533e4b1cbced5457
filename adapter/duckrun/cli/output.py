"""Output of the command line: rows as a table, CSV or JSON; results with one field per line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from duckrun.frame import Frame


def print_result(result: Any, format: str, limit: int) -> None:
    """Print the rows of a query, or the fields of another result."""
    from duckrun.frame import Frame

    if not isinstance(result, Frame):
        print_facts(result)
        return
    if format == "table" and limit:
        rows = result.limit(limit + 1).collect()
        print_as(result.columns, (row.values() for row in rows[:limit]), format)
        if len(rows) > limit:
            typer.echo(f"the first {limit} rows; --limit 0 shows all", err=True)
        return
    print_as(result.columns, _streamed(result), format)


def _streamed(frame: Frame) -> Iterator[Sequence[Any]]:
    for batch in frame.reader():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def print_facts(result: Any) -> None:
    """Print a Commit or another result, one field per line, without unknown values."""
    from dataclasses import fields

    facts = [
        (f.name, _listed(getattr(result, f.name)))
        for f in fields(result)
        if f.name not in ("memory", "removed", "actions")
    ]
    print_rows((), [fact for fact in facts if fact[1] not in (None, "") and fact[1] is not False])


def print_upkeep(result: Any) -> None:
    """Print a result of maintenance, and each file that it removed or table that it restored."""
    print_facts(result)
    for line in (*getattr(result, "removed", ()), *getattr(result, "actions", ())):
        typer.echo(line)


def _listed(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def print_as(columns: Sequence[str], rows: Iterable[Iterable[Any]], format: str) -> None:
    """Print rows as a table, as CSV or as JSON."""
    if format == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(["" if value is None else _plain(value) for value in row] for row in rows)
    elif format == "json":
        import json

        separator = "["
        for row in rows:
            typer.echo(separator + json.dumps(dict(zip(columns, row, strict=True)), default=_plain, ensure_ascii=False))
            separator = ","
        typer.echo("]" if separator == "," else "[]")
    else:
        print_rows(columns, rows)


def print_rows(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print rows with lines and colours on a terminal, else as plain, full-width columns."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[value if value is None else _plain(value) for value in row] for row in rows]
    terminal = sys.stdout.isatty()
    shown = Table(box=box.SIMPLE_HEAD if terminal else None, show_header=bool(columns), pad_edge=False)
    for index, name in enumerate(columns or ("", "")):
        numbers = all(isinstance(row[index], int | float) for row in cells if row[index] is not None)
        shown.add_column(Text(name), justify="right" if numbers and cells and columns else "left", overflow="fold")
    for row in cells:
        shown.add_row(*(Text("NULL", "dim") if value is None else Text(str(value)) for value in row))
    console = Console() if terminal else Console(width=1_000_000, no_color=True)
    with console.capture() as printed:
        console.print(shown)
    typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))


def time_text(milliseconds: int) -> str:
    """Return milliseconds since 1970 as a time in ISO 8601."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """Return a value as a number or text: times in ISO 8601, bytes in hexadecimal."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
