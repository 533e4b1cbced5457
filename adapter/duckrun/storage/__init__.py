"""Files and credentials: local folders, S3, Azure and GCS.

It lists, reads, writes and locks files, loads DuckDB's extensions, and knows no table. Read
``storage.py`` first.
"""
