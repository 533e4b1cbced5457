"""Snapshots (a table at one version) and scans (a read of one), by the terms of Delta Kernel."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

from duckrun.errors import InvalidConfig, VersionNotReadable
from duckrun.libraries import pa
from duckrun.values.columns import fields_with
from duckrun.values.computed import ComputedColumn
from duckrun.values.files import Files, ListedFiles
from duckrun.values.frozen import frozen
from duckrun.values.layout import CHANGE_FEED
from duckrun.values.names import url_of
from duckrun.values.rows import ColumnFigures, Ranges, ReadSpec, ScanFile

DELTA = "delta"
"""Name of the Delta format."""


@dataclass(frozen=True)
class TableRef:
    """Name of a table in the lake and the folder that holds it.

    Example::

        s.table("sales.orders").ref.location
    """

    schema: str
    name: str
    location: str
    format: str = DELTA
    catalog: str | None = None
    """Name of the attached lake; None for the session's own."""

    @property
    def url(self) -> str:
        """The location as a percent-encoded URL."""
        return url_of(self.location)

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)


@frozen
class Pin:
    """A table at one version, for rows that are computed later.

    A version number means nothing without the table's id: a table that is dropped and created again
    starts a new log.
    """

    ref: TableRef
    version: int
    table_id: str
    find: Callable[[int | None, str | None], Snapshot] = field(repr=False, compare=False)
    """Opens the table that is now at the same place, at a version or a time."""

    def check(self, advice: str) -> None:
        """Check that the pinned version still belongs to the same table.

        Args:
            advice: Remedy for the error message.

        Raises:
            VersionNotReadable: Another table has taken its place.
            TableNotFound: No table is there.
        """
        # Spark's CREATE OR REPLACE TABLE may change the id within one log. Older versions
        # keep theirs.
        if self.find(None, None).table_id != self.table_id and self._id_at_version() != self.table_id:
            raise VersionNotReadable(
                f"Table {self.ref} was dropped and created again since its version {self.version} was "
                f"pinned, and that version is gone: {advice}."
            )

    def _id_at_version(self) -> str | None:
        try:
            return self.find(self.version, None).table_id
        except VersionNotReadable:
            return None


Attach = Callable[[str, int, str], str | None]
"""Function that attaches a table version to a DuckDB instance and returns its name in SQL.

The instance then replays the log only once. The arguments are a location, a version, and a token
that tells this version from another of the same number. The result is None if the instance attaches
no more tables.
"""
FileColumns = Callable[[Sequence[str]], Mapping[str, Mapping[str, str]]]
"""Function that reads the footers of Parquet files through a DuckDB instance.

The result has the columns of each file by its path, with DuckDB's type of each column. A file is
left out if it cannot be read, or if a column is no scalar.
"""


@frozen
class ReadAs:
    """Options of the DuckDB SQL that reads a snapshot."""

    files: Sequence[ScanFile] | None = None
    """Read only these files of the snapshot."""
    file: str | None = None
    """Name of an extra column for the file of each row. No table column has this name."""
    row: str | None = None
    """Name of an extra column for the number of each row in its file."""
    attach: Attach | None = None
    """Attach function of an instance that may read the rows more than once."""
    footers: FileColumns | None = None
    """Function of an instance that reads footers.

    A table whose few files have exactly its columns is then read without the log.
    """
    ranges: Ranges = field(default_factory=dict)
    """Ranges of columns outside of which the query needs no row. Needs ``footers``."""
    named: bool = False
    """Put the table and version into the SQL, even if the files can be read without them."""
    also: Sequence[str] = ()
    """Extra number columns that files may hold, NULL if a file lacks one.

    Needs ``file`` and ``row``.
    """


def _unshown() -> Any:
    """Return a field of a snapshot that neither its text nor a comparison takes in."""
    return field(default=None, repr=False, compare=False)


@frozen
class Snapshot:
    """A table at one version, from its log alone. Files are listed lazily and never opened.

    Example::

        s.table("sales.orders").snapshot().version
    """

    ref: TableRef
    version: int
    table_id: str
    schema: pa.Schema
    """Arrow form of the table's schema, with comments as field metadata."""
    begun: int = 0
    """First version of the table."""
    partition_columns: tuple[str, ...] = ()
    variants: frozenset[str] = frozenset()
    """VARIANT columns, which ``schema`` shows as the struct of their parts."""
    variants_inside: frozenset[str] = frozenset()
    """Columns with a VARIANT inside a list, a map or a struct."""
    cluster_by: tuple[tuple[str, ...], ...] = ()
    """Paths of the columns of liquid clustering."""
    properties: dict[str, str] = field(default_factory=dict)
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()
    checks: Mapping[str, str] = field(default_factory=dict)
    """Conditions of the constraints (Spark SQL), by name."""
    description: str | None = None
    list_files: Callable[[Snapshot], Files] | None = _unshown()
    long_log: str | None = field(default=None, compare=False)
    """Identity of this version's commit, if many commits follow the last checkpoint.

    Opening such a table costs seconds.
    """
    opened: Any = _unshown()
    """The format's own handle, from which a write begins. Private to the format."""
    list_beside: Callable[[Snapshot], Sequence[ScanFile]] | None = _unshown()
    """Lists rows stored outside the data files, to scan unfiltered; None if the format has none."""
    find_plain: Callable[[Snapshot, FileColumns, int], Sequence[str] | None] | None = _unshown()
    find_rounded: Callable[[Snapshot], frozenset[str]] | None = _unshown()
    find_legacy: Callable[[Snapshot], frozenset[str]] | None = _unshown()
    find_figures: Callable[[Snapshot], Mapping[str, ColumnFigures]] | None = _unshown()
    find_computed: Callable[[pa.Schema], Mapping[str, ComputedColumn]] | None = _unshown()
    make_scan_sql: Callable[[Snapshot, ReadAs], str] | None = _unshown()
    find_log: Callable[[Snapshot], tuple[str, int]] | None = _unshown()
    find_parts: Callable[[Snapshot], Any] | None = _unshown()
    sql_types: Mapping[str, str] | None = _unshown()
    """Column types in DuckDB's SQL, for formats with types that Arrow lacks.

    None if ``schema`` suffices.
    """
    keyed_by: tuple[str, ...] | None = _unshown()
    """Partition keys as users write them, if the format allows more than columns."""
    format_state: Any = _unshown()
    """The format's own knowledge of this version. Private to the format."""
    find_matching: Callable[[Snapshot, ReadSpec], Any] | None = _unshown()
    """Finds the ``files`` that may hold rows of a spec's predicate, and the ``residual`` filter."""
    find_other: Callable[[int | None, str | None], Snapshot] | None = _unshown()
    """Opens the table at another version, or at a time."""
    shared: tuple[str, int] | None = _unshown()
    """Lake whose tables share their versions, and the version read.

    None if each table has its own.
    """

    @property
    def pin(self) -> Pin | None:
        """Check for later that the version still belongs to this table.

        None for a lake of shared versions, whose version numbers are never reused.
        """
        if self.shared is not None or self.find_other is None:
            return None
        return Pin(self.ref, self.version, self.table_id, self.find_other)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """Partition keys as users write them: columns, and transforms such as ``month(at)``."""
        return self.partition_columns if self.keyed_by is None else self.keyed_by

    def has_partitions(self, keys: Sequence[str]) -> bool:
        """True if these are the partition keys, as users write them."""
        return [_bare(key) for key in keys] == [_bare(key) for key in self.partition_keys]

    def columns_to_replace(self) -> tuple[str, ...]:
        """Return the columns that select the partitions of a replace without a predicate.

        Raises:
            InvalidConfig: The table has no partitions, or one is by a transform. Only a predicate
                can say which rows of another year a month means.
        """
        transforms = [key for key in self.partition_keys if key not in self.partition_columns]
        if transforms:
            raise InvalidConfig(
                f"Table {self.ref} is partitioned by {', '.join(transforms)}, and replace finds partitions by the "
                "values of columns alone: say which rows to replace (predicate), or use mode overwrite"
            )
        if not self.partition_columns:
            raise InvalidConfig(
                f"Table {self.ref} has no partitions to replace: say which rows to replace (predicate), or use "
                "mode overwrite"
            )
        return self.partition_columns

    def files(self) -> Files:
        """Return the data files of this version."""
        assert self.list_files is not None, "a snapshot comes from a format, which knows how to list its files"
        return self.list_files(self)

    def rounded(self) -> frozenset[str]:
        """Return the columns whose logged bounds are inexact, so that they cannot prune files."""
        return frozenset() if self.find_rounded is None else self.find_rounded(self)

    def plain_files(self, footers: FileColumns, most: int) -> Sequence[str] | None:
        """Return the paths of files whose columns are the table's rows, for any Parquet reader.

        None if there are more files than ``most``, or if a plain reader may get other rows.
        """
        return None if self.find_plain is None else self.find_plain(self, footers, most)

    def legacy(self) -> frozenset[str]:
        """Return the columns with lists in the layout from before the Parquet LIST standard."""
        return frozenset() if self.find_legacy is None else self.find_legacy(self)

    def column_figures(self) -> Mapping[str, ColumnFigures]:
        """Return bounds of each column's values, known without opening a data file."""
        return {} if self.find_figures is None else self.find_figures(self)

    def computed(self) -> Mapping[str, ComputedColumn]:
        """Return the generated, identity and default columns by name, which writers fill in."""
        return {} if self.find_computed is None else self.find_computed(self.schema)

    def scan_sql(self, **options: Any) -> str:
        """Return the DuckDB FROM source of this version's rows, by the options of ReadAs."""
        assert self.make_scan_sql is not None, "a snapshot comes from a format, which knows how to read its files"
        return self.make_scan_sql(self, ReadAs(**options))

    def log(self) -> tuple[str, int]:
        """Return the folder and the version that Spark opens for this version."""
        return (self.ref.location, self.version) if self.find_log is None else self.find_log(self)

    def parts(self) -> Any:
        """Return the rows' places, in and beside files, for an engine with its own reader.

        For a DuckLake table these are its LakeFiles.
        """
        assert self.find_parts is not None, "a snapshot of a format whose files alone are not its rows"
        return self.find_parts(self)

    @property
    def is_append_only(self) -> bool:
        """True if no row may leave the table. Source: Delta protocol, Append-only Tables."""
        return self.properties.get("delta.appendOnly", "").lower() == "true"

    @property
    def has_feed(self) -> bool:
        """True if commits write a change feed. Source: Delta protocol, Change Data Files."""
        return self.properties.get(CHANGE_FEED, "").lower() == "true"

    @property
    def idle_features(self) -> frozenset[str]:
        """Features that the table lists but none of its columns uses.

        deltalake lists ``variantType`` beside others. It also lists ``generatedColumns`` for a
        table with a change feed, since the older writer version implied it.
        """
        used = {"variantType"} if fields_with(self.schema, may_be_variant) else set()
        used |= {"generatedColumns"} if any(_GENERATED in (field.metadata or {}) for field in self.schema) else set()
        return frozenset({"variantType", "generatedColumns"} - used)

    @property
    def stored_schema(self) -> pa.Schema:
        """Columns of this version, even if ``schema`` already shows pending ones."""
        return self.schema

    def at(self, spec: ReadSpec) -> Snapshot:
        """Return the snapshot at the version or time of a spec; this one if the spec names none.

        Raises:
            VersionNotReadable: The table has no such version or time.
        """
        if spec.timestamp is None and spec.version in (None, self.version):
            return self
        assert self.find_other is not None, "a snapshot comes from a format, which opens its other versions"
        other = self.find_other(spec.version, spec.timestamp)
        if other.table_id != self.table_id and self.pin is not None:
            self.pin.check("take a new snapshot, by table(name).snapshot()")
        return other

    def scan(self, spec: ReadSpec | None = None) -> Scan:
        """Return the scan of a spec, at the version that it names. It can go to another process.

        Raises:
            VersionNotReadable: The table has no such version or time.
        """
        if spec is not None and (other := self.at(spec)) is not self:
            return other.scan(replace(spec, version=None, timestamp=None))
        spec = spec or ReadSpec()
        assert self.find_matching is not None, "a snapshot comes from a format, which knows its files"
        matching = self.find_matching(self, spec)
        return Scan(
            ref=self.ref,
            version=self.version,
            schema=self.schema,
            partition_columns=self.partition_columns,
            spec=spec,
            files=matching.files,
            rounded=tuple(sorted(self.rounded())),
            legacy=tuple(sorted(self.legacy())),
            residual=matching.residual,
            table_id=self.table_id,
        )


@frozen
class Scan:
    """Files of one snapshot, with the columns and the predicate to read. Survives pickle and JSON.

    The files are those that may hold rows of the predicate, by partition values and statistics.

    Example::

        for part in s.table("sales.orders").snapshot().scan().split(4):
            s.open(part).show()  # each in a process of its own
    """

    ref: TableRef
    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    spec: ReadSpec
    files: tuple[ScanFile, ...]
    rounded: tuple[str, ...] = ()
    legacy: tuple[str, ...] = ()
    residual: str | None = None
    """Remaining filter for the rows of the files; None if all rows match."""
    table_id: str = ""

    @property
    def read(self) -> ReadSpec:
        """Columns and residual predicate to read from the files."""
        return replace(self.spec, predicate=self.residual)

    def snapshot(self) -> Snapshot:
        """Return a snapshot with the files of the scan alone."""
        return Snapshot(
            ref=self.ref,
            version=self.version,
            table_id=self.table_id,
            schema=self.schema,
            partition_columns=self.partition_columns,
            list_files=lambda _: ListedFiles(self.ref.location, lambda: self.files),
            find_rounded=lambda _: frozenset(self.rounded),
            find_legacy=lambda _: frozenset(self.legacy),
        )

    def split(self, parts: int) -> list[Scan]:
        """Split the scan into at most ``parts`` scans of similar size, which read each row once.

        Rows that lie in the catalog of a DuckLake belong to one of the scans.
        """
        shares: list[list[ScanFile]] = [[] for _ in range(max(1, parts))]
        sizes = [0] * len(shares)
        for file in sorted(self.files, key=lambda f: (-f.size, f.path)):
            smallest = sizes.index(min(sizes))
            shares[smallest].append(file)
            sizes[smallest] += file.size
        return [replace(self, files=tuple(share)) for share in shares if share]

    def to_json(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"ref": asdict(self.ref), "schema": schema_to_text(self.schema), "spec": asdict(self.spec)}
        return json.dumps(values | {"files": [asdict(file) for file in self.files]})

    @classmethod
    def from_json(cls, text: str) -> Self:
        values: dict[str, Any] = json.loads(text)
        columns = values["spec"].pop("columns")
        values |= {name: tuple(values[name]) for name in ("partition_columns", "rounded", "legacy")}
        values |= {"ref": TableRef(**values["ref"]), "schema": schema_from_text(values["schema"])}
        values["spec"] = ReadSpec(None if columns is None else tuple(columns), **values["spec"])
        return cls(**values | {"files": tuple(ScanFile(**file) for file in values["files"])})


def _bare(key: str) -> str:
    return "".join(key.split()).lower() if "(" in key else key.lower()


_GENERATED = b"delta.generationExpression"
"""Metadata key of a generated column. Source: Delta protocol, Generated Columns."""


def may_be_variant(kind: pa.DataType) -> bool:
    """True for the Arrow type of VARIANT columns. Source: Delta protocol, Variant Data Type."""
    return pa.types.is_struct(kind) and {field.name for field in kind} >= {"metadata", "value"}


def schema_to_text(schema: pa.Schema) -> str:
    """Return an Arrow schema as text: its IPC message in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """Return the schema that schema_to_text() encoded."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
