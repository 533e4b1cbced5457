"""Change queries: the changes of a table between two versions.

Contract: docs/changes.md.
"""
