"""Asset checks of a table.

Columns and age come from the log; the rows are checked by the engine in one query.
"""

# No "from __future__ import annotations" here: Dagster must see the class of a check's context, not
# its name.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckExecutionContext,
    AssetCheckKey,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    MetadataValue,
    TableSchema,
    multi_asset_check,
)

from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.sql.quoting import quote_identifier, quoted_names, select_list
from duckrun.values.choices import EngineName
from duckrun.values.snapshot import Snapshot
from duckrun.values.type_names import type_name
from duckrun_dagster import metadata as meta
from duckrun_dagster.config import parse_table
from duckrun_dagster.resources import DuckrunResource

if TYPE_CHECKING:
    from duckrun.session import Session

SCHEMA, ROWS, FRESH = "schema_is_unchanged", "row_count_is_within_bounds", "is_fresh"


@dataclass(frozen=True)
class TableChecks:
    """The checks of one table."""

    key: AssetKey
    schema_change: bool = True
    min_rows: int | None = None
    max_rows: int | None = None
    not_null: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    """Keys, each of one column or several; NULL is no duplicate."""
    max_age: timedelta | None = None
    """Greatest age of the last commit that changed rows, not of the last run."""

    def names(self) -> dict[str, str]:
        """Return the description of each check, by its name."""
        descriptions: dict[str, str] = {}
        if self.schema_change:
            descriptions[SCHEMA] = "The columns are those of the last look."
        if self.min_rows is not None or self.max_rows is not None:
            low, high = self.min_rows or 0, "any number of" if self.max_rows is None else f"{self.max_rows:,}"
            descriptions[ROWS] = f"The table has {low:,} to {high} rows."
        descriptions |= {_name("not_null", (column,)): f"{column} is never NULL." for column in self.not_null}
        descriptions |= {_name("unique", key): f"No two rows have the same {', '.join(key)}." for key in self.unique}
        if self.max_age is not None:
            descriptions[FRESH] = f"Its rows changed within {self.max_age}."
        return descriptions


def table_checks(
    asset: AssetKey | str | Sequence[str],
    *,
    schema_change: bool = True,
    min_rows: int | None = None,
    max_rows: int | None = None,
    not_null: Sequence[str] = (),
    unique: Sequence[str | Sequence[str]] = (),
    max_age: timedelta | None = None,
    blocking: bool = False,
    engine: EngineName = "duckdb",
    metadata: dict[str, Any] | None = None,
    resource_key: str = "duckrun",
) -> AssetChecksDefinition:
    """Return checks of the table of an asset, all in one step.

    A changed schema and an old table are warnings, the rest are errors. With ``blocking``, an error
    stops the downstream assets of the run.

    Args:
        asset: The key of the asset.
        schema_change: Check that the columns are those of the last check.
        min_rows: Least number of rows.
        max_rows: Greatest number of rows.
        not_null: Columns without NULL.
        unique: Keys without duplicates, each one column or several.
        max_age: Greatest age of the last commit that changed rows.
        blocking: Let an error stop the downstream assets.
        engine: The engine that reads the rows.
        metadata: The asset's own metadata, if it names the table.
        resource_key: The key of the DuckrunResource.

    Raises:
        InvalidConfig: Nothing is checked.

    Example::

        table_checks(
            ["sales", "orders"],
            min_rows=1,
            not_null=["id"],
            unique=["id", ["day", "till"]],
            max_age=timedelta(days=1),
        )
    """
    key = AssetKey.from_coercible(asset)
    keys = tuple((each,) if isinstance(each, str) else tuple(each) for each in unique)
    checks = TableChecks(key, schema_change, min_rows, max_rows, tuple(not_null), keys, max_age)
    names = checks.names()
    if not names:
        raise InvalidConfig(
            f"table_checks of {key.to_user_string()} checks nothing; give it a bound, a column or an age."
        )
    soft = (SCHEMA, FRESH)
    specs = [
        AssetCheckSpec(name, asset=key, description=text, blocking=blocking and name not in soft)
        for name, text in names.items()
    ]

    @multi_asset_check(
        name=f"{'__'.join(key.path)}__table_checks",
        specs=specs,
        can_subset=True,
        required_resource_keys={resource_key},
    )
    def check(context: AssetCheckExecutionContext) -> Iterator[AssetCheckResult]:
        resource: DuckrunResource = getattr(context.resources, resource_key)
        spark = getattr(context.resources, "spark", None) if engine == "spark" else None
        stored = resource.stored(parse_table(key, metadata or {}, default_schema=resource.default_schema))
        session = resource.session(engine, spark=spark)
        selected = {each.name for each in context.selected_asset_check_keys}
        snapshot = session.snapshot(stored.ref)  # all checks look at one version
        if SCHEMA in selected:
            yield _schema(checks, snapshot, context)
        for name, rows in _counted(checks, session, snapshot, selected).items():
            within = (min_rows or 0) <= rows and (max_rows is None or rows <= max_rows)
            yield _result(checks, name, within if name == ROWS else rows == 0, snapshot, {"rows": rows})
        if FRESH in selected:
            yield _fresh(checks, stored.lake, snapshot)

    return check


def _counted(checks: TableChecks, session: "Session", snapshot: Snapshot, selected: set[str]) -> dict[str, int]:
    """Return the count of each selected check, by its name.

    The counts are rows, NULLs and rows with a duplicate key.
    """
    columns = set(checks.not_null) | {column for key in checks.unique for column in key}
    missing = sorted(columns - set(snapshot.schema.names))
    if missing:
        raise InvalidConfig(
            f"Checks of {checks.key.to_user_string()}: table {snapshot.ref} has no column {', '.join(missing)}; it has "
            f"{', '.join(snapshot.schema.names)}."
        )
    ref = snapshot.ref
    table = quote_identifier(*(part for part in (ref.catalog, ref.schema, ref.name) if part))
    counts = {ROWS: "count(*)"}
    for column in checks.not_null:
        null = f"CASE WHEN {quote_identifier(column)} IS NULL THEN 1 ELSE 0 END"
        counts[_name("not_null", (column,))] = f"coalesce(sum({null}), 0)"
    counts_by_check: dict[str, int] = {}
    if chosen := select_list({name: sql for name, sql in counts.items() if name in selected}):
        row = session.sql(f"SELECT {chosen} FROM {table}").collect()[0]
        counts_by_check = {name: int(value) for name, value in row.items()}
    for key in checks.unique:
        if (name := _name("unique", key)) in selected:
            quoted = quoted_names(key).values()
            known = " AND ".join(f"{column} IS NOT NULL" for column in quoted)
            repeated = (
                f"SELECT count(*) AS n FROM {table} WHERE {known} GROUP BY {', '.join(quoted)} HAVING count(*) > 1"
            )
            row = session.sql(f"SELECT coalesce(sum(n), 0) AS n FROM ({repeated}) AS repeated").collect()[0]
            counts_by_check[name] = int(row["n"])
    return counts_by_check


def _schema(checks: TableChecks, snapshot: Snapshot, context: AssetCheckExecutionContext) -> AssetCheckResult:
    """Compare the columns with those of the last check."""
    # The last check wrote its columns into its own result, so no old version needs to be readable.
    now = {field.name: type_name(field.type) for field in snapshot.schema}
    before = _last_columns(AssetCheckKey(checks.key, SCHEMA), context)
    changes: dict[str, Any] = {}
    if before is not None:
        changes = {
            "added": sorted(set(now) - set(before)),
            "removed": sorted(set(before) - set(now)),
            "changed": sorted(f"{c}: {before[c]} -> {now[c]}" for c in set(now) & set(before) if now[c] != before[c]),
        }
    metadata = {
        "dagster/column_schema": meta.column_schema(snapshot),
        **{what: MetadataValue.json(names) for what, names in changes.items() if names},
    }
    return _result(checks, SCHEMA, not any(changes.values()), snapshot, metadata)


def _last_columns(key: AssetCheckKey, context: AssetCheckExecutionContext) -> dict[str, str] | None:
    for each in context.instance.event_log_storage.get_asset_check_execution_history(key, limit=25):
        event = each.event.dagster_event if each.event else None
        data = event.event_specific_data if event is not None else None
        schema = getattr(data, "metadata", {}).get("dagster/column_schema")
        if schema is not None and isinstance(schema.value, TableSchema):
            return {column.name: column.type for column in schema.value.columns}
    return None


def _fresh(checks: TableChecks, lake: Lake, snapshot: Snapshot) -> AssetCheckResult:
    """Compare the age of the last change, by the clock of its writer, with the limit."""
    assert checks.max_age is not None
    commits = lake.format.records_back(snapshot.ref, snapshot.version)
    changed = next((each for each in commits if each.changes_rows), None)
    if changed is None:
        return _result(checks, FRESH, False, snapshot, {"last_change": "before the oldest commit in the log"})
    if changed.timestamp is None:
        return _result(checks, FRESH, False, snapshot, {"last_change": f"version {changed.version}, which has no time"})
    moment = datetime.fromtimestamp(changed.timestamp / 1000, UTC)
    age = datetime.now(UTC) - moment
    metadata = {"last_change": MetadataValue.timestamp(moment), "age_seconds": round(age.total_seconds(), 1)}
    return _result(checks, FRESH, age <= checks.max_age, snapshot, metadata)


def _result(
    checks: TableChecks, name: str, passed: bool, snapshot: Snapshot, metadata: dict[str, Any]
) -> AssetCheckResult:
    severity = AssetCheckSeverity.WARN if name in (SCHEMA, FRESH) else AssetCheckSeverity.ERROR
    return AssetCheckResult(
        passed=bool(passed),
        asset_key=checks.key,
        check_name=name,
        severity=severity,
        metadata={"version": snapshot.version, **metadata},
    )


def _name(kind: str, columns: Sequence[str]) -> str:
    """Return a name of letters, digits and underscores, as Dagster requires."""
    # Other characters become their code point.
    plain = "__".join(
        "".join(c if c.isalnum() and c.isascii() or c == "_" else f"x{ord(c):x}" for c in col) for col in columns
    )
    return f"{kind}_{plain}"
