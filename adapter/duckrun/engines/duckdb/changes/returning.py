"""RETURNING: the rows that an attempt is about to commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duckrun.sql.quoting import quote_identifier

if TYPE_CHECKING:
    import duckdb

    from duckrun.run.transaction import Transaction


def give_back(transaction: Transaction, cursor: duckdb.DuckDBPyConnection, rows: str) -> None:
    """Compute the RETURNING list over some rows, if the statement has one.

    The query ``rows`` must not be volatile.
    """
    # This runs before the commit, so that an error in the list leaves the table unchanged.
    returning = transaction.returning
    if returning is not None:
        # On lines of its own: a comment may end the list.
        sql = f"SELECT {returning.columns}\nFROM ({rows}) AS {quote_identifier(returning.alias)}"
        returning.rows = cursor.execute(sql).to_arrow_table()
