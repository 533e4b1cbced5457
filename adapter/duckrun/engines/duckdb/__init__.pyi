from .engine import DuckDBEngine as DuckDBEngine
from .instance import (
    UNSIGNED as UNSIGNED,
    extension_path as extension_path,
    instance_config as instance_config,
    load_extensions as load_extensions,
)
from .source import SqlOnCursor as SqlOnCursor
from .types import as_utc as as_utc
from .views import ViewCatalog as ViewCatalog
