"""Parts of a session: its lakes and engines, statements and writes, upkeep, and transactions.

Each module knows those that it takes and nothing of tables, builders and moves, which take a
session. ``duckrun/session.py`` composes all of them. Read ``opened.py`` and ``tables.py`` first.
"""
