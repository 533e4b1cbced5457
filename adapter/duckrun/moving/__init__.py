"""Tables from elsewhere into a lake, and out of it.

Sources are Parquet files, databases and other lakes; ``kinds.py`` says what becomes of each type.
Read ``moving.py`` first.
"""
