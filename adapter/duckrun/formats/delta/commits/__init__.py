"""Everything that writes to a Delta table: commits, restores, checkpoints, vacuum, drops.

It reads tables through ``versions``, and no other room commits. Read ``commit.py`` first, then
``replaced.py`` for tables that are dropped meanwhile.
"""
