"""The command line: ``duckrun tables|sql|history|snapshots|changes|optimize|vacuum|maintain|import|export --root …``.

What a command needs is imported when it runs, so that ``duckrun --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from duckrun.cli_lakes import export, import_, maintain
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
app.command("import")(import_)
app.command("export")(export)

Root = Annotated[
    str, typer.Option(envvar="DUCKRUN_ROOT", help="Folder of the lake, or its s3://, az://, abfss://, gs:// URL.")
]
Engine = Annotated[Literal["duckdb", "spark"], typer.Option(help="What reads and computes.")]
Schema = Annotated[str, typer.Option(help="Schema of names that have none.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help="Credentials and settings; may repeat."),
]


class _Lake(StrEnum):  # typer takes no list of literals
    delta = "delta"
    ducklake = "ducklake"


class _Any(StrEnum):
    delta = "delta"
    ducklake = "ducklake"
    table = "table"
    csv = "csv"
    json = "json"


LakeFormat = Annotated[
    list[_Lake] | None,
    typer.Option("--format", help="The lake's format; unset: DUCKRUN_FORMAT, else delta, or ducklake with a catalog."),
]
Format = Annotated[
    list[_Any] | None,
    typer.Option(
        "--format", help="The lake's format, delta or ducklake, and the output's, table, csv or json; may repeat."
    ),
]
Catalog = Annotated[
    str | None,
    typer.Option(
        envvar="DUCKRUN_CATALOG",
        help="Of a DuckLake: sqlite:<file>, postgres:<dsn>, duckdb:<file>. Unset: catalog.sqlite in the root.",
        show_envvar=True,
    ),
]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="name, or schema.name")]


@app.command()
def tables(
    root: Root,
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: Format = None,
    catalog: Catalog = None,
) -> None:
    """List the tables and views. No log is opened."""
    with _session(root, "duckdb", schema, storage_option, format, catalog, read_only=True) as s:
        found = [
            (name, folder, kind)
            for folder in s.lake.schemas()
            for kind, names in (("table", s.lake.tables(folder)), ("view", s.lake.views(folder)))
            for name in names
        ]
    _print(("schema", "name", "kind"), ((folder, name, kind) for name, folder, kind in sorted(found)), _output(format))


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="SQL", help="One or more statements; - reads them from stdin.")],
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: Format = None,
    catalog: Catalog = None,
    inline_rows: Annotated[
        int | None, typer.Option(min=0, help="Of a DuckLake: up to how many rows of an insert lie in the catalog.")
    ] = None,
    encrypted: Annotated[
        bool, typer.Option("--encrypted", help="Of a DuckLake that is made: its files are encrypted.")
    ] = False,
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse statements that write.")] = False,
) -> None:
    """Run SQL and print its rows, or what it changed."""
    text = sys.stdin.read() if statement == "-" else statement
    words = {"read_only": read_only, "inline_rows": inline_rows, "encrypted": encrypted or None}
    with _session(root, engine, schema, storage_option, format, catalog, **words) as s:
        _print_result(s.sql(text), _output(format), limit)


@app.command()
def history(
    table: TableName,
    root: Root,
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: Format = None,
    catalog: Catalog = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest versions only.")] = None,
) -> None:
    """The versions of a table, newest first."""
    with _session(root, "duckdb", schema, storage_option, format, catalog, read_only=True) as s:
        entries = s.table(table).history(limit)
    rows = ((entry["version"], _time(entry["timestamp"]), entry.get("operation"), _metrics(entry)) for entry in entries)
    _print(("version", "time", "operation", "metrics"), rows, _output(format))


def _time(milliseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")


def _metrics(entry: Mapping[str, Any]) -> str:
    """The figures of a commit: those that the log has, else those that its own note has."""
    noted = {key: value for key, value in (entry.get("duckrun") or {}).items() if key.startswith("rows_")}
    return ", ".join(f"{key}={value}" for key, value in (entry.get("operationMetrics") or noted).items())


@app.command()
def snapshots(
    root: Root,
    storage_option: StorageOption = None,
    format: Format = None,
    catalog: Catalog = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest snapshots only.")] = None,
) -> None:
    """The snapshots of a DuckLake, newest first: each is a version of all its tables."""
    with _session(root, "duckdb", "main", storage_option, format, catalog, read_only=True) as s:
        found = s.snapshots(limit)
    rows = (
        (each["snapshot_id"], _time(each["timestamp"]), each["changes"], each["author"], each["commit_message"])
        for each in found
    )
    _print(("snapshot", "time", "changes", "author", "message"), rows, _output(format))


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
    format: Format = None,
    catalog: Catalog = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
) -> None:
    """What happened to the rows of a table since a version."""
    with _session(root, engine, schema, storage_option, format, catalog, read_only=True) as s:
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
        _print_result(found, _output(format), limit)


@app.command()
def optimize(
    table: TableName,
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    where: Annotated[str | None, typer.Option(help="Only the partitions for which this is true.")] = None,
    zorder: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Z-order by a column; may repeat.")] = None,
    format: LakeFormat = None,
    catalog: Catalog = None,
) -> None:
    """Make fewer, larger files of a table's files; its rows stay the same."""
    with _session(root, engine, schema, storage_option, format, catalog) as s:
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
    format: LakeFormat = None,
    catalog: Catalog = None,
) -> None:
    """Remove files that no recent version of a table uses. Older versions cannot be read afterwards."""
    from duckrun.values.tables import VacuumSpec

    with _session(root, engine, schema, storage_option, format, catalog) as s, _working(f"vacuuming {table}"):
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
    formats: Sequence[str] | None,
    catalog: str | None,
    **words: Any,
) -> Session:
    """A session on a lake. ``words`` are more of connect()'s. Raises InvalidConfig."""
    from duckrun.session import connect
    from duckrun.values.lake_format import DUCKLAKE, FORMATS

    named = [str(each) for each in formats or () if each in FORMATS]
    if len(set(named)) > 1:
        raise InvalidConfig(f"--format names {' and '.join(named)}: a lake is of one format.")
    form = named[0] if named else os.environ.get("DUCKRUN_FORMAT") or (DUCKLAKE if catalog else FORMATS[0])
    given = storage_options(options)
    return connect(root, engine=engine, schema=schema, storage_options=given, format=form, catalog=catalog, **words)


def _output(formats: Sequence[str] | None) -> str:
    """The form of the output: the last one that --format names, else a table."""
    return next((str(each) for each in reversed(formats or ()) if each in ("table", "csv", "json")), "table")


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
    print_rows((), [fact for fact in facts if fact[1] not in (None, "") and fact[1] is not False])


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
        print_rows(columns, rows)


def print_rows(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
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
