"""Specs of reads and writes, and their results: frozen values, independent of the engine.

A spec is parsed once, at the edge: Dagster metadata, dbt config or a SQL statement. Code behind
that edge never looks into a dict. All values survive pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Self

from duckrun.display.notebook import facts_html
from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, OneOf, VersionNumber, spec
from duckrun.values.choices import (
    ClauseKind,
    MergeMode,
    SchemaMode,
    WriteMode,
    WriterChoice,
)
from duckrun.values.expressions import refuse_no_expression
from duckrun.values.frozen import frozen
from duckrun.values.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa

Dialect = Annotated[str, OneOf("duckdb", "spark")]
NO_TABLE = -1
"""``read_version`` of a computation that saw no table. Its commit may only create one."""


@spec
class AppTransaction:
    """Identifier of a piece of work and the number of its commits so far.

    Source: Delta protocol, Transaction Identifiers (the ``txn`` action).

    Example::

        once = AppTransaction("load of 2026-01-01")
        s.execute("sales.orders", WriteSpec("append", app=once), rows)  # a second run adds nothing
    """

    app_id: str
    version: int = 0


@spec
class WorkTransaction(AppTransaction):
    """A commit of work that a newer attempt may run again.

    ``app_id`` names the chain of runs and the work. ``version`` counts the commits of the work in
    that chain; the transaction sets it when it begins. See ``../docs/reliability.md``, Reruns.
    """

    attempt: str = ""
    """Identity of one execution of the work."""
    started: float = 0.0
    """Start of the attempt, in seconds since 1970, by a clock shared by all attempts."""
    ordinal: int = 0
    """Number of this write within its attempt, from 0; see nth()."""

    def nth(self, ordinal: int) -> Self:
        """Return the transaction of another write of the attempt, with its number in ``app_id``."""
        work = self.app_id.removesuffix(f"/{self.ordinal}") if self.ordinal else self.app_id
        return replace(self, app_id=f"{work}/{ordinal}" if ordinal else work, ordinal=ordinal, version=0)


def preferred(writer: WriterChoice) -> WriterChoice:
    """Return the writer to use for each of many writes.

    An explicit ``delta_rs`` becomes ``prefer_delta_rs``, which falls back instead of refusing a
    write.
    """
    return "prefer_delta_rs" if writer == "delta_rs" else writer


@spec(kw_only=True)
class Spec:
    """Fields that all specs share: transaction, read version, dialect, merge mode and writer."""

    app: AppTransaction | None = None
    """Application transaction of the commit."""
    read_version: int | None = None
    """Version that the rows were computed from. The commit must be the next version.

    NO_TABLE: the commit must create the table.
    """
    dialect: Dialect = "duckdb"
    """Dialect of the spec's SQL."""
    existing: bool = False
    """Raise TableNotFound for a missing, dropped or renamed table instead of creating one."""
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    """Words for the commit, which readers of the log see as ``userMetadata``: a JSON object."""
    merge_mode: MergeMode = "auto"
    """How rows leave a table.

    ``deletion_vectors`` marks them in their files and turns the table feature on. ``copy_on_write``
    rewrites those files. ``auto`` follows the table property.
    """
    writer: WriterChoice = "auto"
    """Writer of the data files inside the duckdb engine.

    ``auto`` is ``staged`` (DuckDB). ``delta_rs`` does full writes, appends and merges by key, and
    refuses the rest. ``prefer_delta_rs`` falls back to ``staged``; the commit's reason says why.
    """

    def _refuse_no_expressions(self, **texts: str | None) -> None:
        """Raise InvalidConfig for an SQL field that is empty or more than one expression."""
        for name, text in texts.items():
            refuse_no_expression(text, self.dialect, f"{type(self).__name__}: {name}")


@spec
class ReadSpec:
    """Columns, predicate and version to read of one table.

    ``predicate`` is SQL in ``dialect``. ``columns`` keeps the order given. ``version`` and
    ``timestamp`` exclude each other; with neither, the read uses the version that the run pinned.
    ``timestamp`` is ISO 8601, in UTC if it names no zone.

    Example::

        s.scan("sales.orders", ReadSpec(columns=("id",), predicate="price > 2", version=0)).show()
    """

    columns: Listed[str] | None = None
    predicate: str | None = None
    version: VersionNumber | None = None
    timestamp: str | None = None
    dialect: Dialect = "duckdb"

    def __post_init__(self) -> None:
        if self.version is not None and self.timestamp is not None:
            raise InvalidConfig("A read names a version or a timestamp, not both.")
        if self.columns == ():
            raise InvalidConfig("A read names no column; leave columns out (None) for all of them.")
        if len({name.lower() for name in self.columns or ()}) < len(self.columns or ()):
            raise InvalidConfig(f"A read names a column twice: {', '.join(self.columns or ())}.")
        refuse_no_expression(self.predicate, self.dialect, "predicate")


@spec
class TableConstraints:
    """Constraints that every write to the table must satisfy.

    Args:
        not_null: Columns that refuse NULL.
        checks: Conditions by their names, as SQL in the dialect of the spec.

    Example::

        held = TableConstraints(not_null=("id",), checks={"positive": "price > 0"})
        s.execute("sales.orders", WriteSpec("overwrite", constraints=held), rows)
    """

    not_null: Listed[str] = ()
    checks: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.not_null or self.checks)


@spec
class WriteSpec(Layout, Spec):
    """A write of whole rows.

    Args:
        predicate: Rows that mode ``replace`` replaces. Every source row must satisfy it too.
            Without a predicate, ``replace`` replaces exactly the partitions that the source has
            rows of.
        within: Condition, in ``dialect``, on every source row as the table stores it, in any mode.
            A row that does not satisfy it fails the write.
        redefine: Let an overwrite drop the properties, constraints and description of the old
            table.
        constraints: Constraints of the table that this write creates or overwrites. They replace
            those of an earlier write. With None the table keeps its constraints; those of ALTER
            TABLE always stay.

    Example::

        s.execute("sales.orders", WriteSpec("replace", predicate="item = 'kiwi'"), rows.slice(0, 1))
    """

    mode: WriteMode
    predicate: str | None = None
    schema_mode: SchemaMode = "fail"
    description: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)
    within: str | None = None
    redefine: bool = False
    constraints: TableConstraints | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predicate is not None and self.mode != "replace":
            raise InvalidConfig(f"A predicate goes with mode 'replace', not with {self.mode!r}.")
        if self.redefine and self.mode != "overwrite":
            raise InvalidConfig(f"redefine goes with mode 'overwrite', not with {self.mode!r}.")
        if self.mode == "safeappend" and self.read_version is None:
            raise InvalidConfig("Mode 'safeappend' needs the version that was read (read_version).")
        checks = {f"constraint {name}": text for name, text in (self.constraints or TableConstraints()).checks.items()}
        self._refuse_no_expressions(predicate=self.predicate, within=self.within, **checks)


def _given(*texts: str | None) -> tuple[str, ...]:
    """Return the texts that are not None."""
    return tuple(text for text in texts if text is not None)


@spec
class MergeClause:
    """One WHEN clause of a merge.

    Args:
        condition: SQL over the aliases ``source`` and ``target``.
        set: Maps a target column to an expression over the same aliases. None sets every column
            from the source.
        columns: Limits "every column" to these.

    Example::

        dearer = "source.price > target.price"
        newer = MergeClause("matched_update", condition=dearer, set={"price": "source.price"})
        s.execute("sales.orders", MergeSpec(("id",), (newer,)), rows)
    """

    kind: ClauseKind
    condition: str | None = None
    columns: Listed[str] | None = None
    set: Mapping[str, str] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The condition and the values of ``set``."""
        return _given(self.condition, *(self.set or {}).values())

    def __post_init__(self) -> None:
        if self.columns is not None and self.set is not None:
            raise InvalidConfig("A merge clause names columns or set expressions, not both.")
        if self.kind.endswith("delete") and (self.columns is not None or self.set is not None):
            raise InvalidConfig(f"The merge clause {self.kind} takes a condition only.")


UPSERT = (MergeClause("matched_update"), MergeClause("not_matched_insert"))


@spec
class MergeSpec(Layout, Spec):
    """A merge by key equality. The first clause of a row's kind whose condition holds decides.

    NULL keys never match. A key of another type is compared as the table's type; expressions see
    the source's own values. The layout applies only if the merge creates the table.

    Args:
        on: Condition over ``source`` and ``target``, in addition to the equality of ``keys``.
        within: Condition over bare column names that bounds both sides. The merge sees only the
            target rows that satisfy it. A source row or a written row that does not satisfy it
            fails the merge.
        compared: SQL over ``target`` for keys that are not plain columns, such as a field of a
            struct. The source columns of these keys are not columns of the table.
        casts: Cast columns that are no keys as a SQL INSERT does. Otherwise a value that the
            table's type cannot hold fails the merge.
        only_if_changed: Do not write a row if an update would set its columns to equal values.
            Only the columns that the update sets are compared. See ``../docs/writing.md``, Merge.

    Example::

        s.execute("sales.orders", MergeSpec(("id",)), rows)  # updates matches, inserts the rest
    """

    keys: Listed[str]
    clauses: Listed[MergeClause] = UPSERT
    on: str | None = None
    within: str | None = None
    schema_mode: SchemaMode = "fail"
    compared: Mapping[str, str] = field(default_factory=dict)
    casts: bool = False
    only_if_changed: bool = False

    mode = "merge"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise InvalidConfig("A merge needs at least one key column.")
        if not self.clauses:
            raise InvalidConfig("A merge needs at least one clause.")
        if unknown := set(self.compared) - set(self.keys):
            raise InvalidConfig(f"compared names {', '.join(sorted(unknown))}, which is no key of the merge.")
        self._refuse_no_expressions(on=self.on, within=self.within, **self.compared)
        for clause in self.clauses:
            values = {f"{clause.kind} of {name}": value for name, value in (clause.set or {}).items()}
            self._refuse_no_expressions(**{f"condition of {clause.kind}": clause.condition}, **values)

    @property
    def expressions(self) -> tuple[str, ...]:
        """All SQL of the merge."""
        of_clauses = (text for clause in self.clauses for text in clause.expressions)
        return _given(self.on, self.within, *self.compared.values(), *of_clauses)

    def takes(self, column: str) -> bool:
        """True if a clause writes the table column of this name.

        Other source columns never become one.
        """
        if column in self.compared:
            return False
        whole = any(c.set is None and c.columns is None and not c.kind.endswith("delete") for c in self.clauses)
        named = {name.lower() for c in self.clauses for name in (*(c.columns or ()), *(c.set or ()))}
        return whole or column.lower() in named


@spec
class DeleteInsertSpec(Layout, Spec):
    """Delete the rows whose key is in the source and insert the source, in one commit.

    Keys may repeat.

    Args:
        predicate: Limits the rows to delete.
        within: Also limits the rows to delete. A source row that does not satisfy it fails the
            write.

    Both conditions are over bare column names.

    Example::

        s.execute("sales.orders", DeleteInsertSpec(("item",)), rows)
    """

    keys: Listed[str]
    schema_mode: SchemaMode = "fail"
    predicate: str | None = None
    within: str | None = None

    mode = "delete+insert"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.keys:
            raise InvalidConfig("delete+insert needs at least one key column.")
        self._refuse_no_expressions(predicate=self.predicate, within=self.within)

    @property
    def expressions(self) -> tuple[str, ...]:
        """Both conditions, without those that are None."""
        return _given(self.predicate, self.within)


@spec
class DeleteSpec(Spec):
    """Delete the rows that satisfy ``predicate``; None deletes all rows.

    The predicate names the table's columns, as ``column`` or ``target.column``. With source rows it
    is over the aliases ``target`` and ``source``: it deletes a row if it is true with any source
    row.

    Example::

        s.execute("sales.orders", DeleteSpec("price < 3"))
    """

    predicate: str | None = None

    mode = "delete"

    def __post_init__(self) -> None:
        self._refuse_no_expressions(predicate=self.predicate)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The predicate, if there is one."""
        return _given(self.predicate)


@spec
class UpdateSpec(Spec):
    """Set columns to expressions over the table's columns, in rows that satisfy ``predicate``.

    Columns are named ``column`` or ``target.column``. With source rows, all expressions are over
    the aliases ``target`` and ``source``. A target row that matches several source rows is an error
    (DuplicateSourceKeys).

    Example::

        s.execute("sales.orders", UpdateSpec({"price": "price * 1.1"}, predicate="item = 'fig'"))
    """

    set: Mapping[str, str]
    predicate: str | None = None

    mode = "update"

    def __post_init__(self) -> None:
        if not self.set:
            raise InvalidConfig("An update sets at least one column.")
        values = {f"value of {name}": value for name, value in self.set.items()}
        self._refuse_no_expressions(predicate=self.predicate, **values)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The values, and the predicate if there is one."""
        return _given(self.predicate, *self.set.values())


RowSpec = WriteSpec | MergeSpec | DeleteInsertSpec | DeleteSpec | UpdateSpec


@dataclass
class Returning:
    """The RETURNING clause of a statement, and the rows that it returns."""

    columns: str
    """SELECT list in the engine's SQL over the written or deleted rows, under ``alias``."""
    alias: str
    rows: pa.Table | None = None
    """Rows that the engine sets before each commit attempt.

    The last attempt is the committed one.
    """


@dataclass(frozen=True)
class ScanFile:
    """One data file of a snapshot.

    Source: Delta protocol, Add File and Remove File.

    Example::

        [file.path for file in s.table("sales.orders").snapshot().files()]
    """

    path: str
    """Path, not URL-encoded, relative to the table's location.

    Absolute for files of a shallow clone.
    """
    size: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    """Partition values as the log spells them; None is NULL.

    Two different texts may be one value.
    """
    rows: int | None = None
    """Number of rows in the file; None if unknown."""
    deletion_vector: bool = False
    """True if some rows are deleted; ``deleted_rows`` counts them."""
    deleted_rows: int = 0
    spelled: str | None = None
    """Path exactly as the log spells it; None for a file that is in no log yet.

    A commit must name the file by this spelling.
    """

    @property
    def live_rows(self) -> int | None:
        """Rows that a reader sees; None if unknown."""
        return None if self.rows is None else self.rows - self.deleted_rows

    def to_json(self) -> str:
        return json.dumps(asdict(self))  # unsorted: partitions have an order

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def counted_rows(files: Iterable[ScanFile]) -> int | None:
    """Return the rows that readers see in data files; None if unknown for one file."""
    counts = [file.live_rows for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


Range = tuple[int | None, int | None]
"""Least and greatest whole number; None if that end is open."""
Ranges = Mapping[str, Range]
"""Range of each column, by its name in lower case."""


@dataclass(frozen=True)
class ColumnFigures:
    """Statistics of one column of a file; None means unknown.

    ``low`` and ``high`` are texts and leave NaN out. Dates and times are in ISO form; the types are
    those of the file's schema. ``nulls`` counts NULLs; ``nan`` is True if a value is NaN.
    """

    low: str | None = None
    high: str | None = None
    nulls: int | None = None
    nan: bool = False


@dataclass(frozen=True)
class StagedFile(ScanFile):
    """A data file that waits for its commit, perhaps by another process.

    Example::

        files = s.stage("sales.orders", rows)  # in as many processes as there are parts
        s.commit_staged("sales.orders", files, WriteSpec("append"))
    """

    schema: str = ""
    """Arrow schema of the table's rows (IPC message, base64)."""
    figures: Mapping[str, ColumnFigures] = field(default_factory=dict)
    """Statistics of columns and struct fields, by their quoted names (``"a"."b"``)."""
    stats: str | None = None
    """Statistics in the form of the table's format, if it has them already."""
    table_id: str = ""
    """Table that the rows were staged for; empty if there was none yet."""
    table_version: int = NO_TABLE
    """Version of that table when the rows were staged."""
    judged_by: str = ""
    """Fingerprint of the columns and constraints that the rows were checked against."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**values | {"figures": {name: ColumnFigures(**each) for name, each in values["figures"].items()}})


@frozen
class MemoryShares:
    """Memory of a job in bytes: its limit, DuckDB's share, and delta_rs's share before it spills.

    Example::

        s.execute("sales.orders", WriteSpec("append"), rows).memory
    """

    limit: int
    duckdb: int
    spill: int = 0


@frozen
class Retracted:
    """An older attempt of the work that a commit rolled back.

    Example::

        commit = s.execute("sales.orders", WriteSpec("append"), rows)
        commit.retracted  # None: no attempt came before
    """

    version: int
    """Last version that the older attempt wrote."""
    rows: int | None = None
    """Rows that the older attempt had written; None if unknown."""


@frozen
class Commit:
    """Result of one write. A count is None if the log does not say.

    Example::

        commit = s.execute("sales.orders", MergeSpec(("id",)), rows)
        commit.version, commit.rows_inserted, commit.rows_updated  # (1, 1, 1)
    """

    table: str
    location: str
    version: int
    mode: str
    engine: str
    writer: str
    reason: str = ""
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_deleted: int | None = None
    files_added: int | None = None
    files_removed: int | None = None
    files_marked: int | None = None
    """Files that stay and get a deletion vector. They count as neither added nor removed."""
    files_pruned: int | None = None
    """Files of the previous version that were not opened to look for rows.

    None if the write looks for no rows, or if the engine does not say.
    """
    bytes_added: int | None = None
    seconds: float = 0.0
    """Wall time."""
    memory: MemoryShares | None = None
    peak_bytes: int | None = None
    """Highest resident size of this process during the write, sampled."""
    replayed: bool = False
    retracted: Retracted | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}
        facts = {k: v for k, v in values.items() if k in known}
        if isinstance(facts.get("memory"), dict):
            facts["memory"] = MemoryShares(**facts["memory"])
        if isinstance(facts.get("retracted"), dict):
            facts["retracted"] = Retracted(**facts["retracted"])
        return cls(**facts)

    def _repr_html_(self) -> str:
        from duckrun.display.units import readable_bytes

        facts = {
            "mode": self.mode,
            "engine": self.engine,
            "writer": f"{self.writer}: {self.reason}" if self.reason else self.writer,
            **{f"rows {what}": getattr(self, f"rows_{what}") for what in ("inserted", "updated", "deleted")},
            **{f"files {what}": getattr(self, f"files_{what}") for what in ("added", "removed", "marked", "pruned")},
            "bytes added": None if self.bytes_added is None else readable_bytes(self.bytes_added),
            "seconds": self.seconds,
            "replayed": "yes: this was committed before" if self.replayed else None,
            "retracted": None
            if self.retracted is None
            else f"an earlier attempt, up to version {self.retracted.version}",
        }
        return facts_html(f"{self.table}, version {self.version}", facts)

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)
