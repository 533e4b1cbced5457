"""Definition of a Delta table as a value: columns, properties, features, and changes of them.

It reads no log and no file. Read ``definition.py`` first, then ``creation.py`` for new tables and
``rules.py`` for changes.
"""
