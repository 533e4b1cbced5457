"""Modules that parse SQL, imported with sqlglot at the first use of one of their names.

Code above this room takes them from here if it runs without them in most processes, such as in a
``dbt run`` of plain models.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from duckrun.sql import (
        alike,
        conditions as sql_conditions,
        dialects,
        kinds,
        names as sql_names,
        placing,
        scalar,
        scopes,
        written,
    )
else:
    from duckrun.libraries import on_demand

    alike = on_demand("duckrun.sql.alike")
    dialects = on_demand("duckrun.sql.dialects")
    kinds = on_demand("duckrun.sql.kinds")
    placing = on_demand("duckrun.sql.placing")
    scalar = on_demand("duckrun.sql.scalar")
    scopes = on_demand("duckrun.sql.scopes")
    sql_conditions = on_demand("duckrun.sql.conditions")
    sql_names = on_demand("duckrun.sql.names")
    written = on_demand("duckrun.sql.written")
