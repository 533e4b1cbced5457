"""RETURNING: the rows that an attempt is about to commit, as the statement asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.sql.names import quote_identifier

if TYPE_CHECKING:
    import duckdb

    from duckrun.run.transaction import Transaction


def give_back(transaction: Transaction, cursor: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Put what RETURNING asks for of some rows, a query that has one answer, where the statement finds it; nothing where none is
    asked for. It is computed before the commit, so that an error in it leaves the table as it was.
    """
    asked = transaction.returning
    if asked is not None:
        # On lines of its own: a comment may end the list.
        sql = f"SELECT {asked.columns}\nFROM ({rows}) AS {quote_identifier(asked.alias)}"
        asked.rows = cursor.execute(sql).to_arrow_table()
