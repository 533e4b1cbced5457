"""SQL text and syntax trees: names, dialects, translation between DuckDB and Spark.

It runs nothing and opens no table. Read ``names.py`` for the names in a query, and ``dialects.py``
for the translation.
"""
