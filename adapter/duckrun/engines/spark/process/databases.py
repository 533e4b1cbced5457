"""Guard of the statements of a Spark session that has a lake's names, or works in a branch.

Spark deletes the folder of a dropped database, including tables that its catalog does not know. The
guard also adds to Spark's error for a missing table how a table of the lake gets its name. In a
branch it refuses statements that would read or write main by a name, or write it by its path.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from weakref import WeakSet

from duckrun.engines.spark.process.conditions import condition_of, text_of
from duckrun.engines.spark.sql import quote, text_literal
from duckrun.errors import InvalidConfig, UnsupportedFeature

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from duckrun.lake.lake import Lake

LAKE_PROPERTY = "duckrun.lake"
"""Property of a database that is a schema of a lake: the lake's root."""

_GAP = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_PART = r"(?:`(?:[^`]|``)+`|\w+)"
_STATEMENT = re.compile(
    rf"{_GAP}*(?P<verb>create|drop){_GAP}+(?:database|schema|namespace){_GAP}+"
    rf"(?:if{_GAP}+(?:not{_GAP}+)?exists{_GAP}+)?"
    rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)

_READS = re.compile(
    rf"(?:{_GAP}|\()*(?:select|with|from|values|table|show|describe|desc|explain|set|reset|use)\b", re.IGNORECASE
)
_INSERTS = re.compile(rf"\binsert{_GAP}+(?:into|overwrite)\b", re.IGNORECASE)
_WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")
_COMPUTES_NAMES = re.compile(r"\b(?:identifier|immediate)\b", re.IGNORECASE)
_VIEW = re.compile(r"^Type: VIEW$", re.MULTILINE)
_LOCATION = re.compile(r"^Location: (.*)$", re.MULTILINE)
_is_own: ContextVar[bool] = ContextVar("is_own", default=False)


@contextmanager
def own_statements() -> Iterator[None]:
    """Run statements of this library, which write to the logs that a branch has for Spark."""
    token = _is_own.set(True)
    try:
        yield
    finally:
        _is_own.reset(token)


def _words(text: str) -> set[str]:
    """Return the words of a statement that may be names, in lower case.

    >>> sorted(_words("insert into `a b`.T"))
    ['a b', 'insert', 'into', 't']
    """
    return {(quoted.replace("``", "`") or plain).lower() for quoted, plain in _WORD.findall(text)}


class DatabaseStatements:
    """``sql`` of a Spark session that applies a lake's rules to databases, and those of branches.

    The first concern CREATE and DROP of DATABASE, SCHEMA and NAMESPACE. A new database without a
    location becomes a schema of ``lake``. Dropping a schema of any lake is refused.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._sql = session.sql
        self.lake: Lake | None = None
        """The lake whose names the session has; None before ``name_tables()``."""
        self.unreadable: dict[str, str] = {}
        """Quoted names of tables that Spark cannot read, and why."""
        self.branches: WeakSet[Lake] = WeakSet()
        """Lakes in a branch that engines on this session have open."""

    def __call__(self, sqlQuery: str, *args: Any, **kwargs: Any) -> DataFrame:
        self.refuse_main(sqlQuery)
        statement = _STATEMENT.match(sqlQuery) if isinstance(sqlQuery, str) else None
        if statement is None:
            with self.explaining_missing_names():
                return self._sql(sqlQuery, *args, **kwargs)
        parts = [part.strip("`").replace("``", "`") for part in re.findall(_PART, statement["name"])]
        if parts[:-1] not in ([], ["spark_catalog"]):
            return self._sql(sqlQuery, *args, **kwargs)
        if statement["verb"].lower() == "drop":
            self._refuse_drop(parts[-1])
        elif self.lake is not None and not re.search(
            r"\b(managed|location)\b", _LITERAL.sub("''", statement["rest"]), re.I
        ):
            return self._create(sqlQuery, parts[-1], *args, **kwargs)
        return self._sql(sqlQuery, *args, **kwargs)

    def refuse_main(self, text: object = None) -> None:
        """Refuse a user's statement that may read or write main instead of an open branch.

        Args:
            text: The statement; None for a read of a table by its name.

        Raises:
            UnsupportedFeature: The session has names of main's tables, or the statement writes to a
                path of the lake.
        """
        for lake in () if _is_own.get() else tuple(self.branches):
            self.refuse_names(lake, text if isinstance(text, str) else None)
            reads = text is None or _READS.match(str(text)) and not _INSERTS.search(_LITERAL.sub("''", str(text)))
            if not reads and f"{_folder(lake)}/" in unquote(str(text)):
                raise UnsupportedFeature(
                    f"Branch {lake.branch_name} of lake {lake.root}: a statement of PySpark that writes to a path of "
                    "the lake would write to main",
                    remedy="Write the branch by a session on Spark: duckrun.session('spark'), session.sql(…)",
                )

    def refuse_names(self, lake: Lake, text: str | None = None) -> None:
        """Refuse a session that has names of main's tables, for a branch.

        Args:
            lake: The branch.
            text: A statement; of the tables only those that it may name are looked at.

        Raises:
            UnsupportedFeature: PySpark would write to main by them.
        """
        words = None if text is None or _COMPUTES_NAMES.search(text) else _words(text)
        for name in self._names_below(_folder(lake), words):
            raise UnsupportedFeature(
                f"Branch {lake.branch_name} of lake {lake.root}: the Spark session has the lake's names ({name}), "
                "which stand for main, so PySpark would write to main by them",
                remedy="Use a process whose Spark session has no names of the lake, or engine: duckdb",
            )

    def _names_below(self, root: str, words: Set[str] | None) -> Iterator[str]:
        """Yield the databases and tables that lie below a folder, of the tables those in words."""
        pattern = "*" if words is None else "|".join(re.sub(r"\W", "*", word) for word in sorted(words))
        databases = None if words is None else {*words, self._session.catalog.currentDatabase().lower()}
        for database in self._session.catalog.listDatabases():
            if _is_below(database.locationUri, root):
                yield database.name
                continue
            plain = database.name.strip("`")  # Spark quotes a name that begins with a digit
            if databases is not None and plain.lower() not in databases:
                continue
            for row in self._sql(f"SHOW TABLE EXTENDED IN {quote(plain)} LIKE '{pattern}'").collect():
                if words is not None and _VIEW.search(row["information"]):  # of any tables
                    yield from self._names_below(root, None)
                    return
                location = _LOCATION.search(row["information"])
                if location is not None and _is_below(location[1], root):
                    yield f"{database.name}.{row['tableName']}"

    def _refuse_drop(self, name: str) -> None:
        root = self.lake_of(name)
        if root is not None:
            raise InvalidConfig(
                f"Database {name} is a schema of lake {root}. Spark would delete its folder with every table in it, "
                "also those that it has no names of. Drop its tables one by one with DROP TABLE, or the schema by "
                f"DROP SCHEMA {name} CASCADE in a duckrun session."
            )

    def _create(self, text: str, name: str, *args: Any, **kwargs: Any) -> DataFrame:
        lake = self.lake
        assert lake is not None
        if self.location_of(name) is not None:
            return self._sql(text, *args, **kwargs)  # Spark's own error, or nothing with IF NOT EXISTS
        lake.check_name(name)
        refuse_twins(lake, name)
        location = lake.storage.spark_location(f"{lake.root}/{lake.folder(lake.spelled_schema(name))}")
        created = self._sql(f"{text.rstrip().rstrip(';')}\nLOCATION {text_literal(location)}", *args, **kwargs)
        self._own(name, lake)
        return created

    @contextmanager
    def explaining_missing_names(self) -> Iterator[None]:
        """Add a note to Spark's error for a missing table, if the session has names of a lake."""
        try:
            yield
        except Exception as error:
            if self.lake is not None and condition_of(error, "TABLE_OR_VIEW_NOT_FOUND", "WITH_NON_EMPTY_LOCATION"):
                error.add_note(f"duckrun: {self._why_missing(text_of(error).lower())}")
            raise

    def _why_missing(self, text: str) -> str:
        assert self.lake is not None
        for name, reason in self.unreadable.items():
            if name in text:
                return f"Spark cannot read table {name} of lake {self.lake.root}, so it has no name here: {reason}"
        return (
            f"the session has names of lake {self.lake.root}, but not of each of its tables. Name the table: "
            "session(lake=…, names=['schema.table']) of SparkResource, or name_tables(spark, lake, ['schema.table'])."
        )

    def lake_of(self, name: str) -> str | None:
        """Return the root of the lake that a database is a schema of; None if none."""
        properties = self._described(name).get("Properties", "")
        root = re.search(rf"\({re.escape(LAKE_PROPERTY)},(.*?)\)(?:, \(|\)$)", properties)
        return None if root is None else root[1]

    def move(self, name: str, lake: Lake, location: str) -> None:
        """Make a database that is a schema of one lake a schema of another.

        Registered tables lose their names.

        Raises:
            InvalidConfig: Spark created a table in it by name. Dropping that name would delete its
                files.
        """
        tables = [row["tableName"] for row in self._sql(f"SHOW TABLES IN {quote(name)}").collect() if row["namespace"]]
        managed = [table for table in tables if self._is_managed(name, table)]
        if managed:
            raise InvalidConfig(
                f"Spark has made table {name}.{managed[0]} of lake {self.lake_of(name)} by its name, so schema {name} "
                f"cannot be one of lake {lake.root} in this process: Spark would remove that table's files. Use one "
                "lake by names in a process. Code that uses no names takes its session by "
                "session(storage=lake.storage) of SparkResource."
            )
        for table in tables:
            self._sql(f"DROP TABLE IF EXISTS {quote(name, table)}")
        self._sql(f"ALTER DATABASE {quote(name)} SET LOCATION {text_literal(location)}")
        self._own(name, lake)

    def _is_managed(self, database: str, table: str) -> bool:
        rows = self._sql(f"DESCRIBE TABLE EXTENDED {quote(database, table)}").collect()
        return any(row["col_name"] == "Type" and row["data_type"] == "MANAGED" for row in rows)

    def _own(self, name: str, lake: Lake) -> None:
        self._sql(
            f"ALTER DATABASE {quote(name)} SET DBPROPERTIES ({text_literal(LAKE_PROPERTY)} = {text_literal(lake.root)})"
        )

    def location_of(self, name: str) -> str | None:
        """Return the folder of a database; None if it does not exist."""
        location = self._described(name).get("Location")
        return None if location is None else local_path(location)

    def _described(self, name: str) -> dict[str, str]:
        if not self._session.catalog.databaseExists(quote(name)):
            return {}
        rows = self._sql(f"DESCRIBE DATABASE EXTENDED {quote(name)}").collect()
        return {row["info_name"]: row["info_value"] for row in rows}


def refuse_twins(lake: Lake, schema: str, tables_of: Mapping[str, Sequence[str]] | None = None) -> None:
    """Raise InvalidConfig if schemas, or tables of the schema, differ only in letter case.

    Spark's catalog ignores letter case. It would read or overwrite another table than the named
    one.

    Args:
        lake: The lake.
        schema: A schema, in any letter case.
        tables_of: Tables of each schema of the lake, if the caller has listed them.
    """
    schemas = [each for each in (lake.schemas() if tables_of is None else tables_of) if each.lower() == schema.lower()]
    tables = {each: lake.tables(each) if tables_of is None else tables_of[each] for each in schemas}
    names = schemas if len(schemas) > 1 else [f"{each}.{table}" for each in schemas for table in tables[each]]
    counts = Counter(map(str.lower, names))
    twins = [name for name in names if counts[name.lower()] > 1]
    if twins:
        raise InvalidConfig(
            f"Lake {lake.root} has {', '.join(sorted(twins))}, which differ in letter case only, and Spark's catalog "
            "ignores letter case. Read and write them by a duckrun session, or rename all but one of them."
        )


def local_path(location: str) -> str:
    """Return a location of Spark's in a comparable form: a local one as its path."""
    return re.sub(r"^file:/+", "/", unquote(location)).rstrip("/")


def _folder(lake: Lake) -> str:
    return local_path(lake.storage.spark_location(lake.root))


def _is_below(location: str, root: str) -> bool:
    return local_path(location).startswith(f"{root}/")


def guard(session: SparkSession) -> DatabaseStatements:
    """Return a session's guard; install it as ``sql`` and around ``table`` at the first call."""
    if not isinstance(session.sql, DatabaseStatements):
        statements = DatabaseStatements(session)
        session.sql = statements  # type: ignore[method-assign]
        session.table = _explaining(session.table, statements)  # type: ignore[method-assign,assignment]
    guarded: Any = session.sql
    assert isinstance(guarded, DatabaseStatements)
    return guarded


def _explaining(table: Callable[[str], DataFrame], statements: DatabaseStatements) -> Callable[[str], DataFrame]:
    def explained(tableName: str) -> DataFrame:
        statements.refuse_main()
        with statements.explaining_missing_names():
            return table(tableName)

    return explained
