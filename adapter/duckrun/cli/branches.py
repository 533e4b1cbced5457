"""Commands on the branches of a lake: ``duckrun branch list|diff|publish|discard``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from duckrun.cli.options import Format, output, with_session
from duckrun.cli.output import print_as, print_result, print_rows, time_text

if TYPE_CHECKING:
    from duckrun.change_set import ChangeSet
    from duckrun.session import Session

branch = typer.Typer(help="List, compare, publish or discard branches of a lake.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the branch.")]
_WITH_ROWS = ("changed", "created", "replaced")
SAMPLE_ROWS = 3
"""Rows of each change type that a diff without a table shows."""


@branch.command("list")
@with_session("engine", "schema", "catalog")
def list_(s: Session, format: Format = None) -> None:
    """List the branches: name, state, time, age, user, tables, rows changed."""
    rows = (
        (
            each.name,
            each.state,
            time_text(each.created),
            round(each.age_seconds / 86_400, 1),
            each.by,
            " ".join(each.tables),
            each.rows_changed,
        )
        for each in s.branches()
    )
    print_as(("name", "state", "created", "age_days", "by", "tables", "rows_changed"), rows, output(format))


@branch.command()
@with_session("engine", "schema", "catalog")
def diff(
    s: Session,
    name: Name,
    table: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="Only the rows of this table.")] = None,
    format: Format = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows that --format table shows; 0 is all of them.")] = 100,
) -> None:
    """Compare a branch with main: its tables, then sample rows; or all changed rows of a table."""
    changes = s.diff(name)
    if table is not None:
        print_result(changes.table(table), output(format), limit)
        return
    columns = ("table", "change", "base", "version", "main", "inserted", "updated", "deleted", "schema_changes")
    rows = [
        (
            each.table,
            each.change,
            each.base_version,
            each.version,
            each.main_version,
            each.rows_inserted,
            each.rows_updated,
            each.rows_deleted,
            "; ".join(each.schema_changes),
        )
        for each in changes
    ]
    print_as(columns, rows, output(format))
    if output(format) == "table":
        for each in changes:
            if each.change in _WITH_ROWS:
                typer.echo(f"\n{each.table}")
                _print_samples(changes.table(each.table))


def _print_samples(changed: ChangeSet) -> None:
    """Print some changed rows of each change type."""
    from duckrun.sql.quoting import quote_literal
    from duckrun.values.changes import CHANGE_TYPE

    relation, names = changed.source.native, changed.columns
    samples = [
        row
        for kind in changed.counts()
        for row in relation.filter(f"{CHANGE_TYPE} = {quote_literal(kind)}").limit(SAMPLE_ROWS).fetchall()
    ]
    print_rows(names, samples)


@branch.command()
@with_session("engine", "schema", "catalog")
def publish(s: Session, name: Name, format: Format = None) -> None:
    """Commit the net changes of a branch to main: one commit per table, or none."""
    result = s.publish(name)
    if result.replayed:
        typer.echo(f"branch {name} was published before", err=True)
    rows = ((table, result.before.get(table), version) for table, version in result.versions.items())
    print_as(("table", "before", "version"), rows, output(format))


@branch.command()
@with_session("engine", "schema", "catalog")
def discard(s: Session, name: Name, format: Format = None) -> None:
    """Remove a branch, and print the tables that it had changed."""
    print_as(("table",), ((table,) for table in s.discard(name)), output(format))
