"""Commands on a whole lake: ``duckrun import``, ``export``, and ``maintain …`` for a DuckLake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from duckrun.cli.options import StorageOption, storage_options, with_session
from duckrun.cli.output import print_rows, print_upkeep

if TYPE_CHECKING:
    from duckrun.session import Session

maintain = typer.Typer(
    help="Keep a DuckLake in order. Each command is of the whole lake, or of one --table where it has that option.",
    no_args_is_help=True,
)
of_ducklakes = with_session("engine", unset="ducklake")


def upkeep_command(command: Callable[..., None]) -> Callable[..., None]:
    """Add a command to ``duckrun maintain``; its first parameter is the session of a DuckLake."""
    return maintain.command()(of_ducklakes(command))


Table = Annotated[str | None, typer.Option("--table", help="This table alone: name, or schema.name.")]
OlderThan = Annotated[str | None, typer.Option(help="'7 days', or a time in ISO 8601. Unset: seven days.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
Threshold = Annotated[
    float | None, typer.Option(min=0, max=1, help="Files of which more than this share of the rows is deleted.")
]
SpareConsumers = Annotated[
    bool, typer.Option("--spare-consumers/--no-spare-consumers", help="Keep what consumers of changes go on from.")
]


@upkeep_command
def flush(s: Session, table: Table = None) -> None:
    """Write the rows that lie in the catalog into files."""
    print_upkeep(s.upkeep.flush(table))


@upkeep_command
def merge(s: Session, table: Table = None) -> None:
    """Merge adjacent small files; every version stays readable. A flush goes first."""
    print_upkeep(s.upkeep.merge_files(table))


@upkeep_command
def rewrite(s: Session, table: Table = None, delete_threshold: Threshold = None) -> None:
    """Rewrite files with many deleted rows. A flush goes first."""
    print_upkeep(s.upkeep.rewrite_files(table, delete_threshold=delete_threshold))


@upkeep_command
def expire(
    s: Session,
    version: Annotated[list[int] | None, typer.Option("--version", help="This snapshot; may repeat.")] = None,
    older_than: Annotated[str | None, typer.Option(help="'30 days', or a time in ISO 8601.")] = None,
    spare_consumers: SpareConsumers = True,
    dry_run: DryRun = False,
) -> None:
    """Expire snapshots, by number or by age: they cannot be read afterwards. The newest stays."""
    print_upkeep(s.upkeep.expire(version, older_than=older_than, spare_consumers=spare_consumers, dry_run=dry_run))


@upkeep_command
def cleanup(s: Session, older_than: OlderThan = None, dry_run: DryRun = False) -> None:
    """Remove files that no snapshot needs any more."""
    print_upkeep(s.upkeep.cleanup(older_than=older_than, dry_run=dry_run))


@upkeep_command
def orphans(s: Session, older_than: OlderThan = None, dry_run: DryRun = False) -> None:
    """Remove files below data/ that the catalog does not know, such as those of killed writes."""
    print_upkeep(s.upkeep.orphans(older_than=older_than, dry_run=dry_run))


@upkeep_command
def checkpoint(
    s: Session,
    expire_older_than: Annotated[str | None, typer.Option(help="Expire snapshots too. Unset: none.")] = None,
    older_than: OlderThan = None,
    delete_threshold: Threshold = None,
    spare_consumers: SpareConsumers = True,
) -> None:
    """Run all of these: flush, expire, merge, rewrite, cleanup, orphans."""
    print_upkeep(
        s.upkeep.checkpoint(
            expire_older_than=expire_older_than,
            older_than=older_than,
            delete_threshold=delete_threshold,
            spare_consumers=spare_consumers,
        )
    )


@upkeep_command
def restore(
    s: Session, version: Annotated[int, typer.Argument(help="A snapshot of the lake.")], table: Table = None
) -> None:
    """Restore the lake, or one table, to a snapshot, as a new snapshot."""
    print_upkeep(s.upkeep.restoreToVersion(version) if table is None else s.table(table).restoreToVersion(version))


@of_ducklakes
def import_(
    s: Session,
    source: Annotated[str, typer.Argument(help="Root of a Delta lake, or a DuckDB database file.")],
    table: Annotated[list[str] | None, typer.Option("--table", help="This table alone; may repeat.")] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take the files where they lie; the Delta logs are put away.")
    ] = False,
    storage_option: StorageOption = None,
) -> None:
    """Copy the tables of a Delta lake or a DuckDB file into a DuckLake, or adopt them."""
    _say_moved(s.import_from(source, table or None, adopt=adopt, storage_options=storage_options(storage_option)))


@of_ducklakes
def export(
    s: Session,
    target: Annotated[str, typer.Argument(help="Root of a Delta lake, made where it is not there.")],
    table: Annotated[list[str] | None, typer.Option("--table", help="This table alone; may repeat.")] = None,
    versions: Annotated[int, typer.Option(min=1, help="How many of the last versions to copy, a commit each.")] = 1,
    storage_option: StorageOption = None,
) -> None:
    """Copy the tables of a DuckLake to a Delta lake."""
    _say_moved(s.export_to(target, table or None, versions=versions, storage_options=storage_options(storage_option)))


def _say_moved(moved: Any) -> None:
    names = ("table", "rows", "versions", "adopted", "left_out")
    print_rows(names, [(m.table, m.rows, m.versions, m.adopted, "; ".join(m.left_out)) for m in moved])
