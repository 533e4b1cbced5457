"""DuckLake tables on Spark.

Spark's workers read and write Parquet files, and DuckDB on the driver reads and commits the
catalog. Read ``writing.py`` first.
"""
