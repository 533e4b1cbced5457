"""What is asked of an engine, and what it did: frozen values that know no engine.

A spec is parsed once, at the edge (Dagster metadata, dbt config, a SQL statement), and nobody behind
that edge looks into a dict. All of them survive pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from duckrun.display.notebook import facts_html
from duckrun.errors import InvalidConfig
from duckrun.values.checked import Listed, OneOf, VersionNumber, spec
from duckrun.values.expressions import refuse_no_expression
from duckrun.values.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa

EngineName = Literal["duckdb", "spark"]
WriteMode = Literal["error", "overwrite", "append", "ignore", "replace", "safeappend"]
SchemaMode = Literal["fail", "append_new_columns", "sync_all_columns"]
WriterName = Literal["delta_rs", "staged", "ducklake", "spark", "none"]
WriterChoice = Literal["auto", "staged", "delta_rs", "prefer_delta_rs"]
Dialect = Annotated[str, OneOf("duckdb", "spark")]
MergeMode = Literal["auto", "deletion_vectors", "copy_on_write"]
ClauseKind = Literal[
    "matched_update",
    "matched_delete",
    "not_matched_insert",
    "not_matched_by_source_update",
    "not_matched_by_source_delete",
]

WRITE_MODES: tuple[WriteMode, ...] = ("error", "overwrite", "append", "ignore", "replace", "safeappend")
WRITERS: tuple[WriterChoice, ...] = ("auto", "staged", "delta_rs", "prefer_delta_rs")
BY_DELTA_RS: tuple[WriterChoice, ...] = ("delta_rs", "prefer_delta_rs")
"""Writers by which delta_rs may make data files, and needs memory beside DuckDB's."""
DIALECTS = ("duckdb", "spark")
MERGE_MODES: tuple[MergeMode, ...] = ("auto", "deletion_vectors", "copy_on_write")
SCHEMA_MODES: tuple[SchemaMode, ...] = ("fail", "append_new_columns", "sync_all_columns")
NO_TABLE = -1
"""As ``read_version``: what was computed saw no table, and may only make one."""


@spec
class AppTransaction:
    """The name of a piece of work and the count of commits within it.

    Source: Delta protocol, Transaction Identifiers (the ``txn`` action).

    Example::

        s.execute("sales.orders", WriteSpec("append", app=AppTransaction("load of 2026-01-01")), rows)  # once, however often it is run
    """

    app_id: str
    version: int = 0


@spec
class WorkTransaction(AppTransaction):
    """A commit of a piece of work that may be run again by a newer attempt (``../docs/reliability.md``, Reruns).

    ``app_id`` names the chain of runs and the work. ``version`` counts the commits of the work in that chain: the transaction
    sets it when it begins.
    """

    attempt: str = ""
    """Identity of one execution of the work."""
    started: float = 0.0
    """When the attempt began, in seconds since 1970 by the clock that all attempts of the work share."""
    ordinal: int = 0
    """Which write of its attempt it is, from 0; see nth()."""

    @property
    def plain(self) -> AppTransaction:
        """As the log has it."""
        return AppTransaction(self.app_id, self.version)

    def nth(self, ordinal: int) -> Self:
        """The same for another write of the attempt, whose number is in its ``app_id``."""
        work = self.app_id.removesuffix(f"/{self.ordinal}") if self.ordinal else self.app_id
        return replace(self, app_id=f"{work}/{ordinal}" if ordinal else work, ordinal=ordinal, version=0)


def preferred(writer: WriterChoice) -> WriterChoice:
    """The writer of many writes, as that of one: whatever delta_rs cannot do is not refused then."""
    return "prefer_delta_rs" if writer == "delta_rs" else writer


@spec(kw_only=True)
class Spec:
    """What every spec has: the application transaction of its commit, the version that it was computed from, and the dialect
    of its SQL.

    ``read_version`` fences the commit to that version plus one (NO_TABLE: to a table that is not there yet). With ``existing``
    a table that is not there, or was dropped or renamed since, is TableNotFound, where a write would else make one.
    ``commit_metadata`` are words of the caller's in the commit, which every reader of its log sees as ``userMetadata``: a JSON object.
    ``merge_mode`` says how rows leave a table: ``deletion_vectors`` marks them in their files (and turns the table's feature on),
    ``copy_on_write`` writes those files anew, ``auto`` does as the table's property says. ``writer`` is who makes the data files
    inside the duckdb engine: ``auto`` is ``staged`` (DuckDB), ``delta_rs`` does full writes, appends and merges by key, and
    refuses the rest. ``prefer_delta_rs`` leaves the rest to ``staged``, and the commit's reason says why.
    """

    app: AppTransaction | None = None
    read_version: int | None = None
    dialect: Dialect = "duckdb"
    existing: bool = False
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    merge_mode: MergeMode = "auto"
    writer: WriterChoice = "auto"

    def _refuse_no_expressions(self, **texts: str | None) -> None:
        """Raise InvalidConfig for a field of SQL that is empty, or more than one expression."""
        for name, text in texts.items():
            refuse_no_expression(text, self.dialect, f"{type(self).__name__}: {name}")


@spec
class ReadSpec:
    """What to read of one table.

    ``predicate`` is SQL in ``dialect``; ``columns`` keeps the order given; ``version`` and ``timestamp``
    (ISO 8601, UTC when it names no zone) exclude each other, and neither means the version pinned by the run.

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
    """What a table holds all its rows to, whoever writes them: columns without NULL, and conditions (SQL in the dialect of
    the spec) by their names.

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

    ``within`` (SQL in ``dialect``) is what every row of the source, as the table stores it, must satisfy, in any mode; one
    that does not fails the write. ``predicate`` is what mode ``replace`` replaces: every row of the table for which it is true goes, and
    every row of the source must satisfy it. ``replace`` with no predicate replaces exactly the
    partitions that the source holds rows of. An overwrite with ``redefine`` makes another table in the place of one: its
    properties, constraints and description go too.
    ``constraints`` are kept in the table that this write makes or overwrites, in the place of those that an earlier write
    gave it; with None, and for all that ALTER TABLE gave it, the table has the constraints that it had.

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


@spec
class MergeClause:
    """One WHEN of a merge.

    ``condition`` and the values of ``set`` are SQL over the aliases ``source`` and ``target``. ``set`` maps a
    target column to an expression; None means every column from the source. ``columns`` limits "every column".

    Example::

        newer = MergeClause("matched_update", condition="source.price > target.price", set={"price": "source.price"})
        s.execute("sales.orders", MergeSpec(("id",), (newer,)), rows)
    """

    kind: ClauseKind
    condition: str | None = None
    columns: Listed[str] | None = None
    set: Mapping[str, str] | None = None

    @property
    def expressions(self) -> tuple[str, ...]:
        """The condition and the values that are set."""
        return (*(() if self.condition is None else (self.condition,)), *(self.set or {}).values())

    def __post_init__(self) -> None:
        if self.columns is not None and self.set is not None:
            raise InvalidConfig("A merge clause names columns or set expressions, not both.")
        if self.kind.endswith("delete") and (self.columns is not None or self.set is not None):
            raise InvalidConfig(f"The merge clause {self.kind} takes a condition only.")


UPSERT = (MergeClause("matched_update"), MergeClause("not_matched_insert"))


@spec
class MergeSpec(Layout, Spec):
    """A merge by key equality: the first clause of a row's kind whose condition holds decides.

    NULL keys never match. ``on`` adds a condition over ``source`` and ``target`` to the equality of ``keys``. ``within``
    (over bare column names) bounds both sides: the merge is one into a table of nothing but those rows of the target for
    which it is true, and a row that it is not true for fails the merge, be it one of the source or one that a clause makes.
    ``compared`` has the keys that are equal to more than the column of their name, as SQL over ``target``, such as a field of
    a struct: their columns of the source are no columns of the table.
    A key of another type is compared as the table's; expressions see the source's own values. With ``casts``, columns that
    are no keys are cast as an INSERT of SQL casts them; otherwise a value that the table's type cannot hold fails the merge.
    The layout is that of the table, if this merge has to create it.

    Example::

        s.execute("sales.orders", MergeSpec(("id",)), rows)  # updates the rows with a key of the source, inserts the others
    """

    keys: Listed[str]
    clauses: Listed[MergeClause] = UPSERT
    on: str | None = None
    within: str | None = None
    schema_mode: SchemaMode = "fail"
    compared: Mapping[str, str] = field(default_factory=dict)
    casts: bool = False

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

    def takes(self, column: str) -> bool:
        """True if some clause writes the table's column of this name: a column of the source that none takes never becomes one."""
        if column in self.compared:
            return False
        whole = any(c.set is None and c.columns is None and not c.kind.endswith("delete") for c in self.clauses)
        named = {name.lower() for c in self.clauses for name in (*(c.columns or ()), *(c.set or ()))}
        return whole or column.lower() in named


@spec
class DeleteInsertSpec(Layout, Spec):
    """Delete the rows whose key is in the source, then insert the source, in one commit. Keys may repeat.

    ``predicate`` limits what is deleted; ``within`` does too, and a row of the source for which it is not true fails the
    write. Both are over bare column names.

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


@spec
class DeleteSpec(Spec):
    """Delete the rows for which ``predicate`` is true; None deletes all.

    ``predicate`` is over the table's columns, as they are or as ``target.column``. With a source of rows, it is over the
    aliases ``target`` and ``source``, and a row goes if it is true with any row of the source.

    Example::

        s.execute("sales.orders", DeleteSpec("price < 3"))
    """

    predicate: str | None = None

    mode = "delete"

    def __post_init__(self) -> None:
        self._refuse_no_expressions(predicate=self.predicate)


@spec
class UpdateSpec(Spec):
    """Set columns to expressions over the table's own columns, where ``predicate`` is true.

    Columns are named as they are or as ``target.column``. With a source of rows, all is over the aliases ``target`` and
    ``source``, and a row for which the predicate is true with several rows of the source is an error
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


RowSpec = WriteSpec | MergeSpec | DeleteInsertSpec | DeleteSpec | UpdateSpec


@dataclass
class Returning:
    """What RETURNING asks for: ``columns`` is a SELECT list in the engine's SQL over the rows that a statement writes, or deletes,
    under ``alias``. The engine puts them in ``rows`` before it commits: of the last attempt, which is the one that was committed.
    """

    columns: str
    alias: str
    rows: pa.Table | None = None


@dataclass(frozen=True)
class ScanFile:
    """One data file of a snapshot.

    ``path`` is not URL-encoded: relative to the table's location, or absolute where the log has it so (a shallow clone);
    ``spelled`` is the same letter by letter as the log has it, by which alone a commit may name the file, None for one that
    is not in a log yet. ``partition_values`` are strings as a log has them (None is NULL): two that differ may be one value.
    ``rows`` is their count, None where it is not known; ``deletion_vector`` whether some of them are deleted, ``deleted_rows``
    how many.
    Source: Delta protocol, Add File and Remove File.

    Example::

        [file.path for file in s.table("sales.orders").snapshot().files()]
    """

    path: str
    size: int
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    rows: int | None = None
    deletion_vector: bool = False
    deleted_rows: int = 0
    spelled: str | None = None

    @property
    def live_rows(self) -> int | None:
        """The rows that a reader sees; None where they are not known."""
        return None if self.rows is None else self.rows - self.deleted_rows

    def to_json(self) -> str:
        return json.dumps(asdict(self))  # unsorted: partitions have an order

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


def counted_rows(files: Iterable[ScanFile]) -> int | None:
    """The rows that readers see in data files; None where those of one are not known."""
    counts = [file.live_rows for file in files]
    return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(frozen=True)
class ColumnFigures:
    """What a writer found in one column of a file: the least and the greatest value as text, NaN left out (dates and times in
    ISO form; their types are those of the file's schema), how many are NULL, and whether one is NaN. None is not known.
    """

    low: str | None = None
    high: str | None = None
    nulls: int | None = None
    nan: bool = False


@dataclass(frozen=True)
class StagedFile(ScanFile):
    """A data file that is written and waits for its commit, perhaps by another process.

    ``schema`` is the Arrow schema of the table's rows (IPC message, base64), ``figures`` what is known of columns, and of fields
    inside of structs, by their quoted names (``"a"."b"``); ``stats`` are the statistics that the table's format has of the file already.

    Example::

        files = s.stage("sales.orders", rows)  # in as many processes as there are parts
        s.commit_staged("sales.orders", files, WriteSpec("append"))
    """

    schema: str = ""
    figures: Mapping[str, ColumnFigures] = field(default_factory=dict)
    stats: str | None = None
    table_id: str = ""
    """The table that the rows were staged for; empty where there was none yet."""
    table_version: int = NO_TABLE
    """The version of that table at which they were staged."""
    judged_by: str = ""
    """Fingerprint of the columns and constraints that the rows were checked against."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(**values | {"figures": {name: ColumnFigures(**each) for name, each in values["figures"].items()}})


@dataclass(frozen=True)
class MemoryShares:
    """Bytes that a job was given: DuckDB's limit, and what delta_rs may hold before it spills.

    Example::

        s.execute("sales.orders", WriteSpec("append"), rows).memory
    """

    limit: int
    duckdb: int
    spill: int = 0


@dataclass(frozen=True)
class Retracted:
    """What a commit took back of an older attempt of its work: up to which version, and how many rows that attempt had written.

    Example::

        retracted = s.execute("sales.orders", WriteSpec("append"), rows).retracted  # None: no attempt came before
    """

    version: int
    rows: int | None = None


@dataclass(frozen=True)
class Commit:
    """What one write did. Rows, files and bytes are counts; ``seconds`` is wall time; ``peak_bytes`` is the
    highest resident size of this process during the write, sampled. A count is None where the log does not say. Files that are
    marked stay, with a deletion vector: they count as neither added nor removed. Those pruned are the files of the version before
    that were not opened to look for rows; None where a write looks for none, or the engine does not say.

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
    files_pruned: int | None = None
    bytes_added: int | None = None
    seconds: float = 0.0
    memory: MemoryShares | None = None
    peak_bytes: int | None = None
    replayed: bool = False
    retracted: Retracted | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        known = {f.name for f in fields(cls)}
        kept = {k: v for k, v in values.items() if k in known}
        if isinstance(kept.get("memory"), dict):
            kept["memory"] = MemoryShares(**kept["memory"])
        if isinstance(kept.get("retracted"), dict):
            kept["retracted"] = Retracted(**kept["retracted"])
        return cls(**kept)

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
