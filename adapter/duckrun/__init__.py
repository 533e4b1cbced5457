"""A lakehouse of plain Delta tables, read and written by DuckDB with delta_rs or by Spark."""
