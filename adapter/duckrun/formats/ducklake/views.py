"""The views of a DuckLake, which lie in its catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.tokens import TokenType

from duckrun.errors import StorageError
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.sql.spelled import with_plain_lambdas
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat


class Views:
    """The views of one lake."""

    def __init__(self, form: DuckLakeFormat) -> None:
        self._form = form

    def put(self, ref: TableRef, sql: str, comment: str | None) -> None:
        """Make a view of the catalog; a table of its name goes. Raises InvalidConfig where DuckDB does not take it."""
        view = f"{{lake}}.{quote_identifier(ref.schema, ref.name)}"
        self._form.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(ref.schema)}",
            *([f"DROP TABLE {view}"] if self._form.exists(ref) else []),
            f"CREATE OR REPLACE VIEW {view} AS {sql}",
            *([f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []),
        )

    def find(self, schema: str, name: str) -> tuple[str, str | None] | None:
        """The SQL of a view, and its comment, as an open transaction over several tables sees it; None where there is none of that name."""
        work = self._form.together
        if work is None:
            found = self._listed(None, "s.schema_name = ? AND v.view_name = ?", [schema, name])
            return found.get((schema, name))
        listed = "SELECT sql, comment FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?"
        rows = work.ask(listed, [work.alias, schema, name])
        return (with_plain_lambdas(_query_of(rows[0][0])), rows[0][1]) if rows else None

    def is_as(self, ref: TableRef, sql: str, comment: str | None) -> bool:
        """True if a view of the catalog has this SQL, however it is spelled, and this comment."""
        found = self.find(ref.schema, ref.name)
        return found is not None and found[1] == comment and self._is_same(found[0], sql)

    def rename(self, ref: TableRef, new: TableRef, sql: str, comment: str | None) -> None:
        """Give a view another name in its schema."""
        old, view = (f"{{lake}}.{quote_identifier(each.schema, each.name)}" for each in (ref, new))
        said = [f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []
        self._form.run_alone(f"DROP VIEW {old}", f"CREATE VIEW {view} AS {sql}", *said)

    def drop(self, ref: TableRef) -> None:
        self._form.run_alone(f"DROP VIEW IF EXISTS {{lake}}.{quote_identifier(ref.schema, ref.name)}")

    def at(self, snapshot: int) -> dict[tuple[str, str], tuple[str, str | None]]:
        """The views at a snapshot: (schema, name) -> the SQL and the comment."""
        return self._listed(snapshot)

    def _listed(
        self, snapshot: int | None, where: str = "true", values: Sequence[str] = ()
    ) -> dict[tuple[str, str], tuple[str, str | None]]:
        """Those at a snapshot, or now."""
        meta = self._form.catalog.meta

        def there(entry: str) -> str:
            ended = f"{entry}.end_snapshot IS NULL"
            if snapshot is None:
                return ended
            return f"{entry}.begin_snapshot <= {snapshot} AND (({ended}) OR {entry}.end_snapshot > {snapshot})"

        found = self._form.catalog.ask(
            f"SELECT s.schema_name, v.view_name, v.sql, t.value FROM {meta('ducklake_view')} AS v JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"LEFT JOIN (SELECT * FROM {meta('ducklake_tag')} AS g WHERE {there('g')} AND key = 'comment') AS t ON t.object_id = v.view_id "
            f"WHERE {there('v')} AND {there('s')} AND {where}",
            values,
        )
        return {
            (s, n): (with_plain_lambdas(sql.replace("{DUCKLAKE_CATALOG}.", "")), comment)
            for s, n, sql, comment in found
        }

    def _is_same(self, sql: str, other: str) -> bool:
        """True for two queries that differ in spelling alone."""
        try:
            plain = self._form.catalog.ask(
                "SELECT json_deserialize_sql(json_serialize_sql(?)), json_deserialize_sql(json_serialize_sql(?))",
                [sql, other],
            )
        except StorageError:  # what DuckDB cannot write down so is another one
            return False
        return bool(plain) and plain[0][0] == plain[0][1]


def _query_of(statement: str) -> str:
    """The query in the CREATE VIEW that DuckDB shows of a view."""
    depth = 0
    for token in sqlglot.tokenize(statement, read="duckdb"):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth and token.token_type == TokenType.ALIAS:
            return statement[token.end + 1 :].strip().rstrip(";")
    return statement
