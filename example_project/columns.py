"""Descriptions of columns. dbt's doc blocks have them; assets in Python read the same file."""

from __future__ import annotations

import re

from example_project import settings

_BLOCK = re.compile(r"{% docs (\w+) %}\n(.*?)\n{% enddocs %}", re.DOTALL)
_TEXTS: dict[str, str] = dict(_BLOCK.findall((settings.DBT_FOLDER / "models" / "columns.md").read_text("utf-8")))


def described(names: str, **others: str) -> dict[str, str]:
    """Return the descriptions of columns.

    Args:
        names: Names of columns, separated by spaces.
        others: Columns that mean something else in this table, with their descriptions.

    Raises:
        KeyError: A column has no description.
    """
    return {name: _TEXTS[name] for name in names.split()} | others
