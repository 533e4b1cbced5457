"""SparkResource: the Spark session of engine ``spark``, started at its first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dagster import DagsterInstance, DagsterRun, InitResourceContext
from pydantic import Field, PrivateAttr

from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.storage.storage import Storage
from duckrun_dagster.resources.arguments import refuse_unknown, refuse_word
from duckrun_dagster.resources.duckrun_resource import DuckrunResource
from duckrun_dagster.resources.hidden import HidesSecrets, hide, written
from duckrun_dagster.resources.launch import configured_by_field
from duckrun_dagster.resources.names import Naming, release_tables
from duckrun_dagster.resources.run_worker import Worker, worker_of_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from duckrun.spark import RunServer, Watch

CONNECT_SERVER = ("auto", "always", "never")

# One watch per run in this process, with the id of the resource that started it: Dagster copies a
# resource for each place that uses it.
_watches: dict[str, tuple[int, Watch]] = {}


class SparkResource(HidesSecrets):
    """One Spark session per process, shared by every asset.

    No JVM starts before the first asset that needs it. Without ``master`` and ``remote``, a session
    that the process has already is used, else ``local[*]``. A run whose steps are separate
    processes (Dagster's multiprocess executor) shares one Spark by default, see ``connect_server``.
    The first step that needs Spark starts a Spark Connect server on ``master``, which ends with the
    run. Dagster's pages do not show secrets in ``conf``; ``EnvVar`` keeps them out of the code too.

    Example::

        SparkResource(master="local[2]", conf={"spark.sql.shuffle.partitions": "8"})
        SparkResource(remote="sc://spark.example.com:15002")
    """

    master: str | None = Field(
        default=None, description="A master for a session of this process: local[*], spark://…, yarn, k8s://…."
    )
    remote: str | None = Field(default=None, description="A Spark Connect address, sc://host:port. Excludes master.")
    conf: dict[str, str] = Field(default_factory=dict, description="Spark properties.")
    packages: list[str] = Field(default_factory=list, description="Maven coordinates to add to Delta's own.")
    connect_server: str = Field(
        default="auto",
        description="auto: a run with several Spark processes shares one Spark Connect server on master; "
        "always; never.",
    )
    duckrun: DuckrunResource | None = Field(
        default=None, description="The lake whose tables have their names in a session, where a step does not say it."
    )
    progress: bool = Field(default=True, description="Say in the run's log how far Spark's longer jobs are.")

    _run: DagsterRun | None = PrivateAttr(default=None)
    _instance: DagsterInstance | None = PrivateAttr(default=None)
    _log: Any = PrivateAttr(default=None)
    _dbt_may_need_spark: bool = PrivateAttr(default=False)

    def __init__(self, **values: Any) -> None:
        refuse_unknown(type(self), values)
        if isinstance(values.get("connect_server"), bool):  # as YAML and Python have it
            values["connect_server"] = "always" if values["connect_server"] else "never"
        safe, secrets = hide(values.get("conf") or {})
        if secrets:
            values["conf"] = safe
        address, secret = hide({"remote": values.get("remote")})  # sc://host:15002/;token=…
        if secret:
            values, secrets = {**values, **address}, {**secrets, **secret}
        super().__init__(**values)
        self._secrets = secrets
        self._check()
        configured_by_field(self)

    # -- what users call

    def session(
        self, storage: Storage | None = None, *, lake: Lake | None = None, names: Sequence[str] = ()
    ) -> SparkSession:
        """Return the process's Spark session; the first call starts it.

        The schemas and tables of ``lake`` get their names in the session
        (``duckrun.spark.name_tables``), for code that uses PySpark directly. The tables of the
        running step's assets and of their upstream assets come first, then ``names``, then others
        up to a limit. The default lake is that of the field ``duckrun``, else the one Delta lake of
        the running step, in its DuckrunResource or its IO manager. If Spark cannot take the names
        of a step's default lake, that is logged.

        Args:
            storage: The store whose credentials the session gets. Alone, it registers no names.
            lake: The lake whose names the session gets. Also brings the credentials of its store.
            names: Further tables (``schema.table``), registered whatever the limit is.

        Raises:
            InvalidConfig: PySpark or Java is missing, both addresses are set, or an address does
                not answer. Also if the session cannot have the names of ``lake``, or ``names`` have
                no lake.
            UnsupportedFeature: ``lake`` is a DuckLake.

        Example::

            @dg.asset(deps=["orders"], io_manager_key="io_manager")
            def days(spark: SparkResource) -> None:
                s = spark.session()
                counts = s.table("orders").groupBy("day").count()
                counts.write.format("delta").mode("overwrite").saveAsTable("days")
        """
        self._check()
        from duckrun.spark import spark_session

        naming = Naming.of(storage, lake, names, self.duckrun)
        storage = naming.lake.storage if storage is None and naming is not None else storage
        server = self._server(storage) if self._shares_spark() else None
        if server is not None:
            session = spark_session(server=server, storage=storage)
        else:
            session = spark_session(
                master=self.master,
                remote=self._address(),
                conf=self._conf(),
                packages=tuple(self.packages),
                storage=storage,
            )
        self._report_progress(session)
        if naming is not None:
            naming.register(session)
        return session

    @property
    def spark_session(self) -> SparkSession:
        """Return ``session()``, by its name in dagster-pyspark's ``PySparkResource``."""
        return self.session()

    def environment(self, storage: Storage | None = None) -> dict[str, str]:
        """Return variables that lead a child process, such as dbt, to the Spark of this run.

        Nothing is started here: ``spark_session()`` in that process starts the run's server if no
        step has.

        Returns:
            The variables; with ``remote``, its address. Empty outside of a run and with
            ``connect_server="never"``, where the child process has its own Spark.
        """
        self._check()
        if self.remote is not None:
            return {"SPARK_REMOTE": self._address() or ""}
        server = None if self.connect_server == "never" else self._server(storage)
        return {} if server is None else server.environment()

    # -- Dagster's part

    def setup_for_execution(self, context: InitResourceContext) -> None:
        self._run, self._log = context.run, context.log
        self._instance = context.instance
        self._dbt_may_need_spark = any(_gives_dbt_spark(each) for each in context.all_resource_defs.values())

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        # Only the resource that started the watch stops it: its copy in an IO manager shares the
        # session.
        run = context.run.run_id if context.run is not None else ""
        if run in _watches and _watches[run][0] == id(self):
            _watches.pop(run)[1].stop()
        release_tables(run)

    # -- how it is put together

    def _check(self) -> None:
        refuse_word("SparkResource: connect_server", self.connect_server, CONNECT_SERVER)
        if self.master and self.remote:
            raise InvalidConfig("SparkResource: master and remote exclude each other; set one of them.")
        if self.connect_server == "always" and self.remote:
            raise InvalidConfig("SparkResource: connect_server starts a server on master; remote names one that runs.")

    def _shares_spark(self) -> bool:
        """Return True if this process uses the session of the run's server."""
        if self.remote is not None or self.connect_server == "never":
            return False
        if self.connect_server == "always":
            return True
        worker = self._worker()
        return worker is not None and worker.steps > 1 and (worker.several_processes or self._dbt_may_need_spark)

    def _worker(self) -> Worker | None:
        return None if self._run is None else worker_of_run(self._instance, self._run.run_id)

    def _server(self, storage: Storage | None) -> RunServer | None:
        """Return the server of this run; None if the run's worker is unknown."""
        worker = self._worker()
        # Without a worker, nothing would end the server.
        if self._run is None or worker is None:
            return None
        from duckrun.spark import RunServer, store_packages

        return RunServer.of_process(
            self._run.run_id,
            worker.process,
            master=self.master or "local[*]",
            conf=self._conf(),
            packages=(*self.packages, *store_packages(storage)),
        )

    def _address(self) -> str | None:
        return None if self.remote is None else written({"remote": self.remote}, self._secrets)["remote"]

    def _conf(self) -> dict[str, str]:
        from duckrun.spark import page_settings

        return {**(page_settings() if self.progress and not self.remote else {}), **written(self.conf, self._secrets)}

    def _report_progress(self, session: SparkSession) -> None:
        if self.progress and self._run is not None and self._log is not None and self._run.run_id not in _watches:
            from duckrun.spark import watch

            _watches[self._run.run_id] = (id(self), watch(session, self._log.info, nearby=self.remote is None))


def _gives_dbt_spark(definition: Any) -> bool:
    """Return True for a dbt resource that has a SparkResource in it."""
    from dagster_dbt import DbtCliResource

    nested = getattr(definition, "nested_resources", {})
    made_by = getattr(definition, "configurable_resource_cls", object)
    return issubclass(made_by, DbtCliResource) and any(
        isinstance(each, SparkResource) or issubclass(getattr(each, "configurable_resource_cls", object), SparkResource)
        for each in nested.values()
    )
