"""A lake's schemas and tables under their names in Spark's catalog, for code in PySpark's own words."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from duckrun.engines.spark.process.databases import LAKE_PROPERTY, DatabaseStatements, guard, refuse_twins
from duckrun.engines.spark.process.session import DELTA_CATALOG, apply_storage, first_line, is_own
from duckrun.engines.spark.sql import quote, text_literal
from duckrun.errors import DuckrunError, InvalidConfig, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.lake.lake import Lake

log = logging.getLogger(__name__)

LIMIT = 50
"""Tables that get names beyond those that a caller names; each takes Spark about a third of a second."""

_THREADS = 8


def name_tables(session: SparkSession, lake: Lake, names: Iterable[str] = (), *, limit: int = LIMIT) -> list[str]:
    """Register a lake's schemas as databases of a Spark session, and its tables as tables of these.

    PySpark's own ``spark.table``, ``saveAsTable``, ``writeTo``, ``MERGE INTO`` and ``DeltaTable.forName`` then work on the
    lake. Spark writes as a foreign writer: locks, pins and exactly-once of duckrun do not hold for these writes. Nothing in
    the lake changes. A table that Spark cannot read is logged and left out; the others get their names.

    Spark's names ignore letter case. Schemas that differ in letter case only, and a schema with tables that do, get no names.

    Args:
        session: A classic or Spark Connect session with Delta's catalog.
        lake: A Delta lake that may be written.
        names: Tables (``schema.table``) that are registered first whatever the limit, and schemas, also new ones.
        limit: Number of other tables that are registered; those in the schemas of ``names`` come first.

    Returns:
        The names of the tables of the lake that the session has.

    Raises:
        InvalidConfig: The lake is read-only, the session has another catalog, a database of a schema's name that lies
            elsewhere, or a table of another lake that Spark made by name. ``names`` has a schema that gets no names.
        UnsupportedFeature: The lake is a DuckLake.

    Example::

        with duckrun.connect("lake/", engine="spark") as s:
            name_tables(spark, s.lake, ["sales.orders"])
        spark.table("sales.orders").groupBy("day").count().write.format("delta").saveAsTable("sales.days")
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
    has_moved = _leave_other_lakes(session, statements, lake, tables_of)
    databases = [
        schema
        for schema in schemas
        if _is_name(lake, schema, "schema")
        and not _has_twins(lake, schema, tables_of)
        and _database(statements, lake, schema)
    ]
    statements.lake = lake
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
        done = pool.map(lambda pair: _register(session, lake, *pair), new)
        failed = {pair for pair, is_done in zip(new, done, strict=True) if not is_done}
    is_free = has_moved or session.catalog.currentDatabase() == "default"
    if is_free and is_own(session) and default in databases:
        session.sql(f"USE {quote(default)}")
    return [f"{schema}.{table}" for schema, table in tables if (schema, table) not in failed]


def _refuse(session: SparkSession, lake: Lake) -> None:
    if lake.format.transacts:
        raise UnsupportedFeature(
            f"Lake {lake.root} is a DuckLake, whose tables have no names in Spark's catalog. Read and write them by a session: "
            "duckrun.connect(root, engine='spark', format='ducklake')."
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
            f"The Spark session has a catalog of its own (spark_catalog {catalog or 'unset'}, {kind}), so the names of lake "
            f"{lake.root} are not registered. Register its tables there by CREATE TABLE … USING DELTA LOCATION."
        )


def _split(lake: Lake, name: str) -> tuple[str, str]:
    """Schema and table of a name. One part is a table of the default schema if there is one, else a schema."""
    schema, dot, table = name.partition(".")
    if not dot and name in lake.tables(lake.default_schema):
        return lake.default_schema, name
    return lake.spelled_schema(schema), table


def _is_name(lake: Lake, name: str, kind: str) -> bool:
    """Whether Spark's catalog takes a name; a log line where not."""
    takes = re.fullmatch(r"\w+", name, re.ASCII) is not None and (kind != "schema" or name.lower() != "default")
    if not takes:
        log.warning(
            "lake %s: Spark's catalog takes no %s %r; read and write it by a duckrun session", lake.root, kind, name
        )
    return takes


def _has_twins(lake: Lake, schema: str, tables_of: Mapping[str, Sequence[str]]) -> bool:
    """True for a schema that gets no names; a log line says why."""
    try:
        refuse_twins(lake, schema, tables_of)
    except InvalidConfig as error:
        log.warning("schema %s gets no names in Spark: %s", schema, error)
        return True
    return False


def _leave_other_lakes(
    session: SparkSession, statements: DatabaseStatements, lake: Lake, tables_of: Mapping[str, Sequence[str]]
) -> bool:
    """Make the schemas of other lakes schemas of this one; True if there were any. A name never reads a table of an earlier lake."""
    names = [database.name for database in session.catalog.listDatabases()]
    others = [name for name in names if statements.lake_of(name) not in (None, lake.root)]
    for name in others:
        refuse_twins(lake, name, tables_of)
        folder = lake.folder(lake.spelled_schema(name))
        statements.move(name, lake, lake.storage.spark_location(f"{lake.root}/{folder}"))
    return bool(others)


def _database(statements: DatabaseStatements, lake: Lake, schema: str) -> bool:
    """Make a database of a schema. Raises InvalidConfig if Spark has another one of that name."""
    location = lake.storage.spark_location(f"{lake.root}/{lake.folder(schema)}")
    present = statements.location_of(schema)
    if present is None:
        statements(
            f"CREATE DATABASE IF NOT EXISTS {quote(schema)} LOCATION {text_literal(location)} "
            f"WITH DBPROPERTIES ({text_literal(LAKE_PROPERTY)} = {text_literal(lake.root)})"
        )
        present = statements.location_of(schema)
    if present != location.rstrip("/"):
        raise InvalidConfig(
            f"Spark has a database {schema} at {present}, so schema {schema} of lake {lake.root} cannot have its name. Drop or "
            "rename that database first."
        )
    return True


def _registered(session: SparkSession, schema: str) -> set[str]:
    return {row["tableName"].lower() for row in session.sql(f"SHOW TABLES IN {quote(schema)}").collect()}


def _register(session: SparkSession, lake: Lake, schema: str, table: str) -> bool:
    """Give one table its name; False, with a log line, if Spark cannot read it."""
    try:
        location = lake.storage.spark_location(lake.resolve(schema, table).location)
        session.sql(
            f"CREATE TABLE IF NOT EXISTS {quote(schema, table)} USING DELTA LOCATION {text_literal(location)}"
        ).collect()
    except Exception as error:
        if isinstance(error, DuckrunError) or type(error).__module__.startswith(("pyspark", "py4j")):
            log.warning("%s.%s of lake %s has no name in Spark: %s", schema, table, lake.root, first_line(error))
            return False
        raise
    return True
