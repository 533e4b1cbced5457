"""Which engine runs a node's statements, and in which dialect its SQL is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.duckrun.model.values import one_of

from duckrun.run.pins import WorkLog, unnoted

ENGINES = ("duckdb", "spark")
DIALECTS = ("duckdb", "spark")


@dataclass(frozen=True)
class Node:
    """A node of the project, as far as its engine goes. ``dialect`` is that of the SQL which its author wrote; what
    dbt's own macros write around it is DuckDB's. ``log`` is what it has read and committed so far.
    """

    name: str
    engine: str = "duckdb"
    dialect: str = "duckdb"
    log: WorkLog = field(default_factory=WorkLog, compare=False, repr=False)
    relation: tuple[str, str, str] = ("", "", "")
    """Database, schema and name of what the node makes, in lower case."""

    @classmethod
    def of(cls, node: Any, nodes: Mapping[str, Any], profile: str) -> Node:
        """The engine of one of dbt's nodes: what its config says (``engine``, of itself or its folder); for a test, else
        that of the model it tests; else the profile's.

        Raises InvalidConfig for an engine or a dialect that is not known.
        """
        name = str(getattr(node, "unique_id", node))
        engine = _configured(node, "engine") or _tested(node, nodes) or profile
        dialect = _configured(node, "dialect") or "duckdb"
        made = tuple(str(getattr(node, part, None) or "").lower() for part in ("database", "schema", "alias"))
        return cls(
            name,
            one_of(name, "engine", engine, ENGINES),
            one_of(name, "dialect", dialect, DIALECTS),
            relation=made,  # type: ignore[arg-type]
        )


def _configured(node: Any, key: str) -> Any:
    config = getattr(node, "config", None)
    return None if config is None else config.get(key)


def _tested(node: Any, nodes: Mapping[str, Any]) -> Any:
    """The engine of what a test is about: its model; for a singular test its models, if they agree."""
    if str(getattr(node, "resource_type", "")) not in ("test", "unit_test"):
        return None
    attached = getattr(node, "attached_node", None) or getattr(node, "tested_node_unique_id", None)
    parents: Iterable[str] = [attached] if attached else node.depends_on.nodes
    if str(node.resource_type) == "unit_test":
        parents = list(parents)[:1]  # the model; the others are its inputs, whose rows the test makes up
    engines = {_configured(nodes.get(parent), "engine") for parent in parents}
    return engines.pop() if len(engines) == 1 else None


_current: ContextVar[Node | None] = ContextVar("duckrun_node", default=None)


def current() -> Node | None:
    """The node whose statements this thread sends; None outside of one."""
    return _current.get()


# As dbt's own macros ask for the columns of a query.
_NO_ROWS = re.compile(r"\bwhere\s+false\s+limit\s+0\s*;?\s*$", re.IGNORECASE)


def reading(sql: str) -> AbstractContextManager[None]:
    """While a statement runs: one that gives no row by its own words reads none."""
    return unnoted() if _NO_ROWS.search(sql) else nullcontext()


@contextmanager
def running(node: Node) -> Iterator[None]:
    """The statements that this thread sends meanwhile belong to a node."""
    token = _current.set(node)
    try:
        yield
    finally:
        _current.reset(token)
