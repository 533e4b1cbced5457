"""Options that several commands share, each declared once, and the session that they open."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from duckrun.errors import InvalidConfig

if TYPE_CHECKING:
    from duckrun.session import Session


# typer takes no list of literals
_Lake = StrEnum("_Lake", ["delta", "ducklake"])
_Any = StrEnum("_Any", ["delta", "ducklake", "table", "csv", "json"])


Root = Annotated[
    str, typer.Option(envvar="DUCKRUN_ROOT", help="Folder of the lake, or its s3://, az://, abfss://, gs:// URL.")
]
Engine = Annotated[Literal["duckdb", "spark"], typer.Option(help="What reads and computes.")]
Schema = Annotated[str, typer.Option(help="Schema of names that have none.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option("--storage-option", metavar="KEY=VALUE", help="Credentials and settings; may repeat."),
]
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
DuckLakeFormat = Annotated[
    list[_Lake] | None, typer.Option("--format", help="The lake's format; unset: ducklake, whose command this is.")
]
DuckLakeOutput = Annotated[
    list[_Any] | None,
    typer.Option("--format", help="The output's format, table, csv or json. The lake's is ducklake, unless named."),
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


def opened(
    root: Root,
    engine: Engine = "duckdb",
    schema: Schema = "main",
    storage_option: StorageOption = None,
    format: LakeFormat = None,
    catalog: Catalog = None,
    *,
    inline_rows: Annotated[
        int | None, typer.Option(min=0, help="Of a DuckLake: up to how many rows of an insert lie in the catalog.")
    ] = None,
    encrypted: Annotated[
        bool, typer.Option("--encrypted", help="Of a DuckLake that is made: its files are encrypted.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse statements that write.")] = False,
    unset: str | None = None,
) -> Session:
    """Open a session on a lake.

    Args:
        root: Folder or URL of the lake.
        engine: The engine.
        schema: Schema of names that have none.
        storage_option: Credentials and settings, as KEY=VALUE.
        format: The values of --format; formats of the output are ignored.
        catalog: The catalog of a DuckLake.
        inline_rows: Largest insert that the catalog stores.
        encrypted: Encrypt the files of a new DuckLake.
        read_only: Refuse all writes.
        unset: The lake's format if none is named.

    Raises:
        InvalidConfig: Two formats are named, or an option is invalid.
    """
    from duckrun.session import connect
    from duckrun.values.lake_format import DUCKLAKE, FORMATS

    named = [str(each) for each in format or () if each in FORMATS]
    if len(set(named)) > 1:
        raise InvalidConfig(f"--format names {' and '.join(named)}: a lake is of one format.")
    elsewhere = unset or os.environ.get("DUCKRUN_FORMAT") or (DUCKLAKE if catalog else FORMATS[0])
    form = named[0] if named else elsewhere
    return connect(
        root,
        engine=engine,
        schema=schema,
        storage_options=storage_options(storage_option),
        read_only=read_only,
        format=form,
        catalog=catalog,
        inline_rows=inline_rows,
        encrypted=encrypted or None,
    )


def with_session(
    *without: str, also: Sequence[str] = (), unset: Literal["ducklake"] | None = None, **words: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: its first parameter is a session, which its options open.

    An option that the command declares itself, such as ``format``, goes to both the command and the
    session.

    Args:
        *without: Options of :func:`opened` that the command lacks.
        also: Options of :func:`opened`, by keyword only, that the command has.
        unset: The lake's format if none is named.
        **words: Further arguments of :func:`opened`.

    Example::

        @app.command()
        @with_session("engine", read_only=True)
        def history(s: Session, table: TableName, format: Format = None) -> None: ...
    """
    opening = {
        name: parameter
        for name, parameter in _options(opened).items()
        if name in also or (parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and name not in without)
    }
    if unset is not None:
        opening["format"] = opening["format"].replace(annotation=DuckLakeFormat)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *named_options = _options(command).items()
        command_options = dict(named_options)

        @functools.wraps(command)
        def run(**values: Any) -> None:
            with opened(**{name: values[name] for name in opening}, unset=unset, **words) as s:
                command(s, **{name: values[name] for name in command_options})

        options = (
            {"root": opening["root"]} | command_options | {n: o for n, o in opening.items() if n not in command_options}
        ).values()
        # typer reads the signature: the command's own options, with those that open the session.
        run.__signature__ = Signature(  # type: ignore[attr-defined]
            [each.replace(kind=Parameter.KEYWORD_ONLY) for each in options]
        )
        run.__annotations__ = {each.name: each.annotation for each in options}
        return run

    return decorate


def _options(function: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a function, with their types resolved from text."""
    types = get_type_hints(function, localns={"Session": object}, include_extras=True)
    return {
        name: parameter.replace(annotation=types.get(name, Any))
        for name, parameter in signature(function).parameters.items()
    }


def storage_options(options: Iterable[str] | None) -> dict[str, str]:
    """Return the mapping of --storage-option KEY=VALUE.

    Raises:
        InvalidConfig: An option is not KEY=VALUE.
    """
    credentials = {}
    for option in options or ():
        key, equals, value = option.partition("=")
        if not key or not equals:
            raise InvalidConfig(f"--storage-option {key} is not KEY=VALUE.")
        credentials[key] = value
    return credentials


def output(formats: Sequence[str] | None) -> str:
    """Return the output's format: the last one that --format names, else a table."""
    return next((str(each) for each in reversed(formats or ()) if each in ("table", "csv", "json")), "table")
