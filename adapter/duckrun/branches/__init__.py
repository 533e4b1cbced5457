"""Branches of a lake of Delta tables: isolated lines of commits, published to main by metadata.

It knows lakes and formats, and no engine and no session. Read ``lake.py``, the lake as a branch
sees it, then ``publish.py``.
"""
