"""Definition of a DuckLake table as a value: columns, partitions, and the SQL that changes them.

It asks no catalog. Read ``definition.py`` first, then ``defining.py`` for specs and ``ddl.py`` for
statements.
"""
