"""The dbt adapter ``duckrun``: dbt-duckdb whose tables and views live in a lake of Delta tables."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.duckrun.connections import DuckrunConnectionManager
from dbt.adapters.duckrun.credentials import DuckrunCredentials
from dbt.adapters.duckrun.dialect import Duckrun
from dbt.adapters.duckrun.impl import DuckrunAdapter
from dbt.adapters.duckrun.project import project
from dbt.include import duckrun

__all__ = ["Duckrun", "DuckrunAdapter", "DuckrunConnectionManager", "DuckrunCredentials", "Plugin", "project"]

Plugin = AdapterPlugin(
    adapter=DuckrunAdapter,  # type: ignore[arg-type]
    credentials=DuckrunCredentials,
    include_path=duckrun.PACKAGE_PATH,
    # dbt-duckdb's macros are inherited: dispatch looks for duckrun__x, duckdb__x, default__x.
    dependencies=["duckdb"],
)
