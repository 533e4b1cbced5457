"""Type handlers of the IO manager, one file per library.

A handler says how a value of its type is written and how a scan becomes a value. Read
``handler.py`` first.
"""
