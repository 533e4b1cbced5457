"""Commands about a lake as a whole: ``duckrun maintain …`` of a DuckLake, ``duckrun import`` and ``duckrun export``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from duckrun.session import Session

maintain = typer.Typer(
    help="Keep a DuckLake in order. Each command is of the whole lake, or of one --table where it has that option.",
    no_args_is_help=True,
)

Root = Annotated[str, typer.Option(envvar="DUCKRUN_ROOT", help="Folder of the lake, or its URL.")]
Format = Annotated[str, typer.Option("--format", help="The lake's format; what these commands do is DuckLake's.")]
Catalog = Annotated[
    str | None,
    typer.Option(
        envvar="DUCKRUN_CATALOG",
        help="Where the catalog is, such as postgres:<dsn>. Unset: catalog.sqlite in the root.",
        show_envvar=True,
    ),
]
Schema = Annotated[str, typer.Option(help="Schema of names that have none.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help="Credentials and settings; may repeat."),
]
Table = Annotated[str | None, typer.Option("--table", help="This table alone: name, or schema.name.")]
OlderThan = Annotated[str | None, typer.Option(help="'7 days', or a time in ISO 8601. Unset: seven days.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
Threshold = Annotated[
    float | None, typer.Option(min=0, max=1, help="Files of which more than this share of the rows is deleted.")
]
SpareConsumers = Annotated[
    bool, typer.Option("--spare-consumers/--no-spare-consumers", help="Keep what consumers of changes go on from.")
]


@maintain.command()
def flush(
    root: Root,
    table: Table = None,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Write the rows that lie in the catalog into files."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.flush(table))


@maintain.command()
def merge(
    root: Root,
    table: Table = None,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Make fewer, larger files of adjacent small ones; every version stays readable. A flush goes first."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.merge_files(table))


@maintain.command()
def rewrite(
    root: Root,
    table: Table = None,
    delete_threshold: Threshold = None,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Write anew the files of which many rows are deleted. A flush goes first."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.rewrite_files(table, delete_threshold=delete_threshold))


@maintain.command()
def expire(
    root: Root,
    version: Annotated[list[int] | None, typer.Option("--version", help="This snapshot; may repeat.")] = None,
    older_than: Annotated[str | None, typer.Option(help="'30 days', or a time in ISO 8601.")] = None,
    spare_consumers: SpareConsumers = True,
    dry_run: DryRun = False,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Forget snapshots, by number or by age: their tables can then not be read as they were. The newest stays."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.expire(version, older_than=older_than, spare_consumers=spare_consumers, dry_run=dry_run))


@maintain.command()
def cleanup(
    root: Root,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Remove files that no snapshot needs any more."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.cleanup(older_than=older_than, dry_run=dry_run))


@maintain.command()
def orphans(
    root: Root,
    older_than: OlderThan = None,
    dry_run: DryRun = False,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Remove files below data/ that the catalog does not know, such as those of killed writes."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.orphans(older_than=older_than, dry_run=dry_run))


@maintain.command()
def checkpoint(
    root: Root,
    expire_older_than: Annotated[str | None, typer.Option(help="Expire snapshots too. Unset: none.")] = None,
    older_than: OlderThan = None,
    delete_threshold: Threshold = None,
    spare_consumers: SpareConsumers = True,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """All of it: flush, expire, merge, rewrite, cleanup, orphans."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(
            s.checkpoint(
                expire_older_than=expire_older_than,
                older_than=older_than,
                delete_threshold=delete_threshold,
                spare_consumers=spare_consumers,
            )
        )


@maintain.command()
def restore(
    version: Annotated[int, typer.Argument(help="A snapshot of the lake.")],
    root: Root,
    table: Table = None,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Make the lake, or one table, what it was at a snapshot, as a new one."""
    with opened(root, schema, storage_option, format, catalog) as s:
        _say(s.restoreToVersion(version) if table is None else s.table(table).restoreToVersion(version))


def import_(
    source: Annotated[str, typer.Argument(help="Root of a Delta lake, or a DuckDB database file.")],
    root: Root,
    table: Annotated[list[str] | None, typer.Option("--table", help="This table alone; may repeat.")] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Take the files where they lie; the Delta logs are put away.")
    ] = False,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Copy the tables of a Delta lake or a DuckDB file into a DuckLake, or adopt them."""
    from duckrun.cli import storage_options

    with opened(root, schema, storage_option, format, catalog) as s:
        _say_moved(s.import_from(source, table or None, adopt=adopt, storage_options=storage_options(storage_option)))


def export(
    target: Annotated[str, typer.Argument(help="Root of a Delta lake, made where it is not there.")],
    root: Root,
    table: Annotated[list[str] | None, typer.Option("--table", help="This table alone; may repeat.")] = None,
    versions: Annotated[int, typer.Option(min=1, help="How many of the last versions to copy, a commit each.")] = 1,
    schema: Schema = "main",
    catalog: Catalog = None,
    format: Format = "ducklake",
    storage_option: StorageOption = None,
) -> None:
    """Copy the tables of a DuckLake to a Delta lake."""
    from duckrun.cli import storage_options

    with opened(root, schema, storage_option, format, catalog) as s:
        _say_moved(
            s.export_to(target, table or None, versions=versions, storage_options=storage_options(storage_option))
        )


def _say_moved(moved: Any) -> None:
    from duckrun.cli import print_rows

    names = ("table", "rows", "versions", "adopted", "left_out")
    print_rows(names, [(m.table, m.rows, m.versions, m.adopted, "; ".join(m.left_out)) for m in moved])


def opened(
    root: str, schema: str, options: list[str] | None, format: str, catalog: str | None, *, read_only: bool = False
) -> Session:
    """A session on a lake of some format."""
    from duckrun.cli import storage_options
    from duckrun.session import connect

    given = storage_options(options)
    return connect(root, schema=schema, storage_options=given, format=format, catalog=catalog, read_only=read_only)


def _say(result: Any) -> None:
    from duckrun.cli import print_facts

    print_facts(result)
    for line in (*getattr(result, "removed", ()), *getattr(result, "actions", ())):
        typer.echo(line)
