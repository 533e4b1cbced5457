"""Data files of a version, as the log lists them."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from deltalake import DeltaTable

from duckrun.formats.delta.definition.mapping import physical
from duckrun.formats.delta.log.entries import CommitActions
from duckrun.libraries import pa, pc
from duckrun.values.data_files import decoded, place_of
from duckrun.values.files import Files
from duckrun.values.rows import ScanFile
from duckrun.values.snapshot import Snapshot

OpenVersion = Callable[[Snapshot], DeltaTable]
"""Function that opens the log at a snapshot's version, for reading."""
_FEW = 1000
"""Number of files up to which ScanFile objects are cached.

An object takes half a kilobyte, so those of larger tables are created on each iteration.
"""
_SHORT = 100
"""Maximum length of a list to search without pyarrow.compute, whose import takes 15 ms."""
_OF_A_FILE = ("path", "size_bytes", "num_records", "partition")


@dataclass(eq=False, repr=False)
class LoggedFiles(Files):
    """Files that an opening of the log listed, plus files of later commits."""

    location: str
    listed: pa.Table
    """Files as deltalake's table of path, size_bytes, num_records and partition."""
    deleted: Mapping[str, int]
    """Number of rows that the deletion vector of a file deletes, by path in the log."""
    newer: Mapping[str, ScanFile] = field(default_factory=dict)
    """Files of later commits, by path in the log."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Physical to logical names of partition columns, where they differ."""
    _made: tuple[ScanFile, ...] | None = field(default=None, init=False)
    _at: pa.Array | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.newer) + int(self.listed.num_rows)

    def __iter__(self) -> Iterator[ScanFile]:
        if self._made is None and len(self) <= _FEW:
            self._made = tuple(self._each())
        return self._each() if self._made is None else iter(self._made)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Iterable) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.location, len(self)))

    def __repr__(self) -> str:
        return f"<{len(self)} files of {self.location}>"

    def weight(self) -> tuple[int, int]:
        newer = sum(file.size for file in self.newer.values())
        return len(self), newer + sum(map(_sum, self.listed["size_bytes"].chunks))

    def paths(self) -> Iterator[str]:
        yield from (file.path for file in self.newer.values())
        for batch in self.listed.select(["path"]).to_batches(max_chunksize=_FEW):
            yield from map(decoded, batch.column(0).to_pylist())

    def named(self, names: Collection[str]) -> dict[str, ScanFile]:
        newer = {name: self.newer[name] for name in names if name in self.newer}
        return {**self._in_list(names), **newer}

    def at(self, places: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(places)
        newer = ((place_of(self.location, file), file) for file in self.newer.values())
        if self._at is None:
            self._at = self._places()
        rows = self.listed.filter(pc.is_in(self._at, pa.array(sorted(wanted), pa.string())))
        listed = ((place_of(self.location, file), file) for file in self._files(rows))
        return {place: file for part in (listed, newer) for place, file in part if place in wanted}

    def after(self, commits: Sequence[CommitActions]) -> LoggedFiles | None:
        """Return the files after some commits.

        Returns:
            None if a commit removes a missing file or adds a present one. Only a reader of the
            whole log can judge that.
        """
        paths = {action["path"] for commit in commits for action in (*commit.adds, *commit.removes)}
        listed = self._in_list(paths)
        live = {**listed, **self.newer}
        for commit in commits:
            for remove in commit.removes:
                gone = live.pop(remove["path"], None)
                # A remove without the deletion vector of a file with one removes nothing.
                if gone is None or gone.deletion_vector != bool(remove.get("deletionVector")):
                    return None
            for add in commit.adds:
                if add["path"] in live:
                    return None
                live[add["path"]] = scan_file(add, self.names)
        left = [name for name, file in listed.items() if live.get(name) is not file]
        still = self._without(left) if left else self.listed
        newer = {name: file for name, file in live.items() if listed.get(name) is not file}
        return LoggedFiles(self.location, still, self.deleted, newer, self.names)

    # -- from Arrow

    def _each(self) -> Iterator[ScanFile]:
        yield from reversed(tuple(self.newer.values()))
        yield from self._files(self.listed)

    def _of_names(self, names: Collection[str]) -> Any:
        return pc.is_in(self.listed.column("path"), _texts(names))

    def _without(self, names: Collection[str]) -> pa.Table:
        """Return the listed files of other names."""
        if len(self.listed) > _SHORT:
            return self.listed.filter(pc.invert(self._of_names(names)))
        paths = self.listed.column("path").to_pylist()
        rows = [self.listed.slice(at, 1) for at, path in enumerate(paths) if path not in names]
        return pa.concat_tables([self.listed.slice(0, 0), *rows])

    def _in_list(self, names: Collection[str]) -> dict[str, ScanFile]:
        wanted = set(names)
        rows = self.listed if len(self.listed) <= _SHORT else self.listed.filter(self._of_names(wanted))
        return {str(file.spelled): file for file in self._files(rows) if file.spelled in wanted}

    def _files(self, rows: pa.Table) -> Iterator[ScanFile]:
        for batch in rows.to_batches(max_chunksize=_FEW):
            for row in batch.to_pylist():
                yield ScanFile(
                    path=decoded(row["path"]),
                    size=row["size_bytes"],
                    partition_values={k: partition_string(v) for k, v in (row.get("partition") or {}).items()},
                    rows=row["num_records"],
                    deletion_vector=row["path"] in self.deleted,
                    deleted_rows=self.deleted.get(row["path"], 0),
                    spelled=row["path"],
                )

    def _places(self) -> pa.Array:
        """Return the paths of the listed files in the form of DuckDB's ``filename``."""
        paths = pa.concat_arrays(self.listed.column("path").chunks or [pa.array([], pa.string())])
        whole = pc.binary_join_element_wise(self.location, paths, "/")
        special = pc.match_substring_regex(paths, "%|^/|^[A-Za-z][A-Za-z0-9+.-]*:/")
        if not pc.any(special).as_py():
            return whole
        files = (ScanFile(decoded(path), 0) for path in paths.filter(special).to_pylist())
        odd = [place_of(self.location, file) for file in files]
        return pc.replace_with_mask(whole, special, pa.array(odd, pa.string()))


def _sum(sizes: pa.Array) -> int:
    """Return the sum of sizes."""
    # pyarrow.compute and numpy import for a tenth of a second and more, and a list of a hundred
    # thousand objects is slow, too.
    if sizes.null_count or sizes.type != pa.int64():
        return sum(size or 0 for size in sizes.to_pylist())
    whole = memoryview(sizes.buffers()[1] or b"").cast("q")
    return sum(whole[sizes.offset : sizes.offset + len(sizes)])


def _texts(values: Iterable[str]) -> pa.Array:
    """Return strings as an Arrow array."""
    # ``pa.array()`` of Python values imports pandas first, which takes a quarter of a second.
    encoded = [value.encode() for value in values]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(encoded))]
    )


def listed(table: DeltaTable) -> pa.Table:
    """Return deltalake's table of the live files."""
    # Not by ``pa.table()``, which imports pandas to check for a data frame.
    return pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=False)).read_all()


def files_in(table: DeltaTable, snapshot: Snapshot, deleted: Mapping[str, int]) -> LoggedFiles:
    """Return the live files of an open log.

    Args:
        table: Handle of the version.
        snapshot: The version.
        deleted: Counts of deleted rows, by path.
    """
    # Column bounds are left out: they may contain years that Python's date lacks.
    adds = listed(table)
    files = adds.select([name for name in _OF_A_FILE if name in adds.column_names])
    paths = files.column("path") if files.num_rows else pa.chunked_array([], pa.string())
    if paths.type != pa.string():  # a cast imports pyarrow.compute
        paths = paths.cast(pa.string())
    files = files.set_column(files.column_names.index("path"), "path", paths)
    return LoggedFiles(snapshot.ref.location, files, deleted, names=names_of_parts(snapshot))


def names_of_parts(snapshot: Snapshot) -> dict[str, str]:
    """Return the physical to logical names of partition columns, where they differ."""
    in_log = {physical(snapshot.stored_schema.field(name)): name for name in snapshot.partition_columns}
    return {stored: name for stored, name in in_log.items() if stored != name}


def scan_file(add: Mapping[str, Any], names: Mapping[str, str] = MappingProxyType({})) -> ScanFile:
    """Return the file of an add, remove or cdc action. Source: Delta protocol, Add File.

    Args:
        names: Physical to logical names of partition columns.
    """
    # The count of deleted rows is in the descriptor, so no vector is read (Delta protocol, Deletion
    # Vector Descriptor Schema, cardinality).
    vector = add.get("deletionVector")
    return ScanFile(
        path=decoded(add["path"]),
        size=add.get("size") or 0,
        # An empty text means NULL (Delta protocol, Partition Value Serialization).
        partition_values={
            names.get(key, key): value or None for key, value in (add.get("partitionValues") or {}).items()
        },
        rows=json.loads(add.get("stats") or "{}").get("numRecords"),
        deletion_vector=vector is not None,
        deleted_rows=int(vector["cardinality"]) if vector else 0,
        spelled=add["path"],
    )


def partition_string(value: Any) -> str | None:
    """Return a partition value as the log writes it.

    Source: Delta protocol, Partition Value Serialization.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            value = value.astimezone(UTC).replace(tzinfo=None)
        return str(value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds"))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value)
