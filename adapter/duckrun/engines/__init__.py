"""Engines that read and write tables: DuckDB and Spark.

The modules here hold what both engines share, and neither engine imports the other. An engine finds
and commits tables through ``run``, ``lake`` and ``formats``. Read ``engine.py`` first.
"""
