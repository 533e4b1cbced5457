"""``changes()`` in a model: what changed in a table since the model's own last commit, under a name that its SQL reads.

A name is given when the SQL is compiled, with the rows of the range as it is then; the offsets are noted when the model is built,
so that `dbt compile` and `dbt docs` leave nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from dbt.adapters.duckrun.model.values import names, one_of
from dbt.adapters.events.logging import AdapterLogger

from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.changes.cursors import Cursor, Step, Upstream, asking_for_a_refresh, base_of_rerun
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig
from duckrun.sql.names import quote_identifier
from duckrun.values.changes import KINDS, ChangeKind
from duckrun.values.snapshot import TableRef

if TYPE_CHECKING:
    from dbt.adapters.duckrun.environment import LakeEnvironment

logger = AdapterLogger("Duckrun")


def consumer_of(node: str) -> str:
    """The name of a model as a consumer: the application id of its commits."""
    return f"dbt:{node}"


class ChangesOf:
    """The arguments of ``changes()``, and the model's config ``changes``, which stands for those that are not given."""

    @staticmethod
    def parse(node: str, config: Mapping[str, Any], kind: Any, key: Any, columns: Any, predicate: Any) -> ChangeSpec:
        """A change query without its range. Raises InvalidConfig, naming the node."""
        if config.get("materialized") != "incremental":
            raise InvalidConfig(
                f"{node}: changes() is what changed since the model's own last commit: it goes with materialized: incremental."
            )
        if config.get("incremental_strategy") == "microbatch":
            raise InvalidConfig(f"{node}: a microbatch model reads slices of time; leave out changes().")
        said = config.get("changes") or {}
        given = {"kind": said} if isinstance(said, str) else dict(said) if isinstance(said, Mapping) else None
        if given is None or given.keys() - {"kind", "key"}:
            raise InvalidConfig(f"{node}: changes is {said!r}; it takes a kind, or a mapping with kind and key.")
        chosen = one_of(node, "changes", kind or given.get("kind"), KINDS[:4])
        keys = names(node, "key", key if key is not None else given.get("key"))
        only = None if columns is None else names(node, "columns", columns)
        return ChangeSpec(cast(ChangeKind, chosen), key=keys, columns=only, predicate=predicate)


@dataclass(frozen=True)
class Asked:
    """One ``changes()`` of a model: the query, without its range, and the name of its rows."""

    ref: TableRef
    spec: ChangeSpec
    name: str


class NodeChanges:
    """What the models of an invocation ask for, by their names. Safe across threads."""

    def __init__(self, env: LakeEnvironment) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._asked: dict[str, list[Asked]] = {}

    def of(self, node: str) -> Sequence[Asked]:
        """What a model asks for."""
        with self._lock:
            return tuple(self._asked.get(node, ()))

    def ask(self, node: str, output: TableRef, ref: TableRef, spec: ChangeSpec) -> Asked:
        """A name for the changes of a table, the same for the same question."""
        with self._lock:
            known = self._asked.setdefault(node, [])
            found = next((each for each in known if (each.ref, each.spec) == (ref, spec)), None)
            if found is None:
                found = Asked(ref, spec, f"_duckrun_changes_{output.schema}_{output.name}_{len(known)}")
                known.append(found)
        return found

    def begin(self, node: str, output: TableRef, *, full_refresh: bool, note: bool = True) -> Step:
        """What the next commit of a model is to make of the tables whose changes it asks for."""
        lake = self._env.lakes.of(output)
        upstreams = {}
        for each in self.of(node):
            snapshot = self._env.pins.snapshot(each.ref)
            own = self._env.lakes.of(each.ref)
            upstreams[str(each.ref)] = Upstream(own.format, snapshot, None if own.read_only else own.storage)
        cursor, work = Cursor(lake.format, lake.storage, output, consumer_of(node)), self._env.work(node)
        base, rerun = base_of_rerun(lake, cursor, work)
        if rerun and note:
            logger.info(f"{node}: {rerun}")
        return cursor.begin(upstreams, full_refresh=full_refresh, note=note, work=work, base=base)

    def show(self, asked: Asked, step: Step, engine: Engine, spark: Any = None) -> None:
        """Let the name of a question stand for the rows of a step's range; ``spark`` is the session of a node on Spark."""
        found = step.ranges[str(asked.ref)]
        spec = replace(
            asked.spec, from_version=found.from_version, to_version=found.to_version, table_id=found.table_id
        )
        with asking_for_a_refresh():
            rows = Changes(self._env.lakes.of(asked.ref).format, asked.ref, spec).rows(engine)
        if spark is not None:
            spark.register(asked.name, rows)
        else:
            source: Any = rows.source  # of DuckDB
            view = f"CREATE OR REPLACE VIEW {self.spelled(asked)} AS {source.as_source().text}"
            self._env.engine.connection.cursor().execute(view)

    def spelled(self, asked: Asked) -> str:
        """The name as DuckDB's SQL has it."""
        return quote_identifier(self._env.creds.database, "main", asked.name)
