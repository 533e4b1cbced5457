"""Names of a lake's schemas and tables in Spark's catalog, for plain PySpark code."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from duckrun.branches.lake import refuse_spark_names
from duckrun.engines.spark.process.databases import LAKE_PROPERTY, DatabaseStatements, guard, local_path, refuse_twins
from duckrun.engines.spark.process.session import DELTA_CATALOG, apply_storage, first_line, is_own
from duckrun.engines.spark.sql import quote, text_literal
from duckrun.errors import DuckrunError, InvalidConfig, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.lake.lake import Lake

log = logging.getLogger(__name__)

LIMIT = 50
"""Number of tables that get names beyond those that the caller names.

Each takes Spark about a third of a second.
"""

_THREADS = 8


def name_tables(session: SparkSession, lake: Lake, names: Iterable[str] = (), *, limit: int = LIMIT) -> list[str]:
    """Register a lake's schemas as databases of a Spark session, and its tables as their tables.

    PySpark's own ``spark.table``, ``saveAsTable``, ``writeTo``, ``MERGE INTO`` and
    ``DeltaTable.forName`` then work on the lake. Spark writes as a foreign writer: locks, pins and
    exactly-once of duckrun do not hold for these writes. Nothing in the lake changes. A table that
    Spark cannot read is logged and left out; the others get their names.

    Spark's names ignore letter case. Schemas that differ in letter case only, and a schema with
    tables that do, get no names.

    Args:
        session: A classic or Spark Connect session with Delta's catalog.
        lake: A Delta lake that may be written.
        names: Tables (``schema.table``) to register first whatever the limit, and schemas, also new
            ones.
        limit: Number of other tables to register; those in the schemas of ``names`` come first.

    Returns:
        The names of the tables of the lake that the session has.

    Raises:
        InvalidConfig: The lake is read-only, or the session has another catalog. The session has a
            database with a schema's name elsewhere, or a table of another lake that Spark made by
            name. ``names`` has a schema that gets no names.
        UnsupportedFeature: The lake is a DuckLake or a branch, or the session works in a branch of
            the lake.

    Example::

        with duckrun.connect("lake/", engine="spark") as s:
            name_tables(spark, s.lake, ["sales.orders"])
        days = spark.table("sales.orders").groupBy("day").count()
        days.write.format("delta").saveAsTable("sales.days")
    """
    _refuse(session, lake)
    apply_storage(session, lake.storage)
    statements = guard(session)
    wanted = [_split(lake, name) for name in names]
    listed = lake.schemas()
    default = next((each for each in listed if each.lower() == lake.default_schema.lower()), lake.default_schema)
    schemas = dict.fromkeys([default, *(schema for schema, _ in wanted), *listed])
    tables_of = {schema: lake.tables(schema) for schema in schemas}
    for schema, _ in wanted:
        refuse_twins(lake, schema, tables_of)
    # Spark quotes a name that begins with a digit.
    places = {each.name.strip("`"): local_path(each.locationUri) for each in session.catalog.listDatabases()}
    has_moved = _leave_other_lakes(statements, lake, tables_of, places)
    databases = [
        schema for schema in schemas if _is_name(lake, schema, "schema") and not _has_twins(lake, schema, tables_of)
    ]
    for schema in databases:
        _make_database(statements, lake, schema, places.get(schema.lower()))
    statements.lake, statements.unreadable = lake, {}
    present = [(schema, table) for schema in databases for table in tables_of[schema]]
    first = [pair for pair in dict.fromkeys(wanted) if pair in present]
    near = {schema for schema, _ in wanted}
    others = sorted((pair for pair in present if pair not in wanted), key=lambda pair: pair[0] not in near)
    if len(others) > limit:
        log.info(
            "%d of %d tables of lake %s get no names in Spark (limit=%d). Name those that the code uses.",
            len(others) - limit, len(present), lake.root, limit,
        )  # fmt: skip
    registered = {schema: _registered(session, schema) for schema in databases}
    tables = [pair for pair in [*first, *others[:limit]] if _is_name(lake, pair[1], f"table of schema {pair[0]}")]
    new = [pair for pair in tables if pair[1].lower() not in registered[pair[0]]]
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        reasons = pool.map(lambda pair: _register(session, lake, *pair), new)
        failed = {pair: reason for pair, reason in zip(new, reasons, strict=True) if reason is not None}
    statements.unreadable = {quote(*pair).lower(): reason for pair, reason in failed.items()}
    is_free = has_moved or session.catalog.currentDatabase() == "default"
    if is_free and is_own(session) and default in databases:
        session.sql(f"USE {quote(default)}")
    return [f"{schema}.{table}" for schema, table in tables if (schema, table) not in failed]


def _refuse(session: SparkSession, lake: Lake) -> None:
    refuse_spark_names(lake)
    for branch in guard(session).branches:
        if branch.root == lake.root:
            raise UnsupportedFeature(
                f"Lake {lake.root}: the Spark session works in branch {branch.branch_name} of it, and names would "
                "stand for main",
                remedy="Close the duckrun session of the branch, or use a process with another Spark session",
            )
    if lake.has_catalog:
        raise UnsupportedFeature(
            f"Lake {lake.root} is a DuckLake, whose tables have no names in Spark's catalog. Read and write them by a "
            "session: duckrun.connect(root, engine='spark', format='ducklake')."
        )
    if lake.read_only:
        raise InvalidConfig(
            f"Lake {lake.root} is read-only, and Spark writes to any table that it has the name of. Read its tables by "
            "session.table(), or open the lake without read_only."
        )
    catalog = session.conf.get("spark.sql.catalog.spark_catalog", "")
    kind = session.conf.get("spark.sql.catalogImplementation", "in-memory")
    if catalog != DELTA_CATALOG or kind != "in-memory":
        raise InvalidConfig(
            f"The Spark session has a catalog of its own (spark_catalog {catalog or 'unset'}, {kind}), so the names "
            f"of lake {lake.root} are not registered. Register its tables there by CREATE TABLE … USING DELTA "
            "LOCATION."
        )


def _split(lake: Lake, name: str) -> tuple[str, str]:
    """Return schema and table of a name.

    One part is a table of the default schema if that exists, else a schema.
    """
    schema, dot, table = name.partition(".")
    if not dot and name in lake.tables(lake.default_schema):
        return lake.default_schema, name
    return lake.spelled_schema(schema), table


def _is_name(lake: Lake, name: str, kind: str) -> bool:
    """True if Spark's catalog accepts a name; otherwise log a warning."""
    takes = re.fullmatch(r"\w+", name, re.ASCII) is not None and (kind != "schema" or name.lower() != "default")
    if not takes:
        log.warning(
            "lake %s: Spark's catalog takes no %s %r; read and write it by a duckrun session", lake.root, kind, name
        )
    return takes


def _has_twins(lake: Lake, schema: str, tables_of: Mapping[str, Sequence[str]]) -> bool:
    """True for a schema that gets no names; log the reason."""
    try:
        refuse_twins(lake, schema, tables_of)
    except InvalidConfig as error:
        log.warning("schema %s gets no names in Spark: %s", schema, error)
        return True
    return False


def _leave_other_lakes(
    statements: DatabaseStatements, lake: Lake, tables_of: Mapping[str, Sequence[str]], places: dict[str, str]
) -> bool:
    """Turn databases of other lakes into schemas of this lake; True if there were any.

    Otherwise a name would read a table of an earlier lake.

    Args:
        places: Databases and their folders, which are updated.
    """
    here = {"default": places.get("default")} | {schema.lower(): _location(lake, schema) for schema in tables_of}
    others = [
        name
        for name, place in places.items()
        if place != here.get(name) and statements.lake_of(name) not in (None, lake.root)
    ]
    for name in others:
        refuse_twins(lake, name, tables_of)
        places[name] = _location(lake, lake.spelled_schema(name))
        statements.move(name, lake, places[name])
    return bool(others)


def _location(lake: Lake, schema: str) -> str:
    return lake.storage.spark_location(f"{lake.root}/{lake.folder(schema)}").rstrip("/")


def _make_database(statements: DatabaseStatements, lake: Lake, schema: str, place: str | None) -> None:
    """Create a database for a schema.

    Args:
        place: Folder of the present database with this name; None without one.

    Raises:
        InvalidConfig: The present database is another one.
    """
    location = _location(lake, schema)
    if place is None:
        statements(
            f"CREATE DATABASE IF NOT EXISTS {quote(schema)} LOCATION {text_literal(location)} "
            f"WITH DBPROPERTIES ({text_literal(LAKE_PROPERTY)} = {text_literal(lake.root)})"
        )
        place = statements.location_of(schema)
    if place != location:
        raise InvalidConfig(
            f"Spark has a database {schema} at {place}, so schema {schema} of lake {lake.root} cannot have its name. "
            "Drop or rename that database first."
        )


def _registered(session: SparkSession, schema: str) -> set[str]:
    rows = session.sql(f"SHOW TABLES IN {quote(schema)}").collect()
    # Every schema lists the temporary views, which belong to none.
    return {row["tableName"].lower() for row in rows if not row["isTemporary"]}


def _register(session: SparkSession, lake: Lake, schema: str, table: str) -> str | None:
    """Register one table; if Spark cannot read it, log and return the reason."""
    try:
        location = lake.storage.spark_location(lake.resolve(schema, table).location)
        session.sql(
            f"CREATE TABLE IF NOT EXISTS {quote(schema, table)} USING DELTA LOCATION {text_literal(location)}"
        ).collect()
    except Exception as error:
        if isinstance(error, DuckrunError) or type(error).__module__.startswith(("pyspark", "py4j")):
            log.warning("%s.%s of lake %s has no name in Spark: %s", schema, table, lake.root, first_line(error))
            return first_line(error)
        raise
    return None
