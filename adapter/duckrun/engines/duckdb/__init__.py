"""DuckDB for what stands on its own connections, as dbt does: extensions, settings of an instance, the engine, views of a lake.

Importing this package imports no DuckDB; each name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from duckrun.lazy import names_from

if TYPE_CHECKING:
    from duckrun.engines.duckdb.engine import DuckDBEngine
    from duckrun.engines.duckdb.instance import UNSIGNED, extension_path, instance_config, load_extensions
    from duckrun.engines.duckdb.source import SqlOnCursor
    from duckrun.engines.duckdb.types import as_utc
    from duckrun.engines.duckdb.views import ViewCatalog

else:
    __getattr__ = names_from(
        __name__,
        {
            "duckrun.engines.duckdb.engine": ("DuckDBEngine",),
            "duckrun.engines.duckdb.instance": ("UNSIGNED", "extension_path", "instance_config", "load_extensions"),
            "duckrun.engines.duckdb.source": ("SqlOnCursor",),
            "duckrun.engines.duckdb.types": ("as_utc",),
            "duckrun.engines.duckdb.views": ("ViewCatalog",),
        },
    )

__all__ = [
    "UNSIGNED",
    "DuckDBEngine",
    "SqlOnCursor",
    "ViewCatalog",
    "as_utc",
    "extension_path",
    "instance_config",
    "load_extensions",
]
