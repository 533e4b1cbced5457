from .engine import DuckDBEngine as DuckDBEngine
from .instance.instance import instance_config as instance_config, load_extensions as load_extensions
from .instance.views import ViewCatalog as ViewCatalog
from .rows.source import SqlOnCursor as SqlOnCursor
from .rows.types import (
    as_utc as as_utc,
    spelled_by_duckdb as spelled_by_duckdb,
)
