"""Data files of a version: their listing, deletion vectors and bounds, and the SQL that reads them.

It opens no version itself: callers pass the function that does. Read ``logged.py`` first, then
``scan_sql.py``.
"""
