"""Versions of Delta tables: snapshots, the cache of the newest ones, and changes between them.

It commits nothing. Read ``tables.py`` first, then ``newest.py`` for the cache.
"""
