"""The version of the installed distribution, which dbt shows for the adapter."""

from importlib.metadata import PackageNotFoundError, version as _version

try:
    version = _version("duckrun-dagster")
except PackageNotFoundError:  # run from a source tree that is not installed
    version = "0.0.0"
