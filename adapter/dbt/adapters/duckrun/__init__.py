"""The dbt adapter ``duckrun``: dbt-duckdb with tables and views in a lake."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.duckrun.connections import DuckrunConnectionManager
from dbt.adapters.duckrun.credentials import DuckrunCredentials
from dbt.adapters.duckrun.impl import DuckrunAdapter
from dbt.include import duckrun

if TYPE_CHECKING:
    from dbt.adapters.duckrun.dialect import Duckrun
    from dbt.adapters.duckrun.projects import Project

__all__ = ["Duckrun", "DuckrunAdapter", "DuckrunConnectionManager", "DuckrunCredentials", "Plugin", "project"]

Plugin = AdapterPlugin(
    adapter=DuckrunAdapter,  # type: ignore[arg-type]
    credentials=DuckrunCredentials,
    include_path=duckrun.PACKAGE_PATH,
    # dbt-duckdb's macros are inherited: dispatch looks for duckrun__x, duckdb__x, default__x.
    dependencies=["duckdb"],
)


if "sqlglot" in sys.modules:
    # Register the dialect for a tool that has imported sqlglot, such as dagster-dbt. Any other tool
    # finds it by the entry point, from sqlglot 28.6 on. No dbt command needs it.
    from dbt.adapters.duckrun.dialect import Duckrun


def __getattr__(name: str) -> Any:
    """Import the dialect at its first use, since sqlglot is slow to import."""
    if name != "Duckrun":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dbt.adapters.duckrun import dialect

    return dialect.Duckrun


def project(folder: str | os.PathLike[str] = ".", target: str | None = None) -> Project:
    """Open a dbt project, to look into it from a notebook. See Project."""
    from dbt.adapters.duckrun.projects import Project  # not at the top: no dbt command needs it

    return Project(folder, target)
