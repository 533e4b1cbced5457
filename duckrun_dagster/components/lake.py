"""A lake in YAML: the resource, the IO manager of every asset, and Spark where it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field

from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.resources import DuckrunResource, SparkResource


class LakeScaffoldParams(BaseModel):
    """What `dg scaffold defs` takes."""

    root_path: str | None = Field(default=None, description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    project_dir: str | None = Field(default=None, description="A dbt project whose profile is of type duckrun.")
    lake_schema: str = Field(default="main", description="The schema of assets whose key is one part.")


class LakeScaffolder(dg.Scaffolder[LakeScaffoldParams]):
    """Writes a defs.yaml with a lake beside the project, unless its parameters name another one."""

    @classmethod
    def get_scaffold_params(cls) -> type[LakeScaffoldParams]:
        return LakeScaffoldParams

    def scaffold(self, request: dg.ScaffoldRequest[LakeScaffoldParams]) -> None:
        params = request.params or LakeScaffoldParams()
        lake: dict[str, Any] = {"schema": params.lake_schema}
        if params.project_dir is not None:
            lake["project_dir"] = params.project_dir
        else:
            lake["root_path"] = params.root_path or "{{ project_root }}/lake"
        dg.scaffold_component(request, lake)


@dg.scaffold_with(LakeScaffolder)
class DuckrunLakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """A lake: resources ``duckrun``, ``io_manager`` and, with ``spark``, ``spark``.

    Example::

        type: duckrun_dagster.DuckrunLakeComponent
        attributes:
          root_path: "{{ project_root }}/lake"
          spark: {master: "local[2]"}
    """

    root_path: str | None = None
    project_dir: str | None = None
    profiles_dir: str | None = None
    profile: str | None = None
    target: str | None = None
    lake_schema: str | None = Field(default=None, alias="schema")
    storage_options: dict[str, str] = Field(default_factory=dict)
    memory_fraction: float | None = None
    memory_limit: str | None = None
    engine: str = "duckdb"
    default_type: str = "pyarrow"
    spark: dict[str, Any] | None = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The resources. A relative ``project_dir`` is relative to the file that names it."""
        lake = DuckrunResource(
            root_path=self.root_path,
            project_dir=_beside(self.project_dir, context),
            profiles_dir=_beside(self.profiles_dir, context),
            profile=self.profile,
            target=self.target,
            schema=self.lake_schema,
            storage_options=self.storage_options,
            memory_fraction=self.memory_fraction,
            memory_limit=self.memory_limit,
        )
        spark = None if self.spark is None else SparkResource(**self.spark)
        manager = DeltaIOManager(
            duckrun=lake, spark=spark, engine=self.engine, schema=self.lake_schema, default_type=self.default_type
        )
        resources: dict[str, Any] = {"duckrun": lake, "io_manager": manager}
        return dg.Definitions(resources=resources if spark is None else {**resources, "spark": spark})


def _beside(path: str | None, context: dg.ComponentLoadContext) -> str | None:
    if path is None or Path(path).is_absolute():
        return path
    return str(Path(context.path) / path)
