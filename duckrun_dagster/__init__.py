"""Dagster on a lake of Delta or DuckLake tables.

Resources, an IO manager for many types and two engines, and dbt models as assets. ``__init__.pyi``
lists the names. Each is imported at first use: importing dbt takes longer than all the rest, and
each step process of a run imports this package.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
