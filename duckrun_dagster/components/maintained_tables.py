"""Tables kept in order, in YAML."""

from __future__ import annotations

import dagster as dg
from pydantic import BaseModel, Field

from duckrun.errors import InvalidConfig
from duckrun_dagster.upkeep.maintenance import MaintainedTable, maintenance


class TablesScaffoldParams(BaseModel):
    """What `dg scaffold defs` takes."""

    table: str = Field(default="main/my_table", description="The asset key of a table to keep in order.")
    cron_schedule: str = Field(default="0 3 * * *", description="When.")


class TablesScaffolder(dg.Scaffolder[TablesScaffoldParams]):
    """Writes a defs.yaml with one table and a schedule."""

    @classmethod
    def get_scaffold_params(cls) -> type[TablesScaffoldParams]:
        return TablesScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[TablesScaffoldParams]) -> None:
        params = request.params or TablesScaffoldParams()
        dg.scaffold_component(request, {"tables": [{"key": params.table}], "cron_schedule": params.cron_schedule})


@dg.scaffold_with(TablesScaffolder)
class MaintainedTablesComponent(dg.Component, dg.Model, dg.Resolvable):
    """Assets that keep tables in order, a job over them, and its schedule.

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
        """Raises InvalidConfig without a table, and for one that is named twice."""
        if not self.tables:
            raise InvalidConfig(
                f"{context.path}: MaintainedTablesComponent names no table; write tables: [{{key: …}}]."
            )
        return maintenance(
            self.tables,
            cron_schedule=self.cron_schedule,
            execution_timezone=self.execution_timezone,
            name=self.name,
            group_name=self.group_name,
            resource_key=self.resource_key,
        )
