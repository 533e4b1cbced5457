"""DuckDB engine, and what code needs that manages its own DuckDB connections, such as dbt.

Its rooms, from below: ``instance``, ``rows``, ``writers``, ``changes``. Read ``engine.py`` first.

Importing this package does not import DuckDB: each name of ``__init__.pyi`` is imported at its
first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
