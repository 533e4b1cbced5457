"""Statements that change rows, as specs and sources of the engines.

It finds the tables and columns that a statement names, and writes nothing. Read ``rows.py`` first.
"""
