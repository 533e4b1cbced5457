"""A lake in YAML: its resources, and the scheduled maintenance of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from duckrun.errors import InvalidConfig
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.io_managers.table_defaults import TableDefaults
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.resources.arguments import KnownArguments
from duckrun_dagster.resources.lake_config import LakeFields
from duckrun_dagster.upkeep.maintenance import MaintainedTable, maintenance


class ScaffoldParams(BaseModel):
    """Parameters of `dg scaffold defs`, each with a default."""

    def attributes(self) -> dict[str, Any]:
        """Return the component's attributes in the new defs.yaml."""
        return self.model_dump()


def scaffolder(params: type[ScaffoldParams]) -> type[dg.Scaffolder[ScaffoldParams]]:
    """Return a scaffolder class that writes a defs.yaml with the attributes of these parameters."""

    class Written(dg.Scaffolder[ScaffoldParams]):
        """Scaffolder of a component with these parameters."""

        @classmethod
        def get_scaffold_params(cls) -> type[ScaffoldParams]:
            return params

        def scaffold(self, request: dg.ScaffoldRequest[ScaffoldParams]) -> None:
            dg.scaffold_component(request, (request.params or params()).attributes())

    return Written


class LakeScaffoldParams(ScaffoldParams):
    """Parameters of a scaffolded lake; by default it lies beside the project."""

    root_path: str | None = Field(default=None, description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    project_dir: str | None = Field(default=None, description="A dbt project whose profile is of type duckrun.")
    lake_schema: str = Field(default="main", description="The schema of assets whose key is one part.")

    def attributes(self) -> dict[str, Any]:
        """Return the attributes to write, with the address in the key that the user chose."""
        address = "root_path" if self.project_dir is None else "project_dir"
        return {"schema": self.lake_schema, address: self.project_dir or self.root_path or "{{ project_root }}/lake"}


@dg.scaffold_with(scaffolder(LakeScaffoldParams))
class DuckrunLakeComponent(KnownArguments, TableDefaults, LakeFields, dg.Component, dg.Model, dg.Resolvable):
    """A lake: resources ``duckrun``, ``io_manager`` and, with ``spark``, ``spark``.

    The defaults of assets that DeltaIOManager takes are attributes too (``mode``,
    ``table_properties``, …). Write the password of a ``catalog`` as ``{{ env.NAME }}``.

    Example::

        type: duckrun_dagster.DuckrunLakeComponent
        attributes:
          root_path: "{{ project_root }}/lake"
          spark: {master: "local[2]"}
    """

    lake_schema: str | None = Field(default=None, alias="schema")
    lakes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    engine: str = "duckdb"
    default_type: str = "pyarrow"
    spark: dict[str, Any] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the resources. A relative ``project_dir`` is relative to the file that names it."""
        lake = DuckrunResource(
            **{name: getattr(self, name) for name in LakeFields.model_fields}
            | {"project_dir": _beside(self.project_dir, context), "profiles_dir": _beside(self.profiles_dir, context)},
            schema=self.lake_schema,
            lakes=self.lakes,
        )
        spark = None if self.spark is None else SparkResource(duckrun=lake, **self.spark)
        manager = DeltaIOManager(
            duckrun=lake,
            spark=spark,
            engine=self.engine,
            schema=self.lake_schema,
            default_type=self.default_type,
            **self.table_defaults(),
        )
        resources: dict[str, Any] = {"duckrun": lake, "io_manager": manager}
        return dg.Definitions(resources=resources if spark is None else {**resources, "spark": spark})


def _beside(path: str | None, context: dg.ComponentLoadContext) -> str | None:
    if path is None or Path(path).is_absolute():
        return path
    return str(Path(context.path) / path)


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
