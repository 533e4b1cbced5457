"""DuckDB for code that manages its own connections, such as dbt.

It exports the extensions, the settings of an instance, the engine and the views of a lake.
Importing this package does not import DuckDB: each name of ``__init__.pyi`` is imported at its
first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
