"""Writes of dbt nodes: models, snapshots and seeds become tables or views.

A macro stages rows and calls one method of the adapter; this package turns the node's config into
one write. It writes through the engines alone. Read ``build.py`` first.
"""
