"""Registry of a lake's branches, in its folder ``_duckrun/branches``.

Each object is written once, and only if it does not exist. So processes need no lock.
"""

from __future__ import annotations

import getpass
import json
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from duckrun.errors import CommitConflict, InvalidConfig
from duckrun.formats.branches import BranchTables
from duckrun.formats.factory import branch_format
from duckrun.storage.parallel import at_once
from duckrun.storage.storage import Storage
from duckrun.values.branches import BRANCHES, REGISTRY, Branch
from duckrun.values.cursors import hashed
from duckrun.values.names import RESERVED, folder_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.snapshot import TableRef

DROPPED = b'{"kind": "dropped"}'
"""Definition of a branch that hides main's view."""


def now() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1000)


def user() -> str:
    """Return the user and the machine of this process."""
    name = "unknown"
    with suppress(OSError, KeyError, ImportError):  # a user without an entry in the system's list
        name = getpass.getuser()
    return f"{name}@{socket.gethostname()}"


def find(storage: Storage, name: str) -> Branch | None:
    """Return a branch by its name; None if there is none."""
    path = f"{REGISTRY}/{name}.json"
    raw = storage.read(path)
    return None if raw is None else Branch.from_json(raw, f"{storage.root}/{path}")


def existing(storage: Storage, name: str) -> Branch:
    """Return a branch by its name.

    Raises:
        InvalidConfig: There is no such branch; the message has the nearest names.
    """
    branch = find(storage, name)
    if branch is None:
        names = [each.name for each in branches(storage)]
        listed = f" The lake's branches are {', '.join(names)}." if names else " The lake has no branches."
        raise InvalidConfig(f"Lake {storage.root} has no branch {name!r}.{did_you_mean(name, names, listed)}")
    return branch


def create(storage: Storage, name: str, at: str | None = None) -> Branch:
    """Return a branch by its name, which is created if it is missing."""
    there = find(storage, name)
    if there is not None:
        return there
    branch = Branch(name, uuid.uuid4().hex[:8], now(), user(), at)
    if storage.put_new(storage.root, f"{REGISTRY}/{name}.json", branch.to_json()) is None:
        return existing(storage, name)  # another process was first
    return branch


def branches(storage: Storage) -> list[Branch]:
    """Return all branches, by name."""
    paths = [f"{REGISTRY}/{name}" for name in storage.list_names(REGISTRY)[1] if name.endswith(".json")]
    read = zip(paths, at_once(storage.read, paths), strict=True)
    return [Branch.from_json(raw, f"{storage.root}/{path}") for path, raw in read if raw is not None]


def remove_name(storage: Storage, branch: Branch) -> None:
    """Free the name of a branch."""
    if find(storage, branch.name) == branch:
        storage.remove(f"{REGISTRY}/{branch.name}.json")


def open_tables(storage: Storage, branch: Callable[[], Branch]) -> BranchTables:
    """Return the tables of a branch; ``branch`` is called at their first use."""
    return branch_format(
        storage,
        branch,
        lambda ref, table_id: forking(storage, branch(), ref, table_id),
        lambda ref: refuse_ended(storage, branch(), ref),
        lambda: reserve(storage),
    )


def reserve(storage: Storage) -> int:
    """Return a number that is higher than all it has returned before, in any process."""
    folder = f"{REGISTRY}/numbers"
    while True:
        number = max(map(int, storage.list_names(folder)[1]), default=0) + 1
        if storage.put_new(storage.root, f"{folder}/{number}", uuid.uuid4().bytes) is not None:
            return number


# -- tables that a branch has forked


def recorded(storage: Storage, ref: TableRef) -> dict[str, str]:
    """Return a table as records of branches name it."""
    return {"schema": ref.schema, "name": ref.name, "path": storage.relative(ref.location)}


def table_of(storage: Storage, branch: Branch, record: Mapping[str, Any]) -> TableRef:
    """Return the table that a record names."""
    schema, name = record["schema"], record["name"]
    if "path" in record:
        return TableRef(schema, name, storage.absolute(record["path"]))
    # An older version recorded the place of then, and the lake may have been moved since. A table
    # outside of the lake of then has a definition, or another end of its location.
    location, inside = record["location"], f"{folder_of(schema)}/{folder_of(name)}"
    if location.endswith(f"/{inside}"):
        file = f"{folder_of(name)}.json"
        homes = (f"{folder_of(schema)}/{RESERVED}", f"{branch.home}/definitions/{folder_of(schema)}")
        definitions = [json.loads(storage.read(f"{home}/{file}") or b"{}") for home in homes]
        if all(each.get("location") != location for each in definitions):
            location = storage.absolute(inside)
    return TableRef(schema, name, location)


def _fork_path(branch: Branch, location: str) -> str:
    return f"{branch.home}/forks/{hashed(location)}.json"


@contextmanager
def forking(storage: Storage, branch: Branch, ref: TableRef, table_id: str) -> Iterator[None]:
    """Record a fork, and let the caller write its line.

    Args:
        storage: Storage of the lake.
        branch: The branch.
        ref: The table.
        table_id: Id of main's table; empty if there is none.

    Raises:
        CommitConflict: The branch was published or discarded, or is being published.
    """
    fork = {**recorded(storage, ref), "table_id": table_id}
    storage.put(_fork_path(branch, storage.relative(ref.location)), json.dumps(fork).encode())
    yield
    # A publish closes the branch before it lists the forks. So it sees the line and seals it, or
    # this sees the branch closed.
    if is_closed(storage, branch):
        refuse_ended(storage, branch, ref)
        raise _takes_no_more(branch)  # its publish removes the line, or opens the branch again


def unregister(storage: Storage, branch: Branch, ref: TableRef) -> None:
    """Remove the record of a fork."""
    for location in {storage.relative(ref.location), ref.location}:  # that of an older version
        storage.remove(_fork_path(branch, location))


def remove_files(storage: Storage, branch: Branch, ref: TableRef) -> None:
    """Remove all files of a branch in a table's folder."""
    _remove(storage, branch, ref, [key["path"] for key in storage.keys(f"{ref.location}/{branch.data}")])


def _remove(storage: Storage, branch: Branch, ref: TableRef, paths: Sequence[str]) -> None:
    """Remove the file of a line and others of the branch, and folders that only the branch had."""
    storage.remove_files(ref.location, [branch.pointer])  # first: without it no other file is read
    storage.remove_below(f"{ref.location}/{branch.data}", paths)
    with suppress(OSError):
        if storage.is_local:
            for folder in (Path(ref.location, BRANCHES), Path(ref.location)):
                folder.rmdir()


def _has_ended(storage: Storage, branch: Branch) -> bool:
    """True if a branch was published or discarded, so that nobody removes what is put now.

    A publish and a discard free the name before they list what they remove.
    """
    return find(storage, branch.name) != branch


def refuse_ended(storage: Storage, branch: Branch, ref: TableRef) -> None:
    """Remove a line that was put after its branch was published or discarded.

    Raises:
        CommitConflict: It was.
    """
    if _has_ended(storage, branch):
        _remove(storage, branch, ref, ())  # main has the data files of a published branch
        unregister(storage, branch, ref)
        raise _takes_no_more(branch)


def write(storage: Storage, branch: Branch, objects: Mapping[str, bytes | None]) -> None:
    """Put objects into a branch's home, or remove those that are None.

    Raises:
        CommitConflict: The branch takes no more writes; the objects are as before.
    """
    refuse_closed(storage, branch)
    before = {path: storage.read(path) for path in objects}
    _put_all(storage, objects)
    # A publish closes the branch before it reads them. So it sees them, or this sees it closed.
    if is_closed(storage, branch):
        _put_all(storage, before)
        if _has_ended(storage, branch):
            _put_all(storage, dict.fromkeys(objects))
        raise _takes_no_more(branch)


def _put_all(storage: Storage, objects: Mapping[str, bytes | None]) -> None:
    for path, body in objects.items():
        if body is None:
            storage.remove(path)
        else:
            storage.put(path, body)


def is_closed(storage: Storage, branch: Branch) -> bool:
    """True if a branch takes no more writes."""
    return storage.read(closed_path(branch)) is not None


def refuse_closed(storage: Storage, branch: Branch) -> None:
    """Raise CommitConflict if a branch takes no more writes."""
    if is_closed(storage, branch):
        raise _takes_no_more(branch)


def _takes_no_more(branch: Branch) -> CommitConflict:
    return CommitConflict(
        f"Branch {branch.name} is being published, was published, or was discarded, and takes no more writes",
        remedy="write to the lake itself, or to another branch",
    )


def forks(storage: Storage, branch: Branch) -> dict[TableRef, str]:
    """Return the tables that a branch may have forked, in the order of their locations.

    The values are the ids of main's tables, empty for a table that the branch created.
    """
    folder = f"{branch.home}/forks"
    read = at_once(storage.read, [f"{folder}/{name}" for name in storage.list_names(folder)[1]])
    records = [json.loads(raw) for raw in read if raw is not None]
    ids = {table_of(storage, branch, each): each.get("table_id", "") for each in records}
    return dict(sorted(ids.items(), key=lambda fork: fork[0].location))


def closed_path(branch: Branch) -> str:
    """Return the path of the object that closes a branch."""
    return f"{branch.home}/closed.json"


def definitions(storage: Storage, branch: Branch) -> Iterator[tuple[str, str]]:
    """Yield the folders of schema and name of the branch's own definitions."""
    home = f"{branch.home}/definitions"
    for schema in storage.list_names(home)[0]:
        for file in storage.list_names(f"{home}/{schema}")[1]:
            if file.endswith(".json"):
                yield schema, file.removesuffix(".json")


def _claim_path(branch: Branch, name: str) -> str:
    return f"{branch.home}/claims/{hashed(name)}.json"


def claim(branch: Branch, ref: TableRef, by: tuple[str, str] | None) -> dict[str, bytes | None]:
    """Return the object that tells the step and the attempt that dropped or defined a name."""
    body = None if by is None else json.dumps({"step": by[0], "attempt": by[1]}).encode()
    return {_claim_path(branch, str(ref)): body}


def claimed(storage: Storage, branch: Branch, name: str) -> set[tuple[str, str]]:
    """Return the step and the attempt that dropped or defined a name last; empty if no step did."""
    raw = storage.read(_claim_path(branch, name))
    return set() if raw is None else {(json.loads(raw)["step"], json.loads(raw)["attempt"])}


def base_path(branch: Branch, path: str) -> str:
    """Return the path of main's definition at the time when the branch wrote its own at a path."""
    return path.replace(f"{branch.home}/definitions/", f"{branch.home}/bases/", 1)
