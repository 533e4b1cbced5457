"""The command line: ``duckrun tables|sql|history|changes|optimize|vacuum|maintain --root …``.

What a command needs is imported when it runs, so that ``duckrun --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from duckrun.cli_lakes import maintain
from duckrun.errors import DuckrunError, InvalidConfig

if TYPE_CHECKING:
    from duckrun.frame import Frame
    from duckrun.session import Session

app = typer.Typer(
    name="duckrun",
    help="A lake of Delta tables, or a DuckLake, read and kept in order by DuckDB or Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(maintain, name="maintain")

Root = Annotated[
    str, typer.Option(envvar="DUCKRUN_ROOT", help="Folder of the lake, or its s3://, az://, abfss://, gs:// URL.")
]
Engine = Annotated[Literal["duckdb", "spark"], typer.Option(help="What reads and computes.")]
Schema = Annotated[str, typer.Option(help="Schema of names that have none.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help="Credentials and settings; may repeat."),
]
Format = Annotated[Literal["table", "csv", "json"], typer.Option("--format", help="Form of the output.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="name, or schema.name")]


@app.command()
def tables(root: Root, schema: Schema = "main", storage_option: StorageOption = None, format: Format = "table") -> None:
    """List the tables and views. No log is opened."""
    with _session(root, "duckdb", schema, storage_option, read_only=True) as s:
        found = [
            (name, folder, kind)
            for folder in s.lake.schemas()
            for kind, names in (("table", s.lake.tables(folder)), ("view", s.lake.views(folder)))
            for name in names
        ]
    _print(("schema", "name", "kind"), ((folder, name, kind) for name, folder, kind in sorted(found)), format)


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="SQL", help="One or more statements; - reads them from stdin.")],
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: Format = "table",
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse statements that write.")] = False,
) -> None:
    """Run SQL and print its rows, or what it changed."""
    text = sys.stdin.read() if statement == "-" else statement
    with _session(root, engine, schema, storage_option, read_only=read_only) as s:
        _print_result(s.sql(text), format, limit)


@app.command()
def history(
    table: TableName,
    root: Root,
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: Format = "table",
    limit: Annotated[int | None, typer.Option(min=1, help="The newest versions only.")] = None,
) -> None:
    """The versions of a table, newest first."""
    from datetime import UTC, datetime

    with _session(root, "duckdb", schema, storage_option, read_only=True) as s:
        entries = s.table(table).history(limit)
    rows = (
        (
            entry["version"],
            datetime.fromtimestamp(entry["timestamp"] / 1000, UTC).isoformat(timespec="seconds"),
            entry.get("operation"),
            ", ".join(f"{key}={value}" for key, value in (entry.get("operationMetrics") or {}).items()),
        )
        for entry in entries
    )
    _print(("version", "time", "operation", "metrics"), rows, format)


@app.command()
def changes(
    table: TableName,
    kind: Annotated[Literal["append_only", "upsert", "min_delta", "full_delta"], typer.Argument(help="Which changes.")],
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    from_version: Annotated[int | None, typer.Option(min=-1, help="The last version seen; -1 is none.")] = None,
    from_timestamp: Annotated[str | None, typer.Option(help="The newest version at or before a time, instead.")] = None,
    to_version: Annotated[
        int | None, typer.Option(min=0, help="The last version to look at; unset: the newest.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="By what a row is the same one; may repeat.")
    ] = None,
    column: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Only this column; may repeat.")] = None,
    where: Annotated[str | None, typer.Option(help="Only the rows for which this is true.")] = None,
    commit_version: Annotated[
        bool, typer.Option("--commit-version", help="With append_only and upsert: the version of each row.")
    ] = False,
    format: Format = "table",
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
) -> None:
    """What happened to the rows of a table since a version."""
    with _session(root, engine, schema, storage_option, read_only=True) as s:
        found = s.table(table).changes(
            kind,
            from_version,
            to_version,
            from_timestamp=from_timestamp,
            key=key or (),
            columns=column or None,
            predicate=where,
            commit_version=commit_version,
        )
        _print_result(found, format, limit)


@app.command()
def optimize(
    table: TableName,
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    where: Annotated[str | None, typer.Option(help="Only the partitions for which this is true.")] = None,
    zorder: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Z-order by a column; may repeat.")] = None,
) -> None:
    """Make fewer, larger files of a table's files; its rows stay the same."""
    with _session(root, engine, schema, storage_option) as s:
        builder = s.table(table).optimize()
        builder = builder if where is None else builder.where(where)
        with _working(f"optimizing {table}"):
            result = builder.executeZOrderBy(*zorder) if zorder else builder.executeCompaction()
    print_facts(result)


@app.command()
def vacuum(
    table: TableName,
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    retention_hours: Annotated[
        float | None,
        typer.Option(min=0, help="Keep what versions younger than this use. Unset: the table's own, a week."),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Less than the table's own retention too: running readers and writers may fail."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the files.")] = False,
) -> None:
    """Remove files that no recent version of a table uses. Older versions cannot be read afterwards."""
    from duckrun.values.tables import VacuumSpec

    with _session(root, engine, schema, storage_option) as s, _working(f"vacuuming {table}"):
        result: Any = s.execute(
            s.table(table).ref, VacuumSpec(retention_hours, dry_run=dry_run, enforce_retention=not force)
        )
    print_facts(result)
    for path in result.removed:
        typer.echo(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: exit code 1 and one line on stderr for what the user can put right."""
    try:
        app(args=None if arguments is None else list(arguments))
    except Exception as error:
        of_engine = type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb", "pyspark")
        if not isinstance(error, DuckrunError) and not of_engine:
            raise
        typer.echo(f"duckrun: {' '.join(str(error).split())}", err=True)
        raise SystemExit(1) from None


# -- in and out


def _session(
    root: str,
    engine: Literal["duckdb", "spark"],
    schema: str,
    options: Iterable[str] | None,
    *,
    read_only: bool = False,
) -> Session:
    from duckrun.session import connect

    given = storage_options(options)
    return connect(root, engine=engine, schema=schema, storage_options=given, read_only=read_only)


def storage_options(options: Iterable[str] | None) -> dict[str, str]:
    """What --storage-option says. Raises InvalidConfig."""
    given = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise InvalidConfig(f"--storage-option {key} is not KEY=VALUE.")
        given[key] = value
    return given


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A sign of life on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def _print_result(result: Any, format: str, limit: int) -> None:
    from duckrun.frame import Frame

    if not isinstance(result, Frame):
        print_facts(result)
        return
    if format == "table" and limit:
        rows = result.limit(limit + 1).collect()
        _print(result.columns, (row.values() for row in rows[:limit]), format)
        if len(rows) > limit:
            typer.echo(f"the first {limit} rows; --limit 0 shows all", err=True)
        return
    _print(result.columns, _streamed(result), format)


def _streamed(frame: Frame) -> Iterator[Sequence[Any]]:
    for batch in frame.reader():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def print_facts(result: Any) -> None:
    """A Commit or another result, one field a line; what is not known is left out."""
    from dataclasses import fields

    facts = [
        (f.name, _listed(getattr(result, f.name)))
        for f in fields(result)
        if f.name not in ("memory", "removed", "actions")
    ]
    _print_table((), [fact for fact in facts if fact[1] not in (None, "") and fact[1] is not False])


def _listed(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, tuple) else value


def _print(columns: Sequence[str], rows: Iterable[Iterable[Any]], format: str) -> None:
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
        _print_table(columns, rows)


def _print_table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """With lines and colours on a terminal; in a pipe plain columns of whatever width they need."""
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


def _plain(value: Any) -> Any:
    """A value as text, where it is not a number: times in ISO 8601, bytes in hexadecimal."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
