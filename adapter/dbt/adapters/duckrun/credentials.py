"""What the user wrote in the profile, checked as it is read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from dbt.adapters.duckdb.credentials import DuckDBCredentials
from dbt_common.exceptions import DbtRuntimeError

from duckrun.errors import DuckrunError
from duckrun.memory import parse_bytes

ENGINES = ("duckdb", "spark")
REDACTED = "***"
_LAKE_KEYS = ("root_path", "storage_options", "read_only")
# dbt-duckdb's two places for DuckDB's own limit, in DuckDB's two spellings.
_DUCKDB_LIMITS = ("memory_limit", "max_memory")


@dataclass
class DuckrunCredentials(DuckDBCredentials):
    """A lake, and dbt-duckdb's own keys for everything around it.

    Example of a profile::

        type: duckrun
        root_path: lake/            # or s3://, az://, abfss://, gs://; relative to the dbt project
        schema: main
        threads: 4
        memory_limit: 2GB           # for the whole process; default: what the machine or its cgroup leaves free
        lakes:                      # other lakes, each a database of the project: +database: archive
          archive: {root_path: s3://bucket/archive, read_only: true}
    """

    root_path: str | None = None
    # repr=False: neither a log line nor a traceback shows what may be a secret.
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    engine: str = "duckdb"
    spark: dict[str, Any] | None = field(default=None, repr=False)
    lakes: dict[str, Any] | None = field(default=None, repr=False)
    memory_limit: str | int | None = None

    @property
    def type(self) -> str:
        return "duckrun"

    @property
    def unique_field(self) -> str:
        return self.root_path or ""

    @classmethod
    def __pre_deserialize__(cls, data: dict[Any, Any]) -> dict[Any, Any]:
        known = {f.name for f in fields(cls) if f.init and not f.name.startswith("_")} | {"type", "threads"}
        for key in data:
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else f" The keys are {', '.join(sorted(known))}."
                raise DbtRuntimeError(f"Unknown key {key!r} in a profile of type duckrun.{hint}")
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
        if self.engine not in ENGINES:
            raise DbtRuntimeError(
                f"Unknown engine {self.engine!r} in the profile; the engines are {', '.join(ENGINES)}."
            )
        if self.engine == "spark" or self.spark:
            raise DbtRuntimeError(
                "engine: spark is not supported by this version of the dbt adapter. Remove engine and spark from the "
                "profile; Dagster assets can use Spark on the same lake."
            )
        self._check_lakes()
        # Views that one thread makes must be seen by the cursors of all others at once, and a Delta table has its
        # own transactions: a DuckDB transaction around a model would only hide what other models have committed.
        self.disable_transactions = True
        self._take_duckdb_limits()

    def _check_lakes(self) -> None:
        for name, lake in (self.lakes or {}).items():
            if not isinstance(lake, dict) or not str(lake.get("root_path") or "").strip():
                raise DbtRuntimeError(f"lakes: {name} needs a root_path, the folder or URL of that lake.")
            for key in lake:
                if key not in _LAKE_KEYS:
                    near = difflib.get_close_matches(str(key), _LAKE_KEYS, n=1)
                    hint = f" Did you mean {near[0]!r}?" if near else f" The keys are {', '.join(_LAKE_KEYS)}."
                    raise DbtRuntimeError(f"lakes: unknown key {key!r} of {name}.{hint}")

    def _take_duckdb_limits(self) -> None:
        """One limit for the process, from whichever key holds it; the smallest where several do.

        dbt-duckdb repeats ``settings`` on every new cursor, which would undo the shares that the arbiter hands out.
        """
        given = [] if self.memory_limit is None else [self.memory_limit]
        for name in ("settings", "config_options"):
            place = getattr(self, name)
            if place and any(limit in place for limit in _DUCKDB_LIMITS):
                given += [place[limit] for limit in _DUCKDB_LIMITS if limit in place]
                setattr(self, name, {k: v for k, v in place.items() if k not in _DUCKDB_LIMITS})
        try:
            self.memory_limit = min((parse_bytes(limit) for limit in given), default=None)
        except DuckrunError as error:
            raise DbtRuntimeError(f"memory_limit: {error}") from error

    def connection_info(self, *, with_aliases: bool = False) -> Iterable[tuple[str, Any]]:
        """What `dbt debug` prints: the names of the storage options, none of their values."""
        yield from super().connection_info(with_aliases=with_aliases)
        yield "storage_options", dict.fromkeys(self.storage_options or {}, REDACTED) or None

    def _connection_keys(self) -> tuple[str, ...]:
        return (
            "root_path",
            "schema",
            "engine",
            "memory_limit",
            "database",
            "extensions",
            "external_root",
            "disable_transactions",
        )
