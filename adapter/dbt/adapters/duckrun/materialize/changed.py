"""``changes()`` in a model: a table's changes since the model's own last commit, as a name in SQL.

The name is created when the SQL is compiled, with the rows of the range at that time. The offsets
are recorded when the model is built, so `dbt compile` and `dbt docs` leave nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from dbt.adapters.duckrun.model.values import names, one_of
from dbt.adapters.events.logging import AdapterLogger

from duckrun.changes.changes import Changes, ChangeSpec
from duckrun.changes.cursors import Cursor, Step, Upstream, asking_for_a_refresh, base_of_rerun
from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig
from duckrun.lake.lakes import Lakes
from duckrun.run.pins import Pins
from duckrun.values.changes import KINDS, ChangeKind
from duckrun.values.frozen import frozen
from duckrun.values.rows import WorkTransaction
from duckrun.values.snapshot import TableRef

logger = AdapterLogger("Duckrun")


def consumer_of(node: str) -> str:
    """Return the name of a model as a consumer: the application id of its commits."""
    return f"dbt:{node}"


def parse_changes(
    node: str, config: Mapping[str, Any], kind: Any, key: Any, columns: Any, predicate: Any
) -> ChangeSpec:
    """Return the query of ``changes()``, without its range.

    The model's config ``changes`` supplies the arguments that are left out.

    Raises:
        InvalidConfig: The model or an argument does not fit; the text names the node.
    """
    if config.get("materialized") != "incremental":
        raise InvalidConfig(
            f"{node}: changes() is what changed since the model's own last commit: "
            "it goes with materialized: incremental."
        )
    if config.get("incremental_strategy") == "microbatch":
        raise InvalidConfig(f"{node}: a microbatch model reads slices of time; leave out changes().")
    value = config.get("changes") or {}
    defaults = {"kind": value} if isinstance(value, str) else dict(value) if isinstance(value, Mapping) else None
    if defaults is None or defaults.keys() - {"kind", "key"}:
        raise InvalidConfig(f"{node}: changes is {value!r}; it takes a kind, or a mapping with kind and key.")
    chosen = one_of(node, "changes", kind or defaults.get("kind"), KINDS[:4])
    keys = names(node, "key", key if key is not None else defaults.get("key"))
    only = None if columns is None else names(node, "columns", columns)
    return ChangeSpec(cast(ChangeKind, chosen), key=keys, columns=only, predicate=predicate)


@frozen
class Asked:
    """One ``changes()`` of a model: the query, without its range, and the name of its rows."""

    ref: TableRef
    spec: ChangeSpec
    name: str


class NodeChanges:
    """The ``changes()`` of an invocation's models, by model. Safe across threads."""

    def __init__(self, lakes: Lakes, pins: Pins, work: Callable[[str], WorkTransaction]) -> None:
        """Set up for an invocation.

        Args:
            lakes: The lakes of the invocation.
            pins: The versions that it reads.
            work: Returns the work of a node.
        """
        self._lakes, self._pins, self._work = lakes, pins, work
        self._lock = threading.Lock()
        self._asked: dict[str, list[Asked]] = {}

    def of(self, node: str) -> Sequence[Asked]:
        """Return the ``changes()`` of a model."""
        with self._lock:
            return tuple(self._asked.get(node, ()))

    def ask(self, node: str, output: TableRef, ref: TableRef, spec: ChangeSpec) -> Asked:
        """Return a name for the changes of a table, the same for an equal query."""
        with self._lock:
            known = self._asked.setdefault(node, [])
            request = next((each for each in known if (each.ref, each.spec) == (ref, spec)), None)
            if request is None:
                request = Asked(ref, spec, f"_duckrun_changes_{output.schema}_{output.name}_{len(known)}")
                known.append(request)
        return request

    def begin(self, node: str, output: TableRef, *, full_refresh: bool, note: bool = True) -> Step:
        """Return the step that the next commit of a model makes over its upstream tables."""
        lake, refs = self._lakes.of(output), [each.ref for each in self.of(node)]
        upstreams = {str(ref): Upstream.of(self._lakes.of(ref), self._pins.snapshot(ref)) for ref in refs}
        cursor, work = Cursor(lake, output, consumer_of(node)), self._work(node)
        base, rerun = base_of_rerun(lake, cursor, work)
        if rerun and note:
            logger.info(f"{node}: {rerun}")
        return cursor.begin(upstreams, full_refresh=full_refresh, note=note, work=work, base=base)

    def rows(self, request: Asked, step: Step, engine: Engine) -> Any:
        """Return the rows of a request in a step's range, as a lazy value of the engine."""
        versions = step.ranges[str(request.ref)]
        spec = replace(
            request.spec, from_version=versions.from_version, to_version=versions.to_version, table_id=versions.table_id
        )
        with asking_for_a_refresh():
            return Changes(self._lakes.of(request.ref).format, request.ref, spec).rows(engine)
