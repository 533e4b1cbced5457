"""DeltaIOManager, and one type handler per file."""

from duckrun_dagster.io_managers.handlers.handler import TypeHandler
from duckrun_dagster.io_managers.manager import DeltaIOManager

__all__ = ["DeltaIOManager", "TypeHandler"]
