"""Rules of every write and read, for each engine and format.

Locks, fences, retries, exactly-once, pinned versions and shares of memory are decided here, once.
It knows no engine. Read ``transaction.py``, then ``pins.py``.
"""
