"""dbt nodes that run on Spark.

Importing this package imports none of its modules: each name of ``__init__.pyi`` is imported at
first use, so a run on DuckDB loads nothing of Spark. Read ``session.py`` first.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
