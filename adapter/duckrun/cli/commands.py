"""Commands of ``duckrun`` on tables and lakes.

They are ``duckrun tables|sql|history|snapshots|changes|optimize|vacuum|import|export``, and the
groups ``duckrun maintain`` and ``duckrun branch``.

A command imports its modules when it runs, so that ``duckrun --help`` answers at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from duckrun.cli.branches import branch
from duckrun.cli.lakes import export, import_, maintain
from duckrun.cli.options import DuckLakeOutput, Format, TableName, output, with_session
from duckrun.cli.output import print_as, print_facts, print_result, print_upkeep, time_text
from duckrun.errors import DuckrunError, StorageError

if TYPE_CHECKING:
    from duckrun.session import Session

app = typer.Typer(
    name="duckrun",
    help="A lake of Delta tables, or a DuckLake, read and kept in order by DuckDB or Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(maintain, name="maintain")
app.add_typer(branch, name="branch")
app.command("import")(import_)
app.command("export")(export)


@app.command()
@with_session("engine", read_only=True)
def tables(s: Session, format: Format = None) -> None:
    """List the tables and views. No log is opened."""
    from duckrun.statements.information import held

    rows = sorted(held(s.lake), key=itemgetter(1, 0, 2))  # by name, then by schema
    if not rows:
        s.lake.refuse_other_format()
        typer.echo(s.lake.why_empty(), err=True)
    print_as(("schema", "name", "kind"), rows, output(format))


@app.command()
@with_session(also=("inline_rows", "encrypted", "read_only"))
def sql(
    s: Session,
    statement: Annotated[str, typer.Argument(metavar="SQL", help="One or more statements; - reads them from stdin.")],
    format: Format = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
) -> None:
    """Run SQL and print its rows, or what it changed."""
    print_result(s.sql(sys.stdin.read() if statement == "-" else statement), output(format), limit)


@app.command()
@with_session("engine", read_only=True)
def history(
    s: Session,
    table: TableName,
    format: Format = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest versions only.")] = None,
) -> None:
    """List the versions of a table, newest first."""
    entries = s.table(table).history(limit)
    rows = (
        (entry["version"], time_text(entry["timestamp"]), entry.get("operation"), _metrics(entry)) for entry in entries
    )
    print_as(("version", "time", "operation", "metrics"), rows, output(format))


def _metrics(entry: Mapping[str, Any]) -> str:
    """Return the figures of a commit from the log, else from the commit's own note."""
    noted = {key: value for key, value in (entry.get("duckrun") or {}).items() if key.startswith("rows_")}
    return ", ".join(f"{key}={value}" for key, value in (entry.get("operationMetrics") or noted).items())


@app.command()
@with_session("engine", "schema", read_only=True, unset="ducklake")
def snapshots(
    s: Session,
    format: DuckLakeOutput = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The newest snapshots only.")] = None,
) -> None:
    """List the snapshots of a DuckLake, newest first. Each is a version of all its tables."""
    entries = s.snapshots(limit)
    if not entries:
        s.lake.refuse_other_format()
        raise StorageError(f"There is no DuckLake in {s.lake.root}: nothing was written to it yet.")
    rows = (
        (each["snapshot_id"], time_text(each["timestamp"]), each["changes"], each["author"], each["commit_message"])
        for each in entries
    )
    print_as(("snapshot", "time", "changes", "author", "message"), rows, output(format))


@app.command()
@with_session(read_only=True)
def changes(
    s: Session,
    table: TableName,
    kind: Annotated[Literal["append_only", "upsert", "min_delta", "full_delta"], typer.Argument(help="Which changes.")],
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
    table_id: Annotated[
        str | None,
        typer.Option(help="The id of the table that --from-version is of; an error if it was dropped since."),
    ] = None,
    format: Format = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
) -> None:
    """Print the changes of a table's rows since a version."""
    result = s.table(table).changes(
        kind,
        from_version,
        to_version,
        from_timestamp=from_timestamp,
        key=key or (),
        columns=column or None,
        predicate=where,
        commit_version=commit_version,
        table_id=table_id,
    )
    print_result(result, output(format), limit)


@app.command()
@with_session()
def optimize(
    s: Session,
    table: TableName,
    where: Annotated[str | None, typer.Option(help="Only the partitions for which this is true.")] = None,
    zorder: Annotated[list[str] | None, typer.Option(metavar="COLUMN", help="Z-order by a column; may repeat.")] = None,
) -> None:
    """Make fewer, larger files of a table's files; its rows stay the same."""
    builder = s.table(table).optimize()
    builder = builder if where is None else builder.where(where)
    print_facts(builder.executeZOrderBy(*zorder) if zorder else builder.executeCompaction())


@app.command()
@with_session()
def vacuum(
    s: Session,
    table: TableName,
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
    """Remove files that no recent version of a table uses.

    Older versions cannot be read afterwards.
    """
    from duckrun.values.tables import VacuumSpec

    spec = VacuumSpec(retention_hours, dry_run=dry_run, enforce_retention=not force)
    print_upkeep(s.execute(s.table(table).ref, spec))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    An error that the user can correct is one line on stderr and exit code 1.
    """
    try:
        app(args=None if arguments is None else list(arguments))
    except Exception as error:
        of_engine = type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb", "pyspark")
        if not isinstance(error, DuckrunError) and not of_engine:
            raise
        typer.echo(f"duckrun: {' '.join(str(error).split())}", err=True)
        raise SystemExit(1) from None
