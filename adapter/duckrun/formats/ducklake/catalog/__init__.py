"""Catalog of a DuckLake: its attachments, queries, lock, bounds, and the errors of its database.

It knows neither the tables of a lake nor their definitions. Read ``catalog.py`` first, then
``answers.py`` for a COMMIT whose answer is lost.
"""
