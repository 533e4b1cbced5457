"""Modules that work on an open lake, imported at the first use of one of their names.

dbt imports the adapter to parse a project, too. That opens no lake, and needs none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dbt.adapters.duckrun import docs, environment, information, statements, together
    from dbt.adapters.duckrun.materialize import (
        build as builds,
        changed,
        external,
        response,
        snapshots,
        stage as stages,
        strategy as strategies,
    )
    from dbt.adapters.duckrun.model import config as configs, constraints, lake_format

    from duckrun.values import rows
else:
    from duckrun.libraries import on_demand

    docs = on_demand("dbt.adapters.duckrun.docs")
    environment = on_demand("dbt.adapters.duckrun.environment")
    information = on_demand("dbt.adapters.duckrun.information")
    statements = on_demand("dbt.adapters.duckrun.statements")
    together = on_demand("dbt.adapters.duckrun.together")
    builds = on_demand("dbt.adapters.duckrun.materialize.build")
    changed = on_demand("dbt.adapters.duckrun.materialize.changed")
    external = on_demand("dbt.adapters.duckrun.materialize.external")
    response = on_demand("dbt.adapters.duckrun.materialize.response")
    snapshots = on_demand("dbt.adapters.duckrun.materialize.snapshots")
    stages = on_demand("dbt.adapters.duckrun.materialize.stage")
    strategies = on_demand("dbt.adapters.duckrun.materialize.strategy")
    configs = on_demand("dbt.adapters.duckrun.model.config")
    constraints = on_demand("dbt.adapters.duckrun.model.constraints")
    lake_format = on_demand("dbt.adapters.duckrun.model.lake_format")
    rows = on_demand("duckrun.values.rows")
