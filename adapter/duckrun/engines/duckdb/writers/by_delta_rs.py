"""Rules for writer delta_rs: when it may append or merge, and the reason if it may not.

An upsert of whole rows by key takes the source unchanged. For any other merge, DuckDB computes the
changed rows, and delta_rs updates, deletes and inserts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import duckdb

from duckrun.engines.duckdb.rows.fitted import types_of
from duckrun.engines.duckdb.rows.source import Rows
from duckrun.engines.duckdb.rows.target import definition_of, written_anew
from duckrun.formats.logs import LogTables
from duckrun.libraries import pa
from duckrun.sql.char_types import is_padded
from duckrun.sql.on_demand import alike, dialects, sql_names
from duckrun.sql.plain_names import SIDES
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.columns import fields_with, has_required_parts
from duckrun.values.data_files import respelled
from duckrun.values.frozen import frozen
from duckrun.values.names import writable_by_delta_rs
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, MergeClause, MergeSpec, RowSpec, UpdateSpec
from duckrun.values.snapshot import Snapshot, TableRef
from duckrun.values.tables import order_of

_LITERALS = ("VARCHAR", "BIGINT", "INTEGER", "SMALLINT", "TINYINT")
_MOST_VALUES = 100
"""Most values of a partition column that a merge condition lists."""
_MISSPELT = "delta_rs spells decimals and floating numbers among partition values so that not every reader finds them"
_RESPELLED = "the log spells paths otherwise than delta_rs, whose removes would leave those files in the table"


def why_misspelt(schema: pa.Schema, partition_by: Sequence[str]) -> str | None:
    """Reason why delta_rs would write values of a partition column wrongly into the log.

    It writes -1.10 as -1.-10, and 1e300 with all of its digits.
    """
    kinds = [schema.field(column).type for column in partition_by]
    is_odd = any(pa.types.is_decimal(kind) or pa.types.is_floating(kind) for kind in kinds)
    return _MISSPELT if is_odd else None


def why_not_write(logs: LogTables, ref: TableRef, rows: Rows, snapshot: Snapshot | None, whole: bool) -> str | None:
    """Reason why delta_rs cannot write or append rows of a table; None if it can.

    ``whole``: the write replaces all rows.
    """
    if (reason := _why_not_table(logs, ref, snapshot)) is not None:
        return reason
    if any("VARIANT" in str(kind) for kind in rows.types.values()):
        return "it writes no VARIANT"
    if snapshot is not None and has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not check"
    if snapshot is not None and whole and respelled(snapshot.files()):
        return _RESPELLED
    if not writable_by_delta_rs(ref.location):
        return "it writes no rows below a folder with one of [ ] ^ |"
    return None


def why_not_mode(spec: RowSpec) -> str | None:
    """Reason why delta_rs does not support this mode on an existing table; None if it does."""
    if isinstance(spec, DeleteSpec | UpdateSpec | DeleteInsertSpec) or spec.mode == "replace":
        return f"it does not {spec.mode} rows" if spec.mode != "delete+insert" else "it does no delete+insert"
    return None


def why_not_merge(logs: LogTables, spec: MergeSpec, snapshot: Snapshot) -> str | None:
    """Reason why delta_rs cannot merge the rows, or DuckDB's changes of them; None if it can."""
    if (reason := _why_not_table(logs, snapshot.ref, snapshot)) is not None:
        return reason
    if written_anew(snapshot):
        return "columns of the table go or change their type, so all of its rows are written"
    if snapshot.variants or snapshot.variants_inside:
        return "it writes no VARIANT"
    if has_required_parts(snapshot.schema):
        return "parts of columns are NOT NULL, which it does not keep"
    if order_of(snapshot):
        return "the table has a sort order, in which delta_rs does not write"
    if (reason := _why_not_compared(matched_by(spec, snapshot), snapshot)) is not None:
        return reason
    if fields_with(snapshot.schema, _is_instant):
        # Spark writes instants as INT96. delta_rs reads them as 64-bit nanoseconds, which changes
        # years before 1678 and after 2261, and a merge would store the changed values.
        return "delta_rs would change instants of far years in files of Spark"
    files = snapshot.files()
    if spec.merge_mode == "deletion_vectors" or any(f.deletion_vector for f in files):
        return "it writes no deletion vectors"
    return _RESPELLED if respelled(files) else None


def _why_not_table(logs: LogTables, ref: TableRef, snapshot: Snapshot | None) -> str | None:
    """Reason why delta_rs writes no rows to a table, whatever they are; None if it does."""
    if logs.files_folder(ref):
        return "it writes to the log of the table's folder, and a branch has its own"
    if snapshot is None:
        return None
    reason = logs.only_own(snapshot) or _why_not_checked(snapshot)
    return reason or why_misspelt(snapshot.schema, snapshot.partition_columns)


def _why_not_checked(snapshot: Snapshot) -> str | None:
    """Reason why delta_rs's own constraint check may refuse valid rows; None if it does not."""
    for name, condition in snapshot.checks.items():
        if not alike.is_same_in_all(dialects.tree_in(condition, "spark")):
            return f"it may take the constraint {name} ({condition}) for another than Spark does"
    return None


def matched_by(spec: MergeSpec, snapshot: Snapshot) -> list[str]:
    """Columns that decide which rows a merge changes.

    Rows with equal values in them match the same source row.
    """
    conditions = [text for text in (spec.on, spec.within, *spec.compared.values()) if text is not None]
    named = {
        n.lower()
        for text in conditions
        for side, n in sql_names.columns_of(text, spec.dialect, SIDES)
        if side != "source"
    }
    keys = [key for key in spec.keys if key not in spec.compared]
    return [*keys, *(name for name in snapshot.schema.names if name.lower() in named and name not in keys)]


def all_compared(columns: Sequence[str], snapshot: Snapshot) -> list[str]:
    """The columns, and all others that delta_rs compares as DuckDB does.

    They distinguish rows that have the same key.
    """
    others = (name for name in snapshot.schema.names if name not in columns)
    return [*columns, *(name for name in others if _why_not_compared([name], snapshot) is None)]


def _why_not_compared(columns: Sequence[str], snapshot: Snapshot) -> str | None:
    """Reason why delta_rs compares values of these columns otherwise than DuckDB; None if not."""
    kinds = types_of(snapshot)
    if any(kinds[name].id in ("float", "double") for name in columns):
        return "a key is a floating number, and delta_rs compares NaN and -0.0 in its own way"
    if any(kinds[name].id in ("list", "array", "struct", "map", "blob") for name in columns):
        return "a key is nested or binary"
    if any(is_padded(snapshot.schema.field(name)) for name in columns):
        return "a key is CHAR, which delta_rs compares without its padding"
    return None


def takes_source(spec: MergeSpec, clauses: Sequence[MergeClause], snapshot: Snapshot, rows: Rows) -> bool:
    """True if delta_rs can merge the source rows unchanged: each updates a row or is inserted."""
    # Every clause of such a merge takes the columns that it names, or all that the source has.
    takes_all = all({*(c.columns or rows.types)} >= {*snapshot.schema.names} for c in spec.clauses)
    return (
        [c.kind for c in clauses]
        in (["matched_update", "not_matched_insert"], ["not_matched_insert", "matched_update"])
        and all(c.condition is None and c.set is None for c in clauses)
        and definition_of(snapshot) is None
        and spec.on is None
        and not spec.only_if_changed
        and not spec.compared
        and _within_by_keys(spec)
        and (not _is_constrained(snapshot) or takes_all)
    )


def _is_instant(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _within_by_keys(spec: MergeSpec) -> bool:
    """True if a row with the keys of a source row lies within the written part, and stays there."""
    if spec.within is None:
        return True
    used = {name.lower() for _, name in sql_names.columns_of(spec.within, spec.dialect, SIDES)}
    return used <= {key.lower() for key in spec.keys} and all(
        c.kind.endswith("delete") or (c.set is None and used <= {n.lower() for n in c.columns or used})
        for c in spec.clauses
    )


def _is_constrained(snapshot: Snapshot) -> bool:
    """True if the table does not accept every row of its types."""
    # A partition value '' is read as NULL.
    texts = (snapshot.schema.field(c).type for c in snapshot.partition_columns)
    return (
        any(not field.nullable for field in snapshot.schema)
        or bool(snapshot.checks)
        or any(pa.types.is_string(kind) or pa.types.is_large_string(kind) for kind in texts)
    )


@frozen
class Changes:
    """The changes of a merge as DuckDB has computed them, in a temporary table.

    It has each row of the table that matches the source, and each row to insert. It gives the
    clause that applies, and the new values.
    """

    table: str
    """Quoted name of the temporary table."""
    file: str
    """Quoted name of the column with the file of a row."""
    row: str
    """Quoted name of the column that is NULL for a row to insert."""
    action: str
    """Quoted name of the column with the number of the clause; NULL if none applies."""
    deleting: str
    """Numbers of the DELETE clauses, as a list in SQL."""
    before: Mapping[str, str]
    """Column that identifies rows -> quoted name of the column with its old value.

    The old value is NULL in new rows.
    """

    @property
    def present(self) -> str:
        return f"FROM {self.table} WHERE {self.row} IS NOT NULL"

    @property
    def repeated(self) -> str:
        """SELECT of the identifying values that several rows of the table share."""
        names = ", ".join(self.before.values())
        return f"SELECT {names} {self.present} GROUP BY {names} HAVING count(*) > 1 AND count({self.action}) > 0"


def why_not_changes(changes: Changes, columns: Sequence[str], cursor: duckdb.DuckDBPyConnection) -> str | None:
    """Reason why delta_rs cannot identify the changed rows; None if it can.

    ``changes`` must still contain the matched rows that no clause changes.
    """
    if cursor.execute(f"{changes.repeated} LIMIT 1").fetchone() is None:
        return None
    after = ", ".join([changes.action, *map(quote_identifier, columns)])
    several = f"{changes.repeated} AND count(DISTINCT row({after})) > 1 LIMIT 1"
    if cursor.execute(several).fetchone() is None:
        return None
    return (
        f"rows of the table that have the same {', '.join(changes.before)} become different ones, and it tells rows "
        "by these alone"
    )


def on_changes(changes: Changes, kind: str, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> str:
    """Merge condition in delta_rs's SQL that selects the changed rows."""
    # NULL counts as an old value, and no row to insert may match. The condition names the
    # partitions of the changed rows, so that delta_rs reads no file of another one.
    nulls = ", ".join(f"count(*) FILTER (WHERE {name} IS NULL)" for name in changes.before.values())
    there, *missing = cursor.execute(f"SELECT count(*), {nulls} {changes.present}").fetchall()[0]
    if not there:
        return "1 = 2"  # so delta_rs reads no file
    tests = [
        f"(target.{quote_identifier(column)} {'IS NOT DISTINCT FROM' if count else '='} source.{name})"
        for (column, name), count in zip(changes.before.items(), missing, strict=True)
    ]
    if all(missing):
        tests.insert(0, f"source.{kind} <> 'insert'")
    return " AND ".join([*tests, *_within_partitions(changes, snapshot, cursor)])


def _within_partitions(changes: Changes, snapshot: Snapshot, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Conditions on the partition columns of the files with changed rows.

    Only types whose literals equal the log's text are used.
    """
    kinds = types_of(snapshot)
    columns = [name for name in snapshot.partition_columns if str(kinds[name]) in _LITERALS]
    if not columns:
        return
    paths = [path for (path,) in cursor.execute(f"SELECT DISTINCT {changes.file} {changes.present}").fetchall()]
    files = snapshot.files().at(paths).values()
    for name in columns:
        values = {file.partition_values[name] for file in files}
        if len(values) > _MOST_VALUES:
            continue
        column, text = f"target.{quote_identifier(name)}", str(kinds[name]) == "VARCHAR"
        known = sorted(value for value in values if value)  # the log may have '' for NULL
        tests = [f"{column} IN ({', '.join(map(quote_literal, known) if text else known)})"] if known else []
        yield f"({' OR '.join([*tests, *([f'{column} IS NULL'] if len(known) < len(values) else [])])})"
