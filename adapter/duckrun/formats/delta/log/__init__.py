"""Log of a Delta table: entries, checkpoints, and the add and remove actions in them.

It knows neither what a table's definition means nor how a version is cached. Read ``entries.py``
first, then ``access.py``.
"""
