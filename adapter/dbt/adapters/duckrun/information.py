"""Lists of tables in a node's SQL, such as information_schema, completed by the lakes' tables.

DuckDB itself knows the tables of a lake as views, and only those that a node has named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import duckdb

from duckrun.errors import UnsupportedFeature
from duckrun.lake.lake import INFORMATION
from duckrun.lake.lakes import OWN_CATALOGS
from duckrun.sql.plain_names import words_in
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.statements.engine_lists import LISTS, list_sql

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

_VIEWS = ("tables", "columns", "views", "schemata")
_ITEMS = {
    "duckdb_tables": "table_name",
    "duckdb_views": "view_name",
    "duckdb_columns": "table_name",
    "duckdb_schemas": "schema_name",
}
"""The name column of each list function."""
_OF_TABLES = ("table_catalog", "table_schema", "table_name")
_OF_SCHEMAS = ("catalog_name", "schema_name", "schema_name")
"""Columns of the views of information_schema that tell their rows apart."""
_OTHER_LISTS = ("sqlite_master", "sqlite_schema", "pg_tables", "pg_views", "pg_class", "pg_attribute")
_TEMPORARY = "_duckrun_list_of_"


def listed(env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Return a statement that lists tables with lists that include the lakes' tables.

    Any other statement is returned unchanged.

    Raises:
        UnsupportedFeature: The list would lack the tables of the lakes.
    """
    text = sql.lower()
    if not _may_mention(text) and not text.lstrip().startswith("show"):
        return sql
    parts, end = [], 0
    lists = _Lists(env, cursor)
    for start, stop, name in _mentions(sql):
        parts += [sql[end:start], lists.named(name)]
        end = stop
    return "".join([*parts, sql[end:]])


def lists_tables(sql: str) -> bool:
    """Return True for a statement that lists tables, columns, views or schemas."""
    text = sql.lower()
    return (_may_mention(text) or "show" in text) and any(True for _ in _mentions(sql))


def _may_mention(text: str) -> bool:
    """Return False for a text in lower case without any list: most need no tokenizer."""
    return INFORMATION in text or any(name in text for name in (*LISTS, *_OTHER_LISTS))


def _mentions(sql: str) -> Iterator[tuple[int, int, str]]:
    """Yield the begin, the end and the name of each list in a statement."""
    tokens = list(words_in(sql))
    words = [token.text.lower() for token in tokens]
    if words[:2] == ["show", "tables"] or words[:3] == ["show", "all", "tables"]:
        raise _missing("SHOW TABLES")
    for at, word in enumerate(words):
        before = words[at - 2] if at > 1 and words[at - 1] == "." else None
        first = at - 2 if before is not None else at
        if word in _OTHER_LISTS and words[at + 1 : at + 2] != ["("] and before in (None, "pg_catalog", "main"):
            if at and words[at - 1] in ("from", "join", ",") or before is not None:
                raise _missing(word)
        elif word == INFORMATION and words[at + 1 : at + 2] == ["."] and before != "system":
            name = words[at + 2] if at + 2 < len(words) else ""
            if name in _VIEWS:
                yield tokens[first].start, tokens[at + 2].end, name
        elif word in LISTS and words[at + 1 : at + 3] == ["(", ")"] and before is None:
            yield tokens[at].start, tokens[at + 2].end, word


def _missing(name: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{name} would list the tables of DuckDB's memory and not those of the lake. "
        f"Read {INFORMATION}.tables, or {INFORMATION}.columns."
    )


class _Lists:
    """Temporary tables of one cursor that list the lakes' tables and those of other databases.

    Each is created once per statement.
    """

    def __init__(self, env: LakeEnvironment, cursor: duckdb.DuckDBPyConnection) -> None:
        self.env, self.cursor = env, cursor
        self._of_lakes: dict[str, str] = {}
        self._all: dict[str, str] = {}

    def named(self, name: str) -> str:
        """Return the temporary table that replaces a list."""
        if name not in self._all:
            self._all[name] = self._function(name) if name in LISTS else self._view(name)
        return self._all[name]

    def _view(self, name: str) -> str:
        key = _OF_SCHEMAS if name == "schemata" else _OF_TABLES
        return self._made(name, f"system.{INFORMATION}.{name}", f"SELECT * FROM {self._lakes(name)}", key)

    def _function(self, name: str) -> str:
        key = ("database_name", "schema_name", _ITEMS[name])
        return self._made(name, f"system.main.{name}()", list_sql(name, self._lakes), key)

    def _made(self, name: str, duckdb_rows: str, lakes: str, key: tuple[str, ...]) -> str:
        """Create a temporary table of DuckDB's own rows and the lakes' rows, without duplicates."""
        # DuckDB's views over the lakes' tables are left out: the lakes' rows list them as tables.
        hidden = f"lower(duck.{key[-1]}) NOT LIKE '\\_duckrun\\_%' ESCAPE '\\'"
        view, places = ("schemata", _OF_SCHEMAS) if key[-1] == "schema_name" else ("tables", _OF_TABLES)
        same = " AND ".join(
            f"lower(duck.{mine}) = lower(lake.{place})" for mine, place in zip(key, places, strict=True)
        )
        return self._table(
            f"all_{name}",
            f"SELECT * FROM {duckdb_rows} AS duck "
            f"WHERE {hidden} AND NOT EXISTS (SELECT 1 FROM {self._lakes(view)} AS lake WHERE {same}) "
            f"UNION ALL BY NAME ({lakes})",
        )

    def _lakes(self, name: str) -> str:
        """Create a temporary table of the lakes' rows, with the project's database names."""
        if name not in self._of_lakes:
            rows = self.env.session(self.env.engine).sql(f"select * from {INFORMATION}.{name}").toArrow()
            catalog = "catalog_name" if name == "schemata" else "table_catalog"
            database = (
                f"CASE {catalog} WHEN {quote_literal(OWN_CATALOGS[0])} "
                f"THEN {quote_literal(self.env.creds.database)} ELSE {catalog} END"
            )
            registered = f"{_TEMPORARY}rows"
            self.cursor.register(registered, rows)
            try:
                self._of_lakes[name] = self._table(
                    f"lakes_{name}",
                    f"SELECT * REPLACE ({database} AS {catalog}) FROM {registered} WHERE {catalog} <> 'temp'",
                )
            finally:
                self.cursor.unregister(registered)
        return self._of_lakes[name]

    def _table(self, name: str, query: str) -> str:
        table = f"temp.main.{quote_identifier(_TEMPORARY + name)}"
        self.cursor.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}")
        return table
