"""DuckrunResource: the lake that a code location works on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from dagster import EnvVar, InitResourceContext
from pydantic import Field, PrivateAttr

import duckrun
from duckrun.display.units import parse_bytes
from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.run.memory import Arbiter
from duckrun.run.pins import Pins
from duckrun.storage.roots import normalise_root
from duckrun.storage.storage import Storage
from duckrun.values.branches import branch_of, check_branch_name
from duckrun.values.choices import WRITERS, EngineName, WriterChoice
from duckrun.values.snapshot import TableRef
from duckrun_dagster.branches import branch_in, refuse_no_step
from duckrun_dagster.chain import attempt_of
from duckrun_dagster.config import TableConfig, table_of
from duckrun_dagster.contexts import current_step
from duckrun_dagster.resources.arguments import is_open, refuse_bad_memory, refuse_unknown, refuse_word
from duckrun_dagster.resources.hidden import HidesSecrets, written
from duckrun_dagster.resources.lake_config import FORM, LakeConfig, LakeFields, form_of, hidden, settings_of
from duckrun_dagster.resources.launch import configured_by_field
from duckrun_dagster.resources.profile import LakeSettings, lake_of_profile
from duckrun_dagster.resources.run_worker import refuse_several_processes, share_of_step
from duckrun_dagster.resources.steps import close_sessions, sessions_of

if TYPE_CHECKING:
    from duckrun.session import Session


@runtime_checkable
class _StartsSpark(Protocol):
    """A SparkResource, which has a DuckrunResource as a field."""

    def session(self, storage: Storage | None = None) -> Any: ...

    def environment(self, storage: Storage | None = None) -> dict[str, str]: ...


class StoredTable(NamedTuple):
    """The table of an asset, and its lake."""

    config: TableConfig
    lake: Lake
    ref: TableRef


@dataclass(frozen=True)
class KnownLakes:
    """Facts about the lakes of a resource that are known before a run."""

    root: str | None
    """Address of the lake, or a placeholder for it; None if it is unknown."""
    schema: str
    """The default schema, or ``$`` and the name of its EnvVar."""
    lakes: Mapping[str | None, LakeSettings | None] = field(default_factory=dict)
    """Settings of the lakes by name, None if an EnvVar decides them.

    The key None is the resource's own lake. Empty if the profile that names them is unknown.
    """


class DuckrunResource(LakeFields, HidesSecrets):
    """A lake, from its own arguments or from the dbt profile that names it.

    Nothing is opened before it is used. Dagster's pages do not show secrets in ``storage_options``
    and the password of a ``catalog``; ``EnvVar`` keeps them out of the code too. ``format``,
    ``catalog``, ``inline_rows`` and ``encrypted`` are those of ``duckrun.connect()``. ``lakes`` are
    further lakes, which assets name by the metadata ``lake``. ``branch`` is a branch of the lake,
    not of these.

    Example::

        DuckrunResource(root_path="lake/")
        DuckrunResource(root_path="lake/", format="ducklake", catalog=EnvVar("CATALOG"))
        DuckrunResource(
            root_path="s3://bucket/lake",
            storage_options={"AWS_SECRET_ACCESS_KEY": EnvVar("SECRET")},
        )
        DuckrunResource(project_dir="dbt/", target="prod")
        DuckrunResource(root_path="lake/", branch=EnvVar("PULL_REQUEST"))
    """

    schema_: str | None = Field(
        default=None, alias="schema", description="The default schema; main, if nothing names one."
    )
    writer: str | None = Field(
        default=None,
        description="delta_rs: it makes DuckDB's data files where it can, for writes that name no writer. "
        "auto, if nothing names one.",
    )
    lakes: dict[str, LakeConfig] = Field(default_factory=dict, description="Other lakes, by the names that assets use.")

    _lakes: dict[str | None, Lakes] = PrivateAttr(default_factory=dict)
    """Lakes by the branch of a chain; None for those as they are configured."""
    _run: tuple[InitResourceContext, int] | None = PrivateAttr(default=None)
    """Context and thread of the run that uses this resource."""

    def __init__(self, **values: Any) -> None:
        refuse_unknown(type(self), values)
        if values.get("branch") and not is_open(values["branch"]):
            check_branch_name(values["branch"])
        if values.get("writer") is not None:
            refuse_word("DuckrunResource: writer", values["writer"], WRITERS)
        refuse_bad_memory("DuckrunResource", values.get("memory_limit"), values.get("memory_fraction"))
        values, secrets = hidden(values)
        super().__init__(**values)
        self._secrets = secrets
        configured_by_field(self)

    # -- what users call

    def lake(self, name: str | None = None) -> Lake:
        """Return the lake, or one of ``lakes`` by its name.

        Raises:
            InvalidConfig: The lake is not configured, or its configuration holds an error.
            TableNotFound: No lake has the name.
        """
        lakes = self.opened()
        if any(lake.has_catalog for lake in lakes):
            lakes = self._of_step(current_step(), lakes)
        return lakes.own if name is None else lakes.named(name, "metadata 'lake'")

    def stored(self, config: TableConfig) -> StoredTable:
        """Return the table that an asset's metadata names, and its lake.

        Raises:
            InvalidConfig: The lake is not configured, or its configuration holds an error.
            TableNotFound: No lake has the name in the metadata.
        """
        lake = self.lake(config.lake)
        return StoredTable(config, lake, table_of(lake, config))

    @property
    def default_schema(self) -> str:
        """Return the schema of names that have none."""
        return self.opened().own.default_schema

    def opened(self) -> Lakes:
        """Return the lake with the others; within a step, in the branch of its chain, if any."""
        return self._opened(current_step())

    def _opened(self, step: Any | None) -> Lakes:
        if None not in self._lakes:
            self._lakes[None] = self._settings().opened()
        if step is None and self._run is not None and self._run[1] != threading.get_ident():
            refuse_no_step(self._run[0], self._lakes[None].own)
        branch = branch_in(step, self._lakes[None].own)
        if branch not in self._lakes:
            self._lakes[branch] = replace(self._settings(), branch=branch).opened()
        lakes = self._lakes[branch]
        lakes.own.by = None if step is None or lakes.own.branch_name is None else (step.step.key, attempt_of(step))
        return lakes

    @property
    def branch_name(self) -> str | None:
        """Return the value of ``branch``, also before a run has read its EnvVar."""
        return self.branch.get_value() if isinstance(self.branch, EnvVar) else self.branch

    def known(self) -> KnownLakes:
        """Return the facts about the lakes that are known while definitions load.

        Opens nothing, but reads the dbt profile that ``project_dir`` names.

        Raises:
            InvalidConfig: The profile cannot be read, or an address is invalid.
        """
        schema = f"${self.schema_.env_var_name}" if isinstance(self.schema_, EnvVar) else self.schema_
        source = self.root_path or self.project_dir
        root = f"lake of {source.env_var_name}" if isinstance(source, EnvVar) else None
        lakes: dict[str | None, LakeSettings | None] = {}
        decides = (source, self.profile, self.target, self.profiles_dir)
        if self.root_path:
            root = root or normalise_root(self.root_path)
            lakes[None] = None if _is_open(self) else self._own_settings()
        elif source is not None and not any(isinstance(each, EnvVar) for each in decides):
            settings = self._settings(lakes=False)
            root, schema = normalise_root(settings.root_path), schema or settings.schema
            lakes.update({None: settings}, **settings.lakes)
        else:
            return KnownLakes(root, schema or "main")
        for name, each in self.lakes.items():
            lakes[name] = None if _is_open(each) else settings_of(name, each, self._secrets)
        return KnownLakes(root, schema or "main", lakes)

    def session(self, engine: EngineName = "duckdb", *, spark: Any = None, pins: Pins | None = None) -> Session:
        """Return a session on the lake.

        Inside an asset it is the step's session: it reads the versions that the step's inputs read,
        and the step closes it. Elsewhere (a notebook, a script) it is a new one that the caller
        closes.

        Args:
            engine: The engine.
            spark: A SparkResource or a Spark session, for engine ``spark``. By default the session
                of this process, which is started if there is none.
            pins: The versions to read. With pins, the session is always a new one.
        """
        return self.step_session(current_step() if pins is None else None, engine, spark, pins)

    def step_session(
        self, step_context: Any | None, engine: EngineName, spark: Any = None, pins: Pins | None = None
    ) -> Session:
        """Return the session of a step on an engine; a new one outside of a step."""
        settings = self._settings()
        step = None
        if step_context is not None:
            opened = self._opened(step_context)
            self._of_step(step_context, opened)
            step = sessions_of(step_context, opened)
            if engine in step.sessions:
                return step.sessions[engine]
            lakes = step.lakes
        else:
            shared = self.opened().own  # with pins, also a step has a session of its own
            lakes = replace(settings, branch=shared.branch_name).opened()
            lakes.own.by = shared.by
        fraction = self.memory_fraction
        if fraction is None and step_context is not None:
            fraction = share_of_step(step_context)
        limit = self.memory_limit or settings.memory_limit
        if isinstance(spark, _StartsSpark):
            spark = spark.session(lakes.own.storage) if engine == "spark" else None
        default_lake, *others = lakes
        session = duckrun.Session(
            default_lake,
            engine=engine,
            spark=spark,
            arbiter=Arbiter(None if limit is None else int(parse_bytes(limit) * (fraction or 1)), fraction),
            pins=pins if step is None else step.pins,
            lakes=Lakes(default_lake, others),
            writer=settings.writer,
        )
        if step is not None:
            step.sessions[engine] = session
        return session

    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._run = (context, threading.get_ident())

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        self._run = None
        close_sessions(context.run.run_id if context.run else None)

    # -- how it is put together

    def _of_step(self, step_context: Any | None, lakes: Lakes) -> Lakes:
        """Return the lakes that a step shares: ``lakes`` at its first call.

        Outside of a step, return ``lakes``.
        """
        if step_context is None:
            return lakes
        refuse_several_processes(step_context, lakes)
        return sessions_of(step_context, lakes).lakes

    def _settings(self, *, lakes: bool = True) -> LakeSettings:
        """Return the lake's settings, from the arguments or the profile. Raises InvalidConfig."""
        if self.root_path and self.project_dir:
            raise InvalidConfig(
                "DuckrunResource: root_path and project_dir both name a lake. "
                "Leave root_path out to take the profile's."
            )
        if not self.root_path and not self.project_dir:
            raise InvalidConfig(
                "DuckrunResource: root_path is not set. Set root_path to a folder or a URL (s3://bucket/lake), "
                "or project_dir to a dbt project with a profile of type duckrun."
            )
        try:
            others = (
                {name: settings_of(name, each, self._secrets) for name, each in self.lakes.items()} if lakes else {}
            )
            if not self.project_dir:
                return replace(self._own_settings(), lakes=others)
            settings = lake_of_profile(self.project_dir, self.profile, self.target, self.profiles_dir)
            branch = self._own_branch(settings.branch)
            form = settings.form if all(getattr(self, word) is None for word in FORM) else form_of(self, self._secrets)
        except DuckrunError as error:
            error.name("DuckrunResource")
            raise
        return replace(
            settings,
            schema=self.schema_ or settings.schema,
            storage_options={**settings.storage_options, **written(self.storage_options, self._secrets)},
            memory_limit=self.memory_limit or settings.memory_limit,
            writer=cast(WriterChoice, self.writer or settings.writer),
            form=form,
            branch=branch,
            lakes={**settings.lakes, **others},
        )

    def _own_settings(self) -> LakeSettings:
        """Return the settings of the lake that ``root_path`` names. Raises InvalidConfig."""
        return LakeSettings(
            str(self.root_path),
            self.schema_,
            written(self.storage_options, self._secrets),
            self.memory_limit,
            form_of(self, self._secrets),
            writer=cast(WriterChoice, self.writer or "auto"),
            branch=self._own_branch(),
        )

    def _own_branch(self, of_profile: str | None = None) -> str | None:
        """Return the branch; None for the lake itself. Raises InvalidConfig if two are named."""
        branch = branch_of(self.branch_name, "branch")
        if branch and of_profile and branch != of_profile:
            raise InvalidConfig(
                f"branch is {branch!r}, and the profile of {self.project_dir} has branch {of_profile!r}, which dbt "
                "writes: set it in one place."
            )
        return branch or of_profile


def _is_open(config: Any) -> bool:
    """Return True if an EnvVar decides the address or the format of a lake."""
    return is_open(*(getattr(config, word) for word in ("root_path", *FORM)))
