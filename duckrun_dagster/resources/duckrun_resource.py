"""DuckrunResource: the lake that a code location works on."""

from __future__ import annotations

from typing import Any

from dagster import EnvVar, InitResourceContext, OpExecutionContext
from pydantic import Field, PrivateAttr

from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.run.memory import parse_bytes
from duckrun.run.pins import Pins
from duckrun.session import Session, connect
from duckrun.storage.storage import refuse_credentials
from duckrun.values.rows import EngineName
from duckrun_dagster.launch import configured_by_field
from duckrun_dagster.resources.hidden import HidesSecrets, hide, written
from duckrun_dagster.resources.profile import LakeSettings, lake_of_profile
from duckrun_dagster.resources.run_worker import share_of_step
from duckrun_dagster.resources.spark_resource import SparkResource
from duckrun_dagster.resources.steps import close_run, sessions_of


class DuckrunResource(HidesSecrets):
    """A lake, from its own arguments or from the dbt profile that names it; nothing is opened before it is used.

    Secrets in ``storage_options`` are not shown in Dagster's pages; ``EnvVar`` keeps them out of the code too.

    Example::

        DuckrunResource(root_path="lake/")
        DuckrunResource(root_path="s3://bucket/lake", storage_options={"AWS_SECRET_ACCESS_KEY": EnvVar("SECRET")})
        DuckrunResource(project_dir="dbt/", target="prod")
    """

    root_path: str | None = Field(default=None, description="A folder, or an s3://, az://, abfss:// or gs:// URL.")
    project_dir: str | None = Field(default=None, description="A dbt project whose profile is of type duckrun.")
    profiles_dir: str | None = Field(default=None, description="Where profiles.yml is; as dbt finds it, if not given.")
    profile: str | None = Field(default=None, description="Its profile; the project's own, if not given.")
    target: str | None = Field(default=None, description="Its target; the profile's own, if not given.")
    schema_: str | None = Field(
        default=None, alias="schema", description="The default schema; main, if nothing names one."
    )
    storage_options: dict[str, str] = Field(default_factory=dict, description="Credentials, in delta_rs's names.")
    memory_fraction: float | None = Field(
        default=None,
        description="A step process's part of the machine and of memory_limit, 0 to 1; if not given, one by the processes "
        "that the run may have at once.",
    )
    memory_limit: str | None = Field(
        default=None, description="At most this much memory, such as 4GB, for all step processes of a run together."
    )

    _lake: Lake | None = PrivateAttr(default=None)

    def __init__(self, **values: Any) -> None:
        if isinstance(values.get("root_path"), str):
            refuse_credentials(values["root_path"])  # while the code is loaded, before a page shows them
        safe, secrets = hide(values.get("storage_options") or {})
        if secrets:
            values["storage_options"] = safe
        super().__init__(**values)
        self._secrets = secrets
        configured_by_field(self)

    # -- what users call

    def lake(self) -> Lake:
        """The lake: names, listing, snapshots. Raises InvalidConfig if it is configured nowhere or wrongly."""
        if self._lake is None:
            self._lake = self._settings().lake()
        return self._lake

    def address(self) -> tuple[str | None, str]:
        """The root and the default schema, while definitions load: a root that an EnvVar decides is not known yet, and None;
        a schema that is one is its name, after a dollar sign.

        Opens nothing, but reads the dbt profile that ``project_dir`` names: raises InvalidConfig if it cannot.
        """
        own = f"${self.schema_.env_var_name}" if isinstance(self.schema_, EnvVar) else self.schema_
        source = self.root_path or self.project_dir
        decides = (source,) if self.root_path else (source, self.profile, self.target, self.profiles_dir)
        if source is None or any(isinstance(each, EnvVar) for each in decides):
            return None, own or "main"
        if self.root_path:
            return self.root_path, own or "main"
        found = self._settings()
        return found.root_path, own or found.schema or "main"

    def session(
        self, engine: EngineName = "duckdb", *, spark: SparkResource | Any | None = None, pins: Pins | None = None
    ) -> Session:
        """A session on the lake.

        Inside an asset it is the step's own: it reads the versions that the step's inputs read, and is closed by the
        step; elsewhere (a notebook, a script) it is a new one that the caller closes. ``spark`` is a SparkResource or
        a Spark session, for engine ``spark``.
        """
        return self.step_session(_current_step() if pins is None else None, engine, spark, pins)

    def step_session(
        self,
        step_context: Any | None,
        engine: EngineName,
        spark: SparkResource | Any | None = None,
        pins: Pins | None = None,
    ) -> Session:
        """The session of a step on an engine; a new one where there is no step."""
        lake = self.lake()
        step = None if step_context is None else sessions_of(step_context, lake)
        if step is not None and engine in step.sessions:
            return step.sessions[engine]
        settings = self._settings()
        fraction = self.memory_fraction
        if fraction is None and step_context is not None:
            fraction = share_of_step(step_context)
        limit = self.memory_limit or settings.memory_limit
        if engine == "spark" and (spark is None or isinstance(spark, SparkResource)):
            spark = (spark or SparkResource()).session(lake.storage)
        session = connect(
            settings.root_path,
            schema=lake.default_schema,
            engine=engine,
            storage_options=settings.storage_options,
            spark=None if isinstance(spark, SparkResource) else spark,
            memory_limit=None if limit is None else int(parse_bytes(limit) * (fraction or 1)),
            memory_fraction=fraction,
            pins=pins if step is None else step.pins,
        )
        if step is not None:
            step.sessions[engine] = session
        return session

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        close_run(context.run.run_id if context.run else None)

    # -- how it is put together

    def _settings(self) -> LakeSettings:
        """The lake's address, from the arguments, else from the profile. Raises InvalidConfig naming this resource."""
        if self.root_path and self.project_dir:
            raise InvalidConfig(
                "DuckrunResource: root_path and project_dir both name a lake. Leave root_path out to take the profile's."
            )
        options = written(self.storage_options, self._secrets)
        if self.root_path:
            return LakeSettings(self.root_path, self.schema_, options, self.memory_limit)
        if not self.project_dir:
            raise InvalidConfig(
                "DuckrunResource: root_path is not set. Set root_path to a folder or a URL (s3://bucket/lake), "
                "or project_dir to a dbt project with a profile of type duckrun."
            )
        try:
            found = lake_of_profile(self.project_dir, self.profile, self.target, self.profiles_dir)
        except DuckrunError as error:
            raise type(error)(f"DuckrunResource: {error}") from error
        return LakeSettings(
            root_path=found.root_path,
            schema=self.schema_ or found.schema,
            storage_options={**found.storage_options, **options},
            memory_limit=self.memory_limit or found.memory_limit,
        )


def _current_step() -> Any | None:
    """The step context of the asset or op that is running here; None outside of one."""
    from dagster._core.errors import DagsterInvariantViolationError

    try:
        return OpExecutionContext.get().get_step_execution_context()
    except DagsterInvariantViolationError:
        return None
