"""A lake in YAML: the resource, the IO manager of every asset, and Spark if it is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from duckrun_dagster.components.scaffold import ScaffoldParams, scaffolder
from duckrun_dagster.io_managers import DeltaIOManager
from duckrun_dagster.io_managers.table_defaults import TableDefaults
from duckrun_dagster.resources import DuckrunResource, SparkResource
from duckrun_dagster.resources.arguments import KnownArguments
from duckrun_dagster.resources.lake_config import LakeFields


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
