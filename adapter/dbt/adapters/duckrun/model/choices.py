"""Words that a key of a profile or of a config takes."""

from __future__ import annotations

DIALECTS = ("duckdb", "spark")
NAIVE_TIMESTAMPS = ("ntz", "utc")
"""A timestamp without zone is stored as Delta's timestamp_ntz, or as an instant of UTC."""
COMMANDS = ("run", "build", "seed", "snapshot", "clone")
"""Commands that are one transaction with ``publish: together``.

``retry`` is refused: a failed run published nothing.
"""
DATABASE = "lake"
"""The lake's name in SQL with ``publish: together``.

While a transaction is open, the lake is an attached DuckDB database.
"""
