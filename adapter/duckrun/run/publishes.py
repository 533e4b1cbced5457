"""Publishes of branches that a run does not see, since they had not ended when it began to read."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from duckrun.errors import VersionNotReadable
from duckrun.storage.storage import Storage
from duckrun.values.branches import PENDING, PLAN, PUBLISHED, PUBLISHES
from duckrun.values.snapshot import TableRef
from duckrun.values.upkeep import WEEK


class LaterPublishes:
    """Publishes of a lake that end after this object is made.

    A run makes one before it first reads the lake, and reads each of their tables at the version
    before. So it sees all tables of a publish, or none.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._began = time.time()
        self._ended = frozenset(self._names(PUBLISHES))
        self._before: dict[str, dict[str, int | None]] = {}

    def _names(self, folder: str) -> list[str]:
        return self._storage.list_names(folder)[1]

    def versions_before(self, ref: TableRef) -> list[int | None]:
        """Return the version of a table before each of these publishes; None without a table.

        The caller has opened the newest version before, so no commit of a publish is overlooked.

        Raises:
            VersionNotReadable: The lake may have removed the record of one of these publishes.
        """
        if time.time() - self._began > WEEK.total_seconds() and self._has_later():
            raise VersionNotReadable(
                f"Table {ref}: this run began to read the lake more than a week ago, and branches were published since "
                "whose records are gone, so it could read one table from before a publish and another from after it",
                remedy="Begin a new run",
            )
        # In this order: a publish writes its record before it removes its plan.
        plans = [name.removesuffix(PLAN) for name in self._names(PENDING) if name.endswith(PLAN)]
        ids = {*plans, *(name.removesuffix(".json") for name in {*self._names(PUBLISHES)} - self._ended)}
        later = (self._versions(id) for id in sorted(ids) if f"{id}.json" not in self._ended)
        name = str(replace(ref, catalog=None))
        return [before[name] for before in later if name in before]

    def _has_later(self) -> bool:
        """True if a branch was published since, also without its record."""
        last = self._storage.keys(f"{self._storage.root}/{PUBLISHED}")
        return any(key["modified"] > self._began for key in last)

    def _versions(self, id: str) -> dict[str, int | None]:
        """Return the versions before a publish, by table."""
        if id not in self._before:
            plan, record = (self._storage.read(path) for path in (f"{PENDING}/{id}{PLAN}", f"{PUBLISHES}/{id}.json"))
            if plan is not None and record is None:
                tables = json.loads(plan).get("tables", ())
                self._before[id] = {f"{each['schema']}.{each['name']}": each["before"] for each in tables}
            else:
                record = record or self._storage.read(f"{PUBLISHES}/{id}.json")
                self._before[id] = {} if record is None else json.loads(record).get("before", {})
        return self._before[id]
