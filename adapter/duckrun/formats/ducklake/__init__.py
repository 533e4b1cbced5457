"""DuckLake tables: the catalog in a SQL database, snapshots, commits and upkeep.

Nothing outside this package reads or writes the catalog. DuckDB's extension makes the commits. Read
``ducklake.py``, then the rooms from below: ``catalog`` and ``definition``, ``state``, ``commits``.

Specification: https://ducklake.select/docs/stable/specification/introduction
"""
