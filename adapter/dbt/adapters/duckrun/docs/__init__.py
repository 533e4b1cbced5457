"""Contents of `dbt docs` for the tables of the lake.

Columns, comments, row counts and sizes come from the logs of the tables. Read ``catalog.py`` first.
"""
