"""The engine that runs a node's statements, and the dialect of its SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from dbt.adapters.duckrun.model.choices import DIALECTS
from dbt.adapters.duckrun.model.values import one_of

from duckrun.run.work_log import WorkLog, unnoted
from duckrun.values.choices import ENGINES
from duckrun.values.frozen import frozen


@frozen
class Node:
    """A node of the project: its engine and its relation."""

    name: str
    engine: str = "duckdb"
    dialect: str = "duckdb"
    """Dialect of the author's SQL; the SQL of dbt's own macros around it is DuckDB's."""
    log: WorkLog = field(default_factory=WorkLog, compare=False, repr=False)
    """Reads and commits of the node so far."""
    relation: tuple[str, str, str] = ("", "", "")
    """Database, schema and name of the node's relation, in lower case."""

    @classmethod
    def of(cls, node: Any, nodes: Mapping[str, Any], profile: str) -> Node:
        """Return one of dbt's nodes with its engine.

        The engine is that of the node's config or its folder, else (for a test) that of the tested
        model, else the profile's.

        Args:
            node: dbt's node.
            nodes: The nodes of the manifest.
            profile: The engine of the profile.

        Raises:
            InvalidConfig: The engine or the dialect is unknown.
        """
        name = str(getattr(node, "unique_id", node))
        engine = _configured(node, "engine") or _tested(node, nodes) or profile
        dialect = _configured(node, "dialect") or "duckdb"
        relation = tuple(str(getattr(node, part, None) or "").lower() for part in ("database", "schema", "alias"))
        return cls(
            name,
            one_of(name, "engine", engine, ENGINES),
            one_of(name, "dialect", dialect, DIALECTS),
            relation=relation,  # type: ignore[arg-type]
        )


def _configured(node: Any, key: str) -> Any:
    config = getattr(node, "config", None)
    return None if config is None else config.get(key)


def _tested(node: Any, nodes: Mapping[str, Any]) -> Any:
    """Return the engine of a test's model; of a singular test's models, if they agree."""
    if str(getattr(node, "resource_type", "")) not in ("test", "unit_test"):
        return None
    attached = getattr(node, "attached_node", None) or getattr(node, "tested_node_unique_id", None)
    parents: Iterable[str] = [attached] if attached else node.depends_on.nodes
    if str(node.resource_type) == "unit_test":
        parents = list(parents)[:1]  # the model; the others are its inputs, which the test mocks
    engines = {_configured(nodes.get(parent), "engine") for parent in parents}
    return engines.pop() if len(engines) == 1 else None


_current: ContextVar[Node | None] = ContextVar("duckrun_node", default=None)


def current() -> Node | None:
    """Return the node whose statements this thread sends; None outside of one."""
    return _current.get()


_staged: ContextVar[str | None] = ContextVar("duckrun_staged", default=None)


def staged() -> str | None:
    """Return the query whose temporary view or table this thread creates; None otherwise."""
    return _staged.get()


def staging(query: str) -> AbstractContextManager[None]:
    """Announce that the statement of a block creates a temporary view or table of a query."""
    return _holding(_staged, query)


# The text that dbt's own macros append to query the columns of a SELECT.
_NO_ROWS = re.compile(r"\bwhere\s+false\s+limit\s+0\s*;?\s*$", re.IGNORECASE)


def reading(sql: str) -> AbstractContextManager[None]:
    """Return a context for a statement: if it can return no rows, it logs no read."""
    return unnoted() if _NO_ROWS.search(sql) else nullcontext()


def running(node: Node) -> AbstractContextManager[None]:
    """Assign the statements that this thread sends in the block to a node."""
    return _holding(_current, node)


@contextmanager
def _holding(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
