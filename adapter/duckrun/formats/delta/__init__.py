"""Delta tables in folders: the log, snapshots, commits and upkeep.

Nothing outside this package reads or writes ``_delta_log``. It knows no engine. Read ``delta.py``,
then the rooms from below: ``log`` and ``definition``, ``files``, ``versions``, ``commits``.

Protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md
"""
