"""The command line ``duckrun``, over the public names of a session.

It formats for a terminal and decides nothing about tables. Read ``commands.py`` first.
"""

from duckrun.cli.commands import app, main

__all__ = ["app", "main"]
