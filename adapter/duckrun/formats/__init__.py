"""Table formats: Delta and DuckLake behind one protocol.

A format finds tables, describes their versions and commits. It runs no query of a user and knows no
engine. Read ``format.py`` first.
"""
