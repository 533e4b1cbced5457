"""Spark statements about a table as a whole: count, compact, create and alter.

Spark's own CREATE and ALTER serve tables whose features only Spark knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from duckrun.engines.data_files import file_size
from duckrun.engines.spark.access import SparkAccess
from duckrun.engines.spark.commit import SparkCommit
from duckrun.engines.spark.errors import errors_about
from duckrun.engines.spark.sql import cluster_clause, properties_list, quote, text_literal, to_spark
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration, TableDefinition
from duckrun.formats.format import Format, logs_of
from duckrun.formats.logs import LogTables
from duckrun.run.transaction import Transaction
from duckrun.sql import char_types
from duckrun.values import tables
from duckrun.values.rows import Commit
from duckrun.values.snapshot import Snapshot
from duckrun.values.tables import AlterSpec, Change, ColumnSpec, CreateSpec, OptimizeSpec, PurgeSpec, TableSpec

_TRACKING = "delta.enablerowtracking"
_OWN = "Spark's own statement, since only Spark knows all features of this table"


# -- compaction


def optimize(
    access: SparkAccess, spec: OptimizeSpec | PurgeSpec, snapshot: Snapshot, transaction: Transaction
) -> Commit:
    """Run OPTIMIZE, with ZORDER BY if requested, or REORG … APPLY (PURGE).

    It is one commit that changes no row.

    Raises:
        InvalidConfig: A column to order by is missing.
    """
    where = "" if spec.predicate is None else f" WHERE {to_spark(spec.predicate, spec.dialect)}"
    commit = SparkCommit(access, spec, transaction, snapshot)
    if isinstance(spec, PurgeSpec):
        return commit.alone(f"REORG TABLE {commit.target}{where} APPLY (PURGE)", "Spark's REORG")
    order = f" ZORDER BY ({', '.join(map(quote, spec.z_order_by))})" if spec.z_order_by else ""
    unknown = [c for c in spec.z_order_by if c not in snapshot.schema.names]
    if unknown:
        raise InvalidConfig(f"there is no column {', '.join(unknown)} to order by")
    size = spec.target_file_size or file_size(snapshot.properties)
    settings = (
        {} if size is None else {f"spark.databricks.delta.optimize.{n}FileSize": str(size) for n in ("min", "max")}
    )
    return commit.alone(f"OPTIMIZE {commit.target}{where}{order}", "Spark's OPTIMIZE", settings)


# -- Spark's own statements


def instead(
    access: SparkAccess, spec: TableSpec, snapshot: Snapshot | None, transaction: Transaction
) -> Callable[[], Commit] | None:
    """Return Spark's own statement, if a commit of this library would break the table's features.

    None if it would not.
    """
    form, logs = transaction.lake.format, transaction.lake.format.logs
    if logs is None:
        return None
    if isinstance(spec, CreateSpec) and (snapshot is None or spec.if_exists == "replace"):
        special = logs.special_properties(spec.table_properties)
        computed = any(column.computed for column in spec.columns)
        if special or computed or spec.cluster_by or (snapshot is not None and logs.only_spark(snapshot)):
            commit = SparkCommit(access, spec, _without_app(transaction), snapshot)
            definition = _definition(form, spec, special)
            if snapshot is not None:
                return lambda: _replace(commit, definition)
            return lambda: commit.alone(f"CREATE TABLE {commit.target} {definition}", _OWN)
    if isinstance(spec, AlterSpec) and snapshot is not None:
        needs_spark = any(
            isinstance(c, tables.ClusterBy)
            or (isinstance(c, tables.SetProperties) and logs.special_properties(c.properties))
            or (isinstance(c, tables.SetDefault) and "allowColumnDefaults" in snapshot.writer_features)
            for c in spec.changes
        )
        if needs_spark or logs.only_spark(snapshot):
            return lambda: _alter(SparkCommit(access, spec, _without_app(transaction), snapshot), spec, snapshot)
    return None


def _without_app(transaction: Transaction) -> Transaction:
    if transaction.app is not None:
        raise UnsupportedFeature(
            "Spark's own ALTER and CREATE TABLE, which the features of this table ask for, record no application "
            "transaction; run it without one"
        )
    return transaction


def _replace(commit: SparkCommit, definition: str) -> Commit:
    """Replace a table by one without rows, in one commit."""
    # Spark replaces only a table with a name in its catalog. One at a path keeps its rows, and
    # another schema raises DELTA_CREATE_TABLE_SCHEME_MISMATCH.
    location = f"LOCATION {text_literal(commit.location)}"

    def run() -> None:
        with _name_in_catalog(commit, location) as name, errors_about(commit.what, analysis=InvalidConfig):
            commit.statement(f"CREATE OR REPLACE TABLE {name} {definition} {location}")

    commit.reason = _OWN
    return commit.proved(run)


@contextmanager
def _name_in_catalog(commit: SparkCommit, location: str) -> Iterator[str]:
    """Yield a name of the table in Spark's catalog, which makes no commit.

    Raises:
        UnsupportedFeature: The catalog takes no table at a location.
    """
    name = quote(f"__duckrun_{commit.token}")
    try:
        with errors_about(commit.what, analysis=UnsupportedFeature):
            commit.statement(f"CREATE TABLE {name} USING DELTA {location}")
    except UnsupportedFeature as error:
        raise UnsupportedFeature(
            f"{commit.what}: Spark replaces a table only by a name in its catalog, which refuses one: "
            f"{error.__cause__}",
            remedy="Drop the table and create it, or run this with engine: duckdb",
        ) from error
    try:
        yield name
    finally:
        commit.statement(f"DROP TABLE IF EXISTS {name}")  # of a location: it deletes no file


def _definition(form: Format, spec: CreateSpec, special: Mapping[str, str]) -> str:
    """Return what follows the name of a table in CREATE TABLE."""
    plain = {k: v for k, v in spec.table_properties.items() if k not in special}
    columns = tuple(replace(column, generated=None, identity=None, default=None) for column in spec.columns)
    if any(column.default is not None for column in spec.columns):
        special = {**special, "delta.feature.allowColumnDefaults": "supported"}
    definition = form.created(replace(spec, columns=columns, table_properties=plain, cluster_by=()), None)
    parts = [f"({_columns(form, definition, spec)}) USING DELTA"]
    if definition.partition_columns:
        parts.append(f"PARTITIONED BY ({', '.join(map(quote, definition.partition_columns))})")
    if spec.cluster_by:
        parts.append(cluster_clause(definition.names, spec.cluster_by))
    if definition.description is not None:
        parts.append(f"COMMENT {text_literal(definition.description)}")
    if definition.properties or special:
        parts.append(f"TBLPROPERTIES ({properties_list({**definition.properties, **special})})")
    return " ".join(parts)


def _columns(form: Format, definition: TableDefinition, spec: CreateSpec) -> str:
    return ", ".join(
        f"{quote(f['name'])} "
        f"{form.spelled(f['type'])}{'' if f['nullable'] else ' NOT NULL'}{_computed(column, spec.dialect)}"
        + (f" COMMENT {text_literal(f['metadata']['comment'])}" if "comment" in f["metadata"] else "")
        for f, column in zip(definition.fields, spec.columns, strict=True)
    )


def _computed(column: ColumnSpec, dialect: str) -> str:
    """Return the clause that fills a column which the rows lack.

    Source: Delta protocol, Generated Columns, Identity Columns, Default Columns.
    """
    if column.generated is not None:
        return f" GENERATED ALWAYS AS ({to_spark(column.generated, dialect)})"
    if column.default is not None:
        return f" DEFAULT {to_spark(column.default, dialect)}"
    if column.identity is None:
        return ""
    how = "ALWAYS" if column.identity.always else "BY DEFAULT"
    return f" GENERATED {how} AS IDENTITY (START WITH {column.identity.start} INCREMENT BY {column.identity.step})"


def _alter(commit: SparkCommit, spec: AlterSpec, snapshot: Snapshot) -> Commit:
    transaction, form = commit.transaction, commit.transaction.lake.format
    if len(spec.changes) != 1:
        raise UnsupportedFeature(
            f"table {transaction.ref} has features that only Spark knows, and there each change is a commit of its "
            f"own: give the {len(spec.changes)} changes one by one"
        )
    (change,) = spec.changes
    # The format refuses, with the reason, what no engine can change of these.
    if isinstance(change, tables.InStruct | tables.PartitionBy):
        alteration = form.altered(snapshot, spec)
        if not alteration.changed:
            return transaction.nothing(snapshot, "the table is so already")
        if alteration.rewrites:
            raise UnsupportedFeature(
                "a field gets another type here by writing the table anew, which Spark does to no table with features "
                "that only its own statements keep. Let types widen first (ALTER TABLE … SET TBLPROPERTIES "
                "('delta.enableTypeWidening' = 'true')), or run this with engine: duckdb"
            )
        if isinstance(change, tables.InStruct):
            _refuse_limits(alteration, change.path[0], snapshot)
    if isinstance(change, tables.ChangeType):
        _refuse_partition_type(form, spec, change, snapshot)
    if isinstance(change, tables.SetProperties):
        _refuse_uncounted(change, snapshot)
    change_text = _change(logs_of(form), change, spec.dialect, snapshot.schema.names)
    return commit.alone(f"ALTER TABLE {commit.target} {change_text}", _OWN)


def _refuse_limits(alteration: Alteration, name: str, snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if a changed field changes the limits of its column's strings."""
    # Spark enforces the limits in the metadata of the column, and its ALTER of a field leaves them.
    before, after = (
        each.column(name)["metadata"].get(char_types.TYPE) for each in (alteration.before, alteration.after)
    )
    if before != after:
        raise UnsupportedFeature(
            f"alter on table {snapshot.ref}: Spark's own ALTER of a field loses the limits of the strings in "
            f"column {name} ({after or before})",
            remedy="Run this with engine: duckdb",
        )


def _refuse_partition_type(form: Format, spec: AlterSpec, change: tables.ChangeType, snapshot: Snapshot) -> None:
    """Raise UnsupportedFeature if the new type spells a partition column's values differently.

    An example is a decimal with another scale.
    """
    # Spark's ALTER leaves the old spelling in the log. Delta Kernel, and so deltalake and DuckDB,
    # cannot open the table then.
    names = [name for name in snapshot.partition_columns if name.lower() == change.name.lower()]
    if names and form.altered(snapshot, spec).rewrites:
        raise UnsupportedFeature(
            f"alter on table {snapshot.ref}: Spark leaves the values of partition column {names[0]} as texts of "
            f"its old type in the log, and other readers cannot read them as {change.type}",
            remedy="Run this with engine: duckdb, which writes the table anew",
        )


def _refuse_uncounted(change: tables.SetProperties, snapshot: Snapshot) -> None:
    """Raise InvalidConfig if row tracking is enabled on files without a row count."""
    # Row ids need the count. Spark upgrades the table first and fails only then.
    on = any(name.lower() == _TRACKING and str(value).lower() == "true" for name, value in change.properties.items())
    if on and any(file.rows is None for file in snapshot.files()):
        raise InvalidConfig(
            f"alter on table {snapshot.ref}: it is to track its rows, whose ids need the count of rows of each "
            "file, and files that were written without statistics have none",
            remedy="Run this with engine: duckdb, which opens them to count",
        )


def _change(logs: LogTables, change: Change, dialect: str, columns: Sequence[str], path: tuple[str, ...] = ()) -> str:
    """Return a change as a clause of Spark's ALTER TABLE.

    Args:
        path: Names of the struct whose field changes.
    """
    match change:
        case tables.InStruct(path, inner):
            return _change(logs, inner, dialect, columns, path)
        case tables.ClusterBy(names):
            return cluster_clause(columns, names)
        case tables.AddColumn(column):
            if not column.nullable:
                raise SchemaMismatch(f"column {column.name!r} is to be NOT NULL, and the rows of the table have none")
            kind = logs.spark_type(column.type, dialect, column.name)
            comment = f" COMMENT {text_literal(column.comment)}" if column.comment else ""
            return f"ADD COLUMNS ({quote(*path, column.name)} {kind}{comment})"
        case tables.DropColumn(name):
            return f"DROP COLUMN {quote(*path, name)}"
        case tables.RenameColumn(name, to):
            return f"RENAME COLUMN {quote(*path, name)} TO {quote(to)}"
        case tables.ChangeType(name, kind):
            return f"ALTER COLUMN {quote(*path, name)} TYPE {logs.spark_type(kind, dialect, name)}"
        case tables.SetDefault(name, default):
            done = "DROP DEFAULT" if default is None else f"SET DEFAULT {to_spark(default, dialect)}"
            return f"ALTER COLUMN {quote(name)} {done}"
        case tables.DropNotNull(name):
            return f"ALTER COLUMN {quote(name)} DROP NOT NULL"
        case tables.AddCheck(name, expression):
            return f"ADD CONSTRAINT {quote(name)} CHECK ({to_spark(expression, dialect)})"
        case tables.DropCheck(name, if_exists):
            return f"DROP CONSTRAINT {'IF EXISTS ' if if_exists else ''}{quote(name)}"
        case tables.SetProperties(properties):
            return f"SET TBLPROPERTIES ({properties_list(properties)})"
        case tables.UnsetProperties(names, if_exists):
            return f"UNSET TBLPROPERTIES {'IF EXISTS ' if if_exists else ''}({', '.join(map(text_literal, names))})"
        case tables.SetComment(comment, str(name)):
            return f"ALTER COLUMN {quote(name)} COMMENT {text_literal(comment or '')}"
        case tables.SetComment(comment, None):
            return f"SET TBLPROPERTIES ({properties_list({'comment': comment or ''})})"
        case tables.SetNotNull(name):
            raise UnsupportedFeature(
                "Spark's own ALTER TABLE, which the features of this table ask for, makes no column NOT NULL that is "
                f"there ({name}). Run this with engine: duckdb"
            )
    raise AssertionError(f"no table of this format takes {change!r}")
