"""Views of a DuckLake, which its catalog stores."""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import TokenType

from duckrun.errors import StorageError
from duckrun.formats.ducklake.catalog.catalog import there
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.sql.spelled import with_plain_lambdas
from duckrun.values.snapshot import TableRef


class Views:
    """Views of one lake."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor

    def put(self, ref: TableRef, sql: str, comment: str | None) -> None:
        """Create or replace a view, and drop a table of its name.

        Raises:
            InvalidConfig: DuckDB rejects the view.
        """
        view = f"{{lake}}.{quote_identifier(ref.schema, ref.name)}"
        self._transactor.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(ref.schema)}",
            *([f"DROP TABLE {view}"] if self._transactor.exists(ref) else []),
            f"CREATE OR REPLACE VIEW {view} AS {sql}",
            *([f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []),
        )

    def find(self, schema: str, name: str) -> tuple[str, str | None] | None:
        """Return the SQL and the comment of a view; None if there is none of that name.

        An open multi-table transaction sees its own changes.
        """
        work = self._transactor.together
        if work is None:
            views = self._listed(None, "s.schema_name = ? AND v.view_name = ?", [schema, name])
            return views.get((schema, name))
        listed = "SELECT sql, comment FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?"
        rows = work.ask(listed, [work.alias, schema, name])
        return (with_plain_lambdas(_query_of(rows[0][0])), rows[0][1]) if rows else None

    def is_as(self, ref: TableRef, sql: str, comment: str | None) -> bool:
        """True if the catalog's view has equivalent SQL and this comment."""
        view = self.find(ref.schema, ref.name)
        return view is not None and view[1] == comment and self._is_same(view[0], sql)

    def rename(self, ref: TableRef, new: TableRef, sql: str, comment: str | None) -> None:
        """Rename a view within its schema."""
        old, view = (f"{{lake}}.{quote_identifier(each.schema, each.name)}" for each in (ref, new))
        comments = [f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []
        self._transactor.run_alone(f"DROP VIEW {old}", f"CREATE VIEW {view} AS {sql}", *comments)

    def drop(self, ref: TableRef) -> None:
        self._transactor.run_alone(f"DROP VIEW IF EXISTS {{lake}}.{quote_identifier(ref.schema, ref.name)}")

    def at(self, snapshot: int) -> dict[tuple[str, str], tuple[str, str | None]]:
        """Return the views at a snapshot: (schema, name) -> (SQL, comment)."""
        return self._listed(snapshot)

    def _listed(
        self, snapshot: int | None, where: str = "true", values: Sequence[str] = ()
    ) -> dict[tuple[str, str], tuple[str, str | None]]:
        """Views at a snapshot, or now."""
        meta = self._transactor.catalog.meta
        rows = self._transactor.catalog.ask(
            f"SELECT s.schema_name, v.view_name, v.sql, t.value FROM {meta('ducklake_view')} AS v "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"LEFT JOIN (SELECT * FROM {meta('ducklake_tag')} AS g WHERE {there('g', snapshot)} AND key = 'comment') "
            "AS t ON t.object_id = v.view_id "
            f"WHERE {there('v', snapshot)} AND {there('s', snapshot)} AND {where}",
            values,
        )
        return {
            # DuckLake stores a placeholder for the catalog's name.
            (s, n): (with_plain_lambdas(sql.replace("{DUCKLAKE_CATALOG}.", "")), comment)
            for s, n, sql, comment in rows
        }

    def _is_same(self, sql: str, other: str) -> bool:
        """True for two queries that differ only in spelling."""
        try:
            # DuckDB's serialization removes differences of spelling.
            plain = self._transactor.catalog.ask(
                "SELECT json_deserialize_sql(json_serialize_sql(?)), json_deserialize_sql(json_serialize_sql(?))",
                [sql, other],
            )
        except StorageError:  # DuckDB cannot serialize one of them: treat them as different.
            return False
        return bool(plain) and plain[0][0] == plain[0][1]


def _query_of(statement: str) -> str:
    """Return the query inside the CREATE VIEW statement that DuckDB shows for a view."""
    depth = 0
    for token in sqlglot.tokenize(statement, read="duckdb"):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth and token.token_type == TokenType.ALIAS:
            return statement[token.end + 1 :].strip().rstrip(";")
    return statement
