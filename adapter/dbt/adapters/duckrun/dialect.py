"""The adapter's name as a dialect of sqlglot: tools that read a model's SQL ask for it by that name, dagster-dbt for one."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB


class Duckrun(DuckDB):
    """DuckDB's SQL. sqlglot knows a dialect by the name of its class, from when that class is made."""
