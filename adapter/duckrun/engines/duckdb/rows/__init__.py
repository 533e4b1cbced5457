"""Rows as SELECTs on a cursor: sources of a write, rows of a table, and rows fitted to a table.

It writes no file and commits nothing. Read ``source.py`` first, then ``fitted.py`` for the checks
and ``places.py`` for the identity of rows.
"""
