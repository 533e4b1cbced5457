"""The dbt project of the adapter: macros that stage rows and call one Python method each."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
