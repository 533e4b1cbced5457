"""Parts of a session: its lakes and engines, writes, upkeep, and several commits together.

``duckrun/session.py`` is the class that users see. Read ``opened.py`` first.
"""
