"""Frozen values that the rooms above pass on: specs, snapshots, files and commits.

They know no engine, no format and no storage, and they survive pickle. Read ``rows.py`` and
``snapshot.py`` first.
"""
