"""Branches of a lake as values: their names, and what a diff and a publish tell."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from duckrun.display.notebook import facts_html, table_html
from duckrun.errors import InvalidConfig
from duckrun.values.records import Record

BRANCHES = "_branches"
"""Folder inside a table's folder that holds the lines of its branches."""
REGISTRY = "_duckrun/branches"
"""Folder below the root of a lake that lists its branches."""
PUBLISHES = "_duckrun/publish"
"""Folder below the root of a lake for the records of publishes."""
PENDING = f"{PUBLISHES}/pending"
"""Folder for publishes that are under way, or whose process has ended."""
PUBLISHED = "_duckrun/published"
"""Folder for the record of the last publish of each branch."""
PLAN = ".plan.json"
"""End of the name of the decision of a publish under way."""

VARIABLE = "DUCKRUN_BRANCH"
"""Environment variable that names a branch for dbt and Dagster."""

STEP_VARIABLE = "DUCKRUN_STEP"
"""Environment variable that tells dbt its step of Dagster, and after a space the attempt."""

# The prefix of a vector's path is part of its descriptor, which engines do not decode alike. So
# only characters that every spelling leaves alone are allowed.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_branch_name(name: object) -> str:
    """Return the name of a branch.

    Raises:
        InvalidConfig: The name cannot be a folder in every store.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith("."):
        hint = ""
        if isinstance(name, str) and (like := re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]):
            hint = f", such as {like!r}"
        raise InvalidConfig(
            f"{name!r} cannot name a branch: its files lie in a folder of that name. Write a letter or digit, then up "
            f"to 63 letters, digits, dots, underscores and hyphens{hint}."
        )
    return name


def branch_of(configured: str | None, what: str) -> str | None:
    """Return the branch that a configuration or ``DUCKRUN_BRANCH`` names; None for main.

    An empty name counts as none.

    Args:
        configured: The name in the configuration.
        what: The place of that name in error texts, such as a key of a profile.

    Raises:
        InvalidConfig: Both name a branch, and not the same one; or the name cannot name a branch.
    """
    variable = os.environ.get(VARIABLE)
    if configured and variable and configured != variable:
        raise InvalidConfig(
            f"{what} is {configured!r}, and {VARIABLE} in the environment is {variable!r}. Unset one of them, or let "
            "both name the same branch."
        )
    name = configured or variable
    return check_branch_name(name) if name else None


@dataclass(frozen=True)
class Branch(Record):
    """A branch as the lake's registry records it."""

    name: str
    id: str
    created: int
    """Milliseconds since 1970."""
    by: str = ""
    """User and machine that created it."""
    at: str | None = None
    """Time at which tables without a fork are read; None reads their newest versions."""

    @property
    def folder(self) -> str:
        """Name of the branch's folders."""
        return f"{self.name}-{self.id}"

    @property
    def home(self) -> str:
        """Folder below the lake's root for all but the data of the branch."""
        return f"{REGISTRY}/{self.folder}"

    @property
    def data(self) -> str:
        """Folder of the branch inside a table's folder."""
        return f"{BRANCHES}/{self.folder}"

    @property
    def pointer(self) -> str:
        """Path of the file of a line, relative to the table's folder."""
        return f"{self.data}/branch.json"


@dataclass(frozen=True)
class Line(Record):
    """Commits of a branch to one table: those after ``base`` lie in the branch's folder.

    The file of a line is written at the first write to the table, the fork.
    """

    folder: str
    """Folder of the branch, below the table's folder."""
    base: int
    """Version of main's table that the line continues; -1 for a table that the branch created."""
    table_id: str = ""
    """Id of main's table at the fork; empty if there was none."""
    state: str = "live"
    """``live`` or ``dropped``."""
    log: str = "_log"
    """Folder of the commits, below ``folder``."""
    main: int = -1
    """Version of main's table when the branch dropped it or created its own; else ``base``."""
    created: int = 0
    by: str = ""
    number: int = 0
    """Number of the line among all that give row ids in the lake; 0 if it gives none.

    New rows get ids from ``number << 40`` on, so that no other line and not main gives them.
    """


@dataclass(frozen=True)
class BranchInfo:
    """A branch in the list of ``branches()``.

    Example::

        with duckrun.connect("lake/", branch="pr-42") as branch:
            branch.sql("update sales.orders set price = 3 where id = 1")
        assert [each.name for each in s.branches()] == ["pr-42"]
    """

    name: str
    created: int
    """Milliseconds since 1970."""
    by: str
    tables: tuple[str, ...]
    """Tables that the branch has forked, created or dropped."""
    rows_changed: int | None
    """Rows inserted, updated and deleted by its commits; None if a commit does not tell."""
    age_seconds: float
    state: str = "open"
    """``open`` or ``publishing``."""

    def _repr_html_(self) -> str:
        return facts_html(f"branch {self.name}", asdict(self))


class BranchList(list[BranchInfo]):
    """The branches of a lake, by name. A notebook shows them as a table.

    Example::

        with duckrun.connect("lake/", branch="pr-42") as branch:
            branch.sql("update sales.orders set price = 3 where id = 1")
        assert [each.rows_changed for each in s.branches()] == [1]
    """

    def _repr_html_(self) -> str:
        return table_html("branches", [asdict(each) for each in self])


@dataclass(frozen=True)
class TableDiff:
    """Difference of one table between a branch and its base.

    Example::

        with duckrun.connect("lake/", branch="pr-42") as branch:
            branch.sql("update sales.orders set price = 3 where id = 1")
        assert [each.rows_updated for each in s.diff("pr-42")] == [1]
    """

    table: str
    change: str
    """``changed``, ``created``, ``replaced`` or ``dropped``; for a view ``view``."""
    base_version: int | None = None
    """Version of main's table at the fork; None for a table that the branch created."""
    version: int | None = None
    """Newest version in the branch."""
    main_version: int | None = None
    """Newest version of main's table."""
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    """Sums over the branch's commits; None if a commit does not tell."""
    schema_changes: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return facts_html(self.table, asdict(self))


@dataclass(frozen=True)
class BranchDiff:
    """Differences between a branch and main: one entry per table.

    Example::

        with duckrun.connect("lake/", branch="pr-42") as branch:
            branch.sql("update sales.orders set price = 3 where id = 1")
        s.diff("pr-42").table("sales.orders").show()
    """

    branch: str
    tables: tuple[TableDiff, ...]
    rows_of: Callable[[TableDiff], Any] | None = field(default=None, repr=False, compare=False)

    def table(self, name: str) -> Any:
        """Return the changed rows of a table, as a change set with ``_change_type``.

        Raises:
            InvalidConfig: The branch does not change the table.
        """
        known = {each.table.lower(): each for each in self.tables}
        if name.lower() not in known or self.rows_of is None:
            changed = ", ".join(each.table for each in self.tables)
            raise InvalidConfig(f"Branch {self.branch} does not change {name}; it changes {changed or 'nothing'}.")
        return self.rows_of(known[name.lower()])

    def __iter__(self) -> Any:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def _repr_html_(self) -> str:
        return table_html(f"branch {self.branch}", [asdict(each) for each in self.tables])


@dataclass(frozen=True)
class Published:
    """Result of a publish: the new version of each table.

    Example::

        with duckrun.connect("lake/", branch="pr-42") as branch:
            branch.sql("update sales.orders set price = 3 where id = 1")
        assert s.publish("pr-42").versions == {"sales.orders": 1}
    """

    branch: str
    id: str
    """Id of the publish, which each of its commits carries."""
    versions: Mapping[str, int | None]
    """New version of each table; None for a dropped table and for a view."""
    before: Mapping[str, int | None] = field(default_factory=dict)
    """Version of each table before the publish; None for a new table."""
    replayed: bool = False
    """True if the branch was published before, so that nothing was to do."""
    seconds: float = 0.0

    def _repr_html_(self) -> str:
        facts = {
            name: "dropped" if version is None else f"version {version}" for name, version in self.versions.items()
        }
        known = {"id": self.id, "replayed": "yes: it was published before" if self.replayed else None}
        return facts_html(f"branch {self.branch}, published", {**facts, **known})
