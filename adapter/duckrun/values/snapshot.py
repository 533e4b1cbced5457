"""Reading in Delta Kernel's words: a Snapshot is a table at one version, a Scan is what to read of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self

import pyarrow as pa

from duckrun.errors import InvalidConfig, VersionNotReadable
from duckrun.values.columns import holds
from duckrun.values.computed import ComputedColumn
from duckrun.values.files import Files, GivenFiles
from duckrun.values.names import url_of
from duckrun.values.rows import ColumnFigures, ReadSpec, ScanFile

DELTA = "delta"
"""The name of the one table format."""


@dataclass(frozen=True)
class TableRef:
    """A table's name in the lake and the folder that holds it. ``catalog`` names the lake where it is an attached one.

    Example::

        s.table("sales.orders").ref.location
    """

    schema: str
    name: str
    location: str
    format: str = DELTA
    catalog: str | None = None

    @property
    def url(self) -> str:
        """The location as a percent-encoded URL."""
        return url_of(self.location)

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)


@dataclass(frozen=True)
class Pin:
    """A table at one version, as rows that are computed later read it.

    A version number means nothing without the table's id: a table that is dropped and created again begins its log again.
    """

    ref: TableRef
    version: int
    table_id: str
    find: Callable[[int | None, str | None], Snapshot] = field(repr=False, compare=False)
    """Opens the table that is at its place now, at a version or a time."""

    def check(self, advice: str) -> None:
        """Raise VersionNotReadable if another table has taken its place, TableNotFound if none has.

        Args:
            advice: What to do then.
        """
        # Spark's CREATE OR REPLACE TABLE may change the id within one log, whose older versions stay as they were.
        if self.find(None, None).table_id != self.table_id and self._id_at_version() != self.table_id:
            raise VersionNotReadable(
                f"Table {self.ref} was dropped and created again since its version {self.version} was pinned, and that version is gone: {advice}."
            )

    def _id_at_version(self) -> str | None:
        try:
            return self.find(self.version, None).table_id
        except VersionNotReadable:
            return None


@dataclass(frozen=True)
class Snapshot:
    """A table at one version: what its log says, with no data file opened.

    ``schema`` is the Arrow form of the table's schema, comments as field metadata; ``properties`` are the table
    properties, ``checks`` the conditions of its constraints (Spark SQL) by their names. The list of files is read when it is asked for.

    Example::

        s.table("sales.orders").snapshot().version
    """

    ref: TableRef
    version: int
    table_id: str
    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    variants: frozenset[str] = frozenset()
    """The columns of VARIANT, where ``schema`` shows the struct of their parts."""
    variants_inside: frozenset[str] = frozenset()
    """The columns that have VARIANT inside of a list, a map or a struct."""
    cluster_by: tuple[tuple[str, ...], ...] = ()
    """The columns of liquid clustering, each the names on the way to it."""
    properties: dict[str, str] = field(default_factory=dict)
    reader_features: frozenset[str] = frozenset()
    writer_features: frozenset[str] = frozenset()
    checks: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    list_files: Callable[[Snapshot], Files] | None = field(default=None, repr=False, compare=False)
    long_log: str | None = field(default=None, compare=False)
    """Where many commits lie since the last checkpoint, so that it costs seconds to open the table: what tells this version's
    commit from any other."""
    opened: Any = field(default=None, repr=False, compare=False)
    """The format's own handle of this version, where a write begins from it; of no use to anybody but the format."""
    list_beside: Callable[[Snapshot], Sequence[ScanFile]] | None = field(default=None, repr=False, compare=False)
    """What holds rows beside the data files, to be scanned as they are; None where the format has nothing of the kind."""
    find_rounded: Callable[[Snapshot], frozenset[str]] | None = field(default=None, repr=False, compare=False)
    find_legacy: Callable[[Snapshot], frozenset[str]] | None = field(default=None, repr=False, compare=False)
    find_figures: Callable[[Snapshot], Mapping[str, ColumnFigures]] | None = field(
        default=None, repr=False, compare=False
    )
    find_computed: Callable[[pa.Schema], Mapping[str, ComputedColumn]] | None = field(
        default=None, repr=False, compare=False
    )
    make_scan_sql: Callable[..., str] | None = field(default=None, repr=False, compare=False)
    find_parts: Callable[[Snapshot], Any] | None = field(default=None, repr=False, compare=False)
    sql_types: Mapping[str, str] | None = field(default=None, repr=False, compare=False)
    """The columns' types in DuckDB's SQL, where the format has types that Arrow has not; None where ``schema`` says them."""
    keyed_by: tuple[str, ...] | None = field(default=None, repr=False, compare=False)
    """The partition keys as users write them, where a format has others than columns."""
    own: Any = field(default=None, repr=False, compare=False)
    """What the format itself knows of this version; of no use to anybody but the format."""
    find_matching: Callable[[Snapshot, ReadSpec], Any] | None = field(default=None, repr=False, compare=False)
    """The files that may hold rows for the predicate of a spec, as ``files``, and the ``residual`` to filter these by."""
    find_other: Callable[[int | None, str | None], Snapshot] | None = field(default=None, repr=False, compare=False)
    """Opens the table at another version, or at a time."""
    shared: tuple[str, int] | None = field(default=None, repr=False, compare=False)
    """The lake whose tables share their versions, and which of them this was read at; None where each table has its own."""

    @property
    def pin(self) -> Pin | None:
        """What checks later that the version is still this table's; None for a lake of shared versions, which never have two meanings."""
        if self.shared is not None or self.find_other is None:
            return None
        return Pin(self.ref, self.version, self.table_id, self.find_other)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """What the rows are parted by, as users write it: columns, and transforms of columns such as ``month(at)``."""
        return self.partition_columns if self.keyed_by is None else self.keyed_by

    def has_partitions(self, keys: Sequence[str]) -> bool:
        """True if the rows are parted by these keys, as users write them."""
        return [_bare(key) for key in keys] == [_bare(key) for key in self.partition_keys]

    def columns_to_replace(self) -> tuple[str, ...]:
        """The columns by whose values a write without a predicate finds the partitions that it replaces. Raises InvalidConfig where there are
        none, or where a partition is by a transform too: which rows of another year a month means, a predicate has to say.
        """
        transforms = [key for key in self.partition_keys if key not in self.partition_columns]
        if transforms:
            raise InvalidConfig(
                f"Table {self.ref} is partitioned by {', '.join(transforms)}, and replace finds partitions by the values of columns alone: say which "
                "rows to replace (predicate), or use mode overwrite. Nothing was written."
            )
        if not self.partition_columns:
            raise InvalidConfig(
                f"Table {self.ref} has no partitions to replace: say which rows to replace (predicate), or use mode overwrite. Nothing was written."
            )
        return self.partition_columns

    def files(self) -> Files:
        """The data files of this version."""
        assert self.list_files is not None, "a snapshot comes from a format, which knows how to list its files"
        return self.list_files(self)

    def rounded(self) -> frozenset[str]:
        """The columns with values that may lie outside the bounds which the log has of them: no file may be left out by those."""
        return frozenset() if self.find_rounded is None else self.find_rounded(self)

    def legacy(self) -> frozenset[str]:
        """The columns with lists that lie in some file as they did before Parquet said how."""
        return frozenset() if self.find_legacy is None else self.find_legacy(self)

    def column_figures(self) -> Mapping[str, ColumnFigures]:
        """What the format knows of the values of each column without opening a data file, as bounds: no value is outside them."""
        return {} if self.find_figures is None else self.find_figures(self)

    def computed(self) -> Mapping[str, ComputedColumn]:
        """The columns whose values writers compute where rows come without them, by name: generated, identity, and with a default."""
        return {} if self.find_computed is None else self.find_computed(self.schema)

    def scan_sql(self, **options: Any) -> str:
        """DuckDB's SQL behind FROM for the rows of this version; the options are those of Format.scan_sql()."""
        assert self.make_scan_sql is not None, "a snapshot comes from a format, which knows how to read its files"
        return self.make_scan_sql(self, **options)

    def parts(self) -> Any:
        """What lies in the files of this version and what beside them, for an engine that reads files itself: of a DuckLake table its LakeFiles."""
        assert self.find_parts is not None, "a snapshot of a format whose files alone are not its rows"
        return self.find_parts(self)

    @property
    def is_append_only(self) -> bool:
        """True if no row may leave the table. Source: Delta protocol, Append-only Tables."""
        return self.properties.get("delta.appendOnly", "").lower() == "true"

    @property
    def idle_features(self) -> frozenset[str]:
        """Features that the table lists and none of its columns uses: deltalake lists ``variantType`` beside others, and a table
        with a change feed ``generatedColumns``, for which its older writer version stood too.
        """
        used = {"variantType"} if any(holds(field.type, may_be_variant) for field in self.schema) else set()
        used |= {"generatedColumns"} if any(_GENERATED in (field.metadata or {}) for field in self.schema) else set()
        return frozenset({"variantType", "generatedColumns"} - used)

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of this version, also where ``schema`` is what they will be."""
        return self.schema

    def at(self, spec: ReadSpec) -> Snapshot:
        """The snapshot of the version or the time that a spec names; this one if it names none. Raises VersionNotReadable."""
        if spec.timestamp is None and spec.version in (None, self.version):
            return self
        assert self.find_other is not None, "a snapshot comes from a format, which opens its other versions"
        other = self.find_other(spec.version, spec.timestamp)
        if other.table_id != self.table_id and self.pin is not None:
            self.pin.check("take a new snapshot, by table(name).snapshot()")
        return other

    def scan(self, spec: ReadSpec | None = None) -> Scan:
        """What to read, as a value that can go to another process; of the version that the spec names, if it names one.

        Raises VersionNotReadable for a version or a time that the table does not have.
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


@dataclass(frozen=True)
class Scan:
    """Files of one snapshot, with the columns and the predicate to read them by. Survives pickle and JSON.

    The files are those that may hold rows for the predicate, by partition values and statistics. ``residual`` is what is left of it to filter
    their rows by; None where all of them match.

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
    table_id: str = ""

    @property
    def read(self) -> ReadSpec:
        """The columns, and the residual, to read the files by."""
        return replace(self.spec, predicate=self.residual)

    def snapshot(self) -> Snapshot:
        """What the scan knows of its snapshot: its files are those of the scan."""
        return Snapshot(
            ref=self.ref,
            version=self.version,
            table_id=self.table_id,
            schema=self.schema,
            partition_columns=self.partition_columns,
            list_files=lambda _: GivenFiles(self.ref.location, self.files),
            find_rounded=lambda _: frozenset(self.rounded),
            find_legacy=lambda _: frozenset(self.legacy),
        )

    def split(self, parts: int) -> list[Scan]:
        """This scan in at most ``parts`` scans of about equal bytes, which together read each row once. Rows that lie in the catalog of a DuckLake
        are of one of them.
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
"""What the metadata of a generated column holds. Source: Delta protocol, Generated Columns."""


def may_be_variant(kind: pa.DataType) -> bool:
    """True for a type as the columns of variants have it in Arrow. Source: Delta protocol, Variant Data Type."""
    return pa.types.is_struct(kind) and {field.name for field in kind} >= {"metadata", "value"}


def schema_to_text(schema: pa.Schema) -> str:
    """An Arrow schema as text: its IPC message in base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_from_text(text: str) -> pa.Schema:
    """The schema that schema_to_text wrote."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
