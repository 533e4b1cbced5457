"""Everything that writes to a DuckLake: transactions, commits, restores, upkeep, views and macros.

It reads tables through ``state``, and no other room commits. Read ``transactor.py`` first, then
``commits.py``.
"""
