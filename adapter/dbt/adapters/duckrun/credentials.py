"""The keys of a profile, checked when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.duckdb.credentials import DuckDBCredentials
from dbt.adapters.duckrun.model.choices import DATABASE, NAIVE_TIMESTAMPS
from dbt_common.exceptions import DbtRuntimeError

from duckrun.display.units import parse_bytes
from duckrun.errors import DuckrunError
from duckrun.storage.roots import refuse_credentials
from duckrun.values.branches import branch_of
from duckrun.values.choices import ENGINES, PUBLISH, WRITERS
from duckrun.values.lake_format import DUCKLAKE, LakeFormat
from duckrun.values.nearest import did_you_mean

REDACTED = "***"
_FORMAT_KEYS = ("format", "catalog", "inline_rows", "encrypted")
_SPARK_KEYS = ("master", "remote", "conf", "packages")
_LAKE_KEYS = ("root_path", "storage_options", "read_only", *_FORMAT_KEYS)
_WORDS = {"engine": ENGINES, "writer": WRITERS, "naive_timestamps": NAIVE_TIMESTAMPS, "publish": PUBLISH}
# DuckDB's two names of its memory limit; dbt-duckdb has two places for them.
_DUCKDB_LIMITS = ("memory_limit", "max_memory")


@dataclass
class DuckrunCredentials(DuckDBCredentials):
    """A lake, and dbt-duckdb's own keys for everything around it.

    Example of a profile::

        type: duckrun
        root_path: lake/            # or s3://, az://, abfss://, gs://; relative to the dbt project
        schema: main
        threads: 4
        memory_limit: 2GB           # of the process; default: free memory of the machine or cgroup
        lakes:                      # further lakes, each a database: +database: archive
          archive: {root_path: s3://bucket/archive, read_only: true}
          ml: {root_path: ml, format: ducklake, catalog: "postgres:dbname=ml host=db"}
        format: ducklake            # of the project's own lake; default: delta
        catalog: sqlite:lake.sqlite # of a DuckLake; default: catalog.sqlite in its root
        inline_rows: 10             # most rows of an insert that lie in the catalog; default: none
        encrypted: true             # a new DuckLake's files are encrypted
        publish: together           # a run of one thread is one transaction; default: each
        branch: pr-42               # read and write a branch of the lake; default: DUCKRUN_BRANCH
        writer: auto                # or delta_rs, if it can write a node that names no writer
        naive_timestamps: ntz       # or utc: timestamps without zone become instants of UTC
        engine: duckdb              # or spark: of every node that names none (+engine: spark)
        spark:                      # default: the present session or server, else local[*]
          master: local[4]          # or remote: sc://host:15002
          conf: {spark.driver.memory: 4g}
    """

    root_path: str | None = None
    # repr=False keeps possible secrets out of logs and tracebacks.
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    engine: str = "duckdb"
    spark: dict[str, Any] | None = field(default=None, repr=False)
    lakes: dict[str, Any] | None = field(default=None, repr=False)
    memory_limit: str | int | None = None
    naive_timestamps: str = NAIVE_TIMESTAMPS[0]
    format: str | None = None
    catalog: str | None = field(default=None, repr=False)
    inline_rows: int | None = None
    encrypted: bool | None = None
    publish: str = PUBLISH[0]
    writer: str = WRITERS[0]
    branch: str | None = None

    @property
    def type(self) -> str:
        return "duckrun"

    @property
    def unique_field(self) -> str:
        return self.root_path or ""

    @classmethod
    def validate(cls, data: Any) -> None:
        """Check the profile as the user wrote it."""
        # Keys that may hold a secret are checked here, since dbt's own check prints the value.
        for key in ("storage_options", "lakes", "spark"):
            if data.get(key) is not None and not isinstance(data[key], Mapping):
                raise DbtRuntimeError(f"{key} is a {type(data[key]).__name__}; write a mapping of name to value.")
        lakes = [lake for lake in (data.get("lakes") or {}).values() if isinstance(lake, Mapping)]
        try:
            for lake in (data, *lakes):
                refuse_credentials(str(lake.get("root_path") or ""))
            LakeFormat.from_mapping(data)
        except DuckrunError as error:
            raise DbtRuntimeError(str(error)) from None
        super().validate(data)

    @classmethod
    def __pre_deserialize__(cls, data: dict[Any, Any]) -> dict[Any, Any]:
        refuse_unknown_keys(data)
        return super().__pre_deserialize__(data)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.root_path or "").strip():
            raise DbtRuntimeError(
                "root_path is not set. Set it in the profile to the folder or URL of the lake, such as "
                "root_path: lake or root_path: s3://bucket/lake."
            )
        if self.path != ":memory:":
            raise DbtRuntimeError(
                f"path: {self.path!r} does not go with type duckrun: its tables live under root_path, and DuckDB "
                "runs in memory. Remove path, or attach that database file with attach:."
            )
        for key, words in _WORDS.items():
            if getattr(self, key) not in words:
                raise DbtRuntimeError(
                    f"Unknown {key} {getattr(self, key)!r} in the profile; it takes one of {', '.join(words)}."
                )
        if self.writer != WRITERS[0] and self.format == DUCKLAKE:
            raise DbtRuntimeError(
                f"writer: {self.writer} makes data files of Delta tables, and the profile's format is ducklake."
            )
        if {"master", "remote"} <= set(self.spark or {}):
            raise DbtRuntimeError("spark: takes a master or a remote, not both.")
        self._check_lakes()
        self._check_publish()
        try:
            self.branch = branch_of(self.branch, "branch in the profile")
        except DuckrunError as error:
            raise DbtRuntimeError(str(error)) from None
        # The cursors of all threads must see a new view at once, and a Delta table has its own
        # transactions. A DuckDB transaction around a model would only hide commits of other models.
        self.disable_transactions = True
        self._take_duckdb_limits()

    def _check_lakes(self) -> None:
        for name, lake in (self.lakes or {}).items():
            if not isinstance(lake, dict) or not str(lake.get("root_path") or "").strip():
                raise DbtRuntimeError(f"lakes: {name} needs a root_path, the folder or URL of that lake.")
            if not isinstance(lake.get("read_only", False), bool):
                raise DbtRuntimeError(f"lakes: {name}: read_only is {lake['read_only']!r}; it is true or false.")
        for each in (None, *(self.lakes or {})):
            try:
                self.lake_format(each)
            except DuckrunError as error:
                raise DbtRuntimeError(str(error) if each is None else f"lakes: {each}: {error}") from None

    def _check_publish(self) -> None:
        if not self.publishes_together:
            return
        if self.lake_format().name != DUCKLAKE:
            raise DbtRuntimeError(
                f"publish: together makes a run one transaction, and lake {self.root_path} is of format delta, "
                "where each table has a log of its own: "
                "set format: ducklake, or publish: each."
            )
        if self.engine == "spark":
            raise DbtRuntimeError(
                "publish: together is DuckDB's, whose one connection has the transaction; set engine: duckdb."
            )
        # While the transaction is open, the lake is an attached database. Its name cannot be
        # memory, the name of the instance's own database.
        self.database = DATABASE

    @property
    def publishes_together(self) -> bool:
        """Return True if a run is one transaction of the project's lake."""
        return self.publish == "together"

    def lake_format(self, name: str | None = None) -> LakeFormat:
        """Return the format of the project's own lake, or of one under ``lakes``.

        A file that it names is relative to the working directory.
        """
        if name is not None:
            return LakeFormat.from_mapping((self.lakes or {})[name])
        return LakeFormat.of(self.format, self.catalog, self.inline_rows, self.encrypted)

    def _take_duckdb_limits(self) -> None:
        """Set one memory limit for the process: the smallest limit in the profile."""
        # dbt-duckdb repeats ``settings`` on every new cursor, which would undo the arbiter's
        # shares.
        limits = [] if self.memory_limit is None else [self.memory_limit]
        for name in ("settings", "config_options"):
            place = getattr(self, name)
            if place and any(limit in place for limit in _DUCKDB_LIMITS):
                limits += [place[limit] for limit in _DUCKDB_LIMITS if limit in place]
                setattr(self, name, {k: v for k, v in place.items() if k not in _DUCKDB_LIMITS})
        try:
            self.memory_limit = min((parse_bytes(limit) for limit in limits), default=None)
        except DuckrunError as error:
            raise DbtRuntimeError(f"memory_limit: {error}") from error

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        """Yield the lines of `dbt debug`, with the names of the storage options but no value.

        The address of the catalog has no password.
        """
        yield from super().connection_info(with_aliases=with_aliases)
        yield "storage_options", dict.fromkeys(self.storage_options or {}, REDACTED) or None
        yield "catalog", self.lake_format().catalog

    def _connection_keys(self) -> tuple[str, ...]:
        # dbt parses all of a project if one of these differs from the last invocation. Nothing that
        # it parses depends on the branch.
        names = DuckrunCredentials.__annotations__.keys() - {"branch"}
        keys = (f.name for f in fields(self) if f.repr and f.name in names)
        return (*keys, "schema", "database", "extensions", "external_root", "disable_transactions")


def refuse_unknown_keys(profile: Mapping[str, Any]) -> None:
    """Refuse a key that a profile of type duckrun does not have.

    Raises:
        DbtRuntimeError: An unknown key; the text suggests the nearest known one.
    """
    known = {f.name for f in fields(DuckrunCredentials) if f.init and not f.name.startswith("_")}
    for key in profile:
        _check_key("A profile of type duckrun has no key", key, sorted(known | {"type", "threads"}))
    lakes, spark = profile.get("lakes"), profile.get("spark")
    for name, lake in lakes.items() if isinstance(lakes, Mapping) else ():
        for key in lake if isinstance(lake, Mapping) else ():
            _check_key(f"lakes: {name} has an unknown key", key, _LAKE_KEYS)
    for key in spark if isinstance(spark, Mapping) else ():
        _check_key("spark: unknown key", key, _SPARK_KEYS)


def _check_key(what: str, key: Any, known: Sequence[str]) -> None:
    if key not in known:
        hint = did_you_mean(str(key), known, f" The keys are {', '.join(known)}.")
        raise DbtRuntimeError(f"{what} {key!r}.{hint}")
