"""A DuckDB instance: extensions, attached tables, Arrow values, views of a lake, and its errors.

It writes no table and knows no write. Read ``instance.py`` first, then ``views.py`` for SQL that
this library does not rewrite.
"""
