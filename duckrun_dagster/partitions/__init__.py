"""Partitions of assets as rows of their tables.

A step's partitions become one SQL predicate. It opens no table. Read ``partitions.py`` first.
"""
