"""Python values as Arrow tables.

It knows no engine and no table. Read ``values.py`` first.
"""
