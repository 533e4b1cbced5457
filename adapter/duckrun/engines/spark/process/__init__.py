"""The Spark session of a process: packages, start, health and shutdown.

It knows no table. Read ``session.py`` first.
"""
