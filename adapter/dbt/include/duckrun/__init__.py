"""The dbt project that comes with the adapter: macros that stage and hand over to one Python method each."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
