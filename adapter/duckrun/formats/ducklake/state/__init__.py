"""State of a table at a snapshot: files, history, applied transactions, and changes between two.

It writes nothing. Read ``state.py`` first, then ``records.py`` for history and ``state_reader.py``
for change queries.
"""
