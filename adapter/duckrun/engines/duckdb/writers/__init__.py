"""Writers of the DuckDB engine, and the commit of each.

``table_writer.py`` has the protocol: ``file_tables`` writes tables with a log of their own, and
``statement_tables`` those of a lake with transactions. They get rows whose casts and matches are
decided before. ``staged`` and ``delta_rs`` make the data files. Read ``table_writer.py`` first.
"""
