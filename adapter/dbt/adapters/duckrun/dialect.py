"""The adapter's name as a sqlglot dialect.

Tools such as dagster-dbt need it to parse a model's SQL.
"""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB


class Duckrun(DuckDB):
    """DuckDB's SQL. sqlglot registers a dialect by its class name when the class is defined."""
