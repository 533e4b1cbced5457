"""Writers: rows whose casts and matches are decided become data files or statements, and a commit.

``file_tables.py`` writes tables with a log each, ``statement_tables.py`` those of a lake with
transactions. Read ``table_writer.py`` first, which has their protocol.
"""
