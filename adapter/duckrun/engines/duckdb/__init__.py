"""DuckDB for what stands on its own connections, as dbt does: extensions, settings of an instance, the engine, views of a lake.

Importing this package imports no DuckDB; each name of ``__init__.pyi`` is imported when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
