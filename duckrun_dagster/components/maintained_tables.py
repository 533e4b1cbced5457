"""Scheduled maintenance of tables, in YAML."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pydantic import Field

from duckrun.errors import InvalidConfig
from duckrun_dagster.components.scaffold import ScaffoldParams, scaffolder
from duckrun_dagster.resources.arguments import KnownArguments
from duckrun_dagster.upkeep.maintenance import MaintainedTable, maintenance


class TablesScaffoldParams(ScaffoldParams):
    """Parameters of scaffolded maintenance: one table and a schedule."""

    table: str = Field(default="main/my_table", description="The asset key of a table to keep in order.")
    cron_schedule: str = Field(default="0 3 * * *", description="When.")

    def attributes(self) -> dict[str, Any]:
        return {"tables": [{"key": self.table}], "cron_schedule": self.cron_schedule}


@dg.scaffold_with(scaffolder(TablesScaffoldParams))
class MaintainedTablesComponent(KnownArguments, dg.Component, dg.Model, dg.Resolvable):
    """Assets that maintain tables, a job over them, and its schedule.

    Example::

        type: duckrun_dagster.MaintainedTablesComponent
        attributes:
          tables: [{key: sales/orders, z_order_by: [customer]}]
          cron_schedule: "0 3 * * *"
    """

    tables: list[MaintainedTable]
    cron_schedule: str | None = None
    execution_timezone: str | None = None
    name: str = "maintenance"
    group_name: str = "maintenance"
    resource_key: str = "duckrun"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the assets, the job and its schedule.

        Raises:
            InvalidConfig: No table is named, or a table is named twice.
        """
        if not self.tables:
            raise InvalidConfig(
                f"{context.path}: MaintainedTablesComponent names no table; write tables: [{{key: …}}]."
            )
        return maintenance(self.tables, **self.model_dump(exclude={"tables"}))
