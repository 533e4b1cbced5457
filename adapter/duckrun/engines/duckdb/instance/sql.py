"""SQL helpers: pinned scans, reads of files, and the translation of errors into this library's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

import duckdb

from duckrun.display.units import parse_bytes
from duckrun.errors import (
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    StorageError,
    UnsupportedFeature,
    VersionNotReadable,
    redact,
    uncomputable,
)
from duckrun.libraries import pa
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Reads
from duckrun.run.work_log import Read
from duckrun.sql.on_demand import sql_names
from duckrun.sql.quoting import quote_identifier, quote_literal, quoted_list
from duckrun.sql.raising import panicked, raised
from duckrun.sql.refusals import DuckDBRefusal
from duckrun.storage.trouble import expired_snapshot, said, storage_error
from duckrun.values.lake_format import TABLES
from duckrun.values.names import folder_of, url_of
from duckrun.values.rows import ReadSpec

# As we write delta_scan(), and as DuckDB prints it in the query of a relation.
_SCAN = re.compile(r"delta_scan\('((?:[^']|'')*)', \(?\"?version\"? (?:=>|:=|=) (\d+)", re.IGNORECASE)

_ATTACHED = re.compile(r'"(delta (\d+) [0-9a-f]{16} ((?:[^"]|"")*))"')
_MOST_ATTACHED = 64
_OF_FILES = re.compile(r'"delta files (\d+) ((?:[^"]|"")*)"')
"""Alias of name_of_files()."""
_NAME = r'"(?:[^"]|"")*"|\w+'
_OF_CATALOG = re.compile(rf'"ducklake [\d.s]+ ((?:[^"]|"")*)"\.({_NAME})\.({_NAME}) AT \(VERSION => (\d+)\)')


def attached(connection: duckdb.DuckDBPyConnection, location: str, version: int, mark: str) -> str | None:
    """Attach a table at one version, so that the instance opens its log once and not per query.

    An unattached scan lists the files again for each query with a filter. An attached table stays
    for the life of the instance, because later queries may use it.

    Args:
        connection: DuckDB instance.
        location: Location of the table.
        version: Version to read.
        mark: Identity of the version, which distinguishes it from another table's at this location.

    Returns:
        Quoted name of the rows; None if the instance has the maximum number of attached tables.
    """
    # scans_in() parses the name. DuckDB ignores letter case in names, so a hash distinguishes
    # locations.
    mark = hashlib.sha256(f"{mark} {location}".encode()).hexdigest()[:16]
    name = f"delta {version} {mark} {location}"
    cursor = connection.cursor()
    names = cursor.execute("SELECT database_name FROM duckdb_databases() WHERE type = 'delta'").fetchall()
    if (name,) not in names:
        if len(names) >= _MOST_ATTACHED:
            return None
        _attach(cursor, name, location, version)
    return quote_identifier(name)


def attach_again(connection: duckdb.DuckDBPyConnection, query: str) -> None:
    """Attach to a new instance the tables that a query reads by names of attached()."""
    for name, version, location in _ATTACHED.findall(query):
        _attach(connection, name.replace('""', '"'), location.replace('""', '"'), int(version))


def _attach(connection: duckdb.DuckDBPyConnection, name: str, location: str, version: int) -> None:
    connection.execute(
        f"ATTACH IF NOT EXISTS {quote_literal(url_of(location))} AS {quote_identifier(name)} "
        f"(TYPE delta, READ_ONLY, PIN_SNAPSHOT, VERSION {int(version)})"
    )


def scans_in(query: str) -> Reads:
    """Tables that a DuckDB query reads, each at the oldest version that the query names.

    It finds delta_scan(), names of attached(), aliases of name_of_files(), and names of a DuckLake
    catalog.
    """
    named = [
        (unquote(url.replace("''", "'")).removeprefix("file://"), version) for url, version in _SCAN.findall(query)
    ]
    named += [(location.replace('""', '"'), version) for _, version, location in _ATTACHED.findall(query)]
    named += [(location.replace('""', '"'), version) for version, location in _OF_FILES.findall(query)]
    for root, schema, name, version in _of_catalogs(query):
        named.append(("/".join((root, TABLES, folder_of(schema), folder_of(name))), version))
    reads: dict[str, Read] = {}
    for location, version in named:
        reads[location] = Read(int(version)).with_(reads.get(location))
    return Reads(reads)


def _of_catalogs(query: str) -> Iterator[tuple[str, str, str, str]]:
    """Root, schema, name and version of each table that a query reads from a DuckLake catalog."""
    for root, *names, version in _OF_CATALOG.findall(query):
        schema, name = (part[1:-1].replace('""', '"') if part.startswith('"') else part for part in names)
        yield root.replace('""', '"'), schema, name, version


def select_sql(source: str, spec: ReadSpec, names: Sequence[str], table: str) -> str:
    """SELECT of a ReadSpec's columns and rows.

    Raises:
        InvalidConfig: The table lacks a column.
    """
    unknown = [c for c in spec.columns or () if c not in names]
    if unknown:
        raise InvalidConfig(f"Table {table} has no column {', '.join(unknown)}; it has {', '.join(names)}.")
    columns = quoted_list(spec.columns or names)
    where = f" WHERE {sql_names.transpile(spec.predicate, spec.dialect, 'duckdb')}" if spec.predicate else ""
    return f"SELECT {columns} FROM {source}{where}"


_MB = 1_000_000
_LACKED = re.compile(r"of size ([\d.]+ \w+) \(([\d.]+ \w+)/[\d.]+ \w+ used\)")
"""Memory that DuckDB tried to allocate, and the memory in use."""


_EXCERPT = re.compile(r"\s*\n\s*LINE \d+: .*", re.DOTALL)
"""Position of an error in the SQL that DuckDB received, which has scans in place of tables."""


# DuckDB raises these before it reads a row. An unknown function is a CatalogException.
_ABOUT_STATEMENT = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.DependencyException,
    duckdb.ParserException,
    duckdb.PermissionException,
    duckdb.SyntaxException,
)
# Some function raises each of the other classes for a value: InvalidInput, OutOfRange, Conversion,
# and duckdb.Error itself.
_NOT_ABOUT_ROWS = (
    duckdb.ConnectionException,
    duckdb.HTTPException,
    duckdb.InterruptException,
    duckdb.IOException,
    duckdb.TransactionException,
)


@contextmanager
def errors_about(
    what: str,
    arbiter: Arbiter | None = None,
    queries: Sequence[str] = (),
    as_written: Callable[[str], str] = str,
    *,
    writes: bool = True,
) -> Iterator[None]:
    """Translate the errors of engines into this library's, with the table's name.

    This library's errors pass, with the name added. Of DuckDB's errors only an interrupt passes.

    Args:
        what: Start of the message.
        arbiter: Computes the least memory limit that the failed allocation needs.
        queries: Queries that name the tables that are read.
        as_written: Restores the names of a user's query in an error about that query.
        writes: False for rows that are only read.
    """
    try:
        yield
    except DuckrunError as error:
        error.name(what, what.split(",", maxsplit=1)[0].removeprefix("table "))
        raise
    except BaseException as error:
        if _of_a_library(error):
            redact(error)
        if panicked(error):
            raise StorageError(f"{what}: a library of it failed from within: {error}") from None
        ours = raised(str(error), what)
        if ours is not None:
            raise ours from None
        if isinstance(error, duckdb.Error) and (expired := expired_snapshot(error)) is not None:
            tables = {f"{s}.{n}" for query in queries for _, s, n, at in _of_catalogs(query) if at == expired}
            raise VersionNotReadable(
                f"{what}: snapshot {expired}, at which {', '.join(sorted(tables)) or 'a table'} was to be read, has "
                "expired. Read the table again, by sql() or table(name).toDF()."
            ) from error
        if isinstance(error, duckdb.IOException | duckdb.HTTPException) and DuckDBRefusal.FILE_ELSEWHERE.is_of(error):
            raise UnsupportedFeature(
                f"{what}: the log names data files by URIs, as a shallow clone does, which DuckDB does not open: "
                f"{str(error).splitlines()[0]}",
                remedy="Run this with engine: spark, or copy the table (deep clone)",
            ) from error
        if isinstance(error, _ABOUT_STATEMENT):
            text = _EXCERPT.sub("", str(error)).replace('Values list "', 'Table "')
            of_map = "Write unnest(map_entries(m)), or in Spark's SQL LATERAL VIEW explode(m) x AS key, value"
            remedy = of_map if DuckDBRefusal.UNNEST_OF_MAP.is_of(error) else ""
            raise InvalidConfig(f"{what}: {as_written(text)}", remedy=remedy) from error
        if _of_a_library(error) and (storage_failure := storage_error(error, what)) is not None:
            raise storage_failure from error
        if isinstance(error, duckdb.OutOfMemoryException):
            memory = _LACKED.search(str(error))
            least = ""
            if memory and arbiter is not None:
                # DuckDB names the one allocation that failed, and not those that would follow.
                limit = arbiter.limit_for(sum(map(parse_bytes, memory.groups())))
                least = f": at least {-(-limit // _MB)}MB, and which limit is enough is not known"
            raise InvalidConfig(
                f"{what}: DuckDB's part of the memory is too small for it: {str(error).splitlines()[0]}",
                remedy=(
                    f"Give this process more (memory_limit, memory_fraction){least}; do less at "
                    "once (threads, max_concurrent), or run it with engine: spark"
                ),
            ) from error
        if isinstance(error, duckdb.InternalException | duckdb.FatalException):
            raise StorageError(
                f"{what}: DuckDB failed with an internal error: {str(error).splitlines()[0]}",
                remedy="A session opens a new DuckDB for its next statement; run this one with engine: spark",
            ) from error
        if isinstance(error, duckdb.ConversionException) and writes:
            raise SchemaMismatch(f"{what}: a value does not fit its column: {said(error)}.") from error
        if isinstance(error, duckdb.NotSupportedError):
            raise UnsupportedFeature(f"{what}: DuckDB does not do that: {as_written(said(error))}.") from error
        if isinstance(error, duckdb.ConstraintException):
            raise SchemaMismatch(f"{what}: a row breaks a constraint: {said(error)}") from error
        if isinstance(error, duckdb.Error) and not isinstance(error, _NOT_ABOUT_ROWS):
            raise uncomputable(what, "DuckDB", as_written(said(error))) from error
        if not isinstance(error, duckdb.InterruptException | pa.ArrowException) and _of_a_library(error):
            raise StorageError(f"{what}: {said(error)}.") from error
        raise


def lacked_memory(error: BaseException) -> bool:
    """True if DuckDB ran out of memory or spill disk, also as the cause of our error."""
    return any(isinstance(each, duckdb.OutOfMemoryException) for each in (error, error.__cause__))


def _of_a_library(error: BaseException) -> bool:
    """True for errors of DuckDB, delta_rs, obstore, Arrow or the OS; False for a caller's code."""
    modules = ("_internal", "deltalake", "obstore")  # deltalake's error classes have the module _internal
    return isinstance(error, duckdb.Error | OSError | pa.ArrowException) or type(error).__module__.startswith(modules)
