"""Maintenance, asset checks, sensors and external assets for tables of the lake.

Read ``maintenance.py`` first.
"""
