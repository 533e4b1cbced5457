"""Names of ``duckrun.spark``, for users, dbt and Dagster.

Importing this package imports no PySpark and starts nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
