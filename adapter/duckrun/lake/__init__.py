"""A lake: a root, its schemas, tables and views, and how a name finds them.

It runs no query and knows no engine. Read ``lake.py``, then ``lakes.py`` for several lakes in one
session.
"""
