"""Config of dbt nodes as frozen values.

This package parses; it writes nothing and opens no table. Read ``config.py`` first.
"""
