"""Partitions of assets as rows of their tables.

A step's partitions become one SQL predicate. It opens no table but to list what is missing. Read
``partitions.py`` first.
"""
