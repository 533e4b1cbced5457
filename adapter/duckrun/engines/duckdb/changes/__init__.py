"""Changes of a table: which rows a write adds, updates and deletes, decided before any file.

A writer of the room ``writers`` makes the files and the commit. Read ``write.py`` first, then
``change.py`` and ``merge.py`` for changes of existing rows.
"""
