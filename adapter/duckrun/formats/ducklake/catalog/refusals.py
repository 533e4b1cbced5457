"""Reasons of refusals by DuckLake, where only the text of its error tells them."""

from __future__ import annotations

from duckrun.sql.refusals import Refusal


class DuckLakeRefusal(Refusal):
    """Reasons of DuckDB's extensions ducklake and postgres, which raise DuckDB's general errors.

    Read from DuckLake 1.0 for duckdb 1.5.5: https://github.com/duckdb/ducklake/tree/main/src/storage
    """

    LOCK_TIMEOUT = r"lock timeout"
    """PostgreSQL's SQLSTATE 55P03 (lock_not_available); the extension passes the text alone."""
    INLINED_TABLE = r"ducklake_inlined_data"
    """A table of inlined rows that another process has dropped (ducklake_metadata_manager.cpp)."""
    ATTACHED_ALREADY = r"already exists"
    """A database of this name is attached (duckdb, src/main/database_manager.cpp)."""
    NOT_NULL_UNKNOWN = r" stats "
    """SET NOT NULL without statistics of the column (ducklake_table_entry.cpp)."""
    NOT_NULL_LATER = r"transaction-local changes"
    """SET NOT NULL after changes in one transaction (ducklake_table_entry.cpp)."""
    NO_VIEW = r"is of type Table, trying to drop type View"
    """DROP VIEW of a table (ducklake_schema_entry.cpp)."""
    COMMIT_TAKEN = r"(?i)failed to commit|database is locked|conflict|could not serialize|deadlock"
    """Another writer came first (ducklake_transaction.cpp, and the catalog's database)."""
    ZERO_BYTE = r"unterminated quoted string"
    """An inlined list has a string with chr(0), where DuckLake's statement ends."""
