"""Strategies: one spec for a model's write, and the SELECT over the staged rows that feeds it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from dbt.adapters.duckrun.model.config import ModelConfig, column_comments
from dbt.adapters.duckrun.model.constraints import Constraints
from dbt.adapters.duckrun.model.expressions import merge_sql, source_columns, target_sql
from dbt.adapters.duckrun.model.merge_config import clauses_of
from dbt.adapters.duckrun.model.values import match, unquoted

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.sql.quoting import quote_identifier, quote_literal, quoted_names
from duckrun.sql.raising import raising
from duckrun.values.choices import SchemaMode
from duckrun.values.frozen import frozen
from duckrun.values.rows import NO_TABLE, DeleteInsertSpec, MergeClause, MergeSpec, RowSpec, TableConstraints, WriteSpec
from duckrun.values.snapshot import Snapshot

OVERWRITE = "overwrite"
CREATE = "create"
"""An overwrite because there was no table: refused if another build has created one since."""


class OutOfSync(SchemaMismatch):
    """Error: the model's columns differ from its table's, and on_schema_change is fail.

    dbt reports it as a compilation error.
    """


_TRANSFORM = re.compile(r"\w+\s*\((?:\s*\d+\s*,)?(.*)\)", re.DOTALL)
_NEEDS_KEY = ("merge", "insert", "delete+insert")


@frozen
class Write:
    """A spec, and the query over the staging relation whose rows it writes."""

    spec: RowSpec
    select: str
    widen: WriteSpec | None = None
    """First write, without rows: adds ``widen_select``'s columns if the spec's mode cannot."""
    widen_select: str = ""


@frozen
class Staged:
    """Staged rows, and the table that they are written to."""

    name: str
    """The staged relation."""
    columns: Sequence[str]
    table: str
    """The name of the table, for errors."""
    target: Snapshot | None = None
    """The present table; None if it is written whole."""
    is_fenced: bool = True
    """True if the engine can fence a write to this store."""

    def whole_write(
        self, config: ModelConfig, strategy: str, columns: Sequence[str], constraints: TableConstraints | None = None
    ) -> WriteSpec:
        """Return the write of the whole table with these columns."""
        return WriteSpec(
            mode="overwrite",
            read_version=NO_TABLE if strategy == CREATE and self.is_fenced else None,
            description=config.description,
            column_comments=column_comments(config.documented, columns),
            constraints=constraints,
            **config.layout,
            **config.writing,
        )


def write_strategy(config: ModelConfig, *, exists_as_table: bool, full_refresh: bool) -> str:
    """Return how an incremental model writes this time: whole, or by its strategy.

    It is written whole if its table does not exist, and by a full refresh. Without a unique_key
    nothing matches, so dbt's merge and delete+insert only insert.

    Raises:
        InvalidConfig: The strategy needs a unique_key.
    """
    if full_refresh:
        return OVERWRITE
    if not exists_as_table:
        return CREATE
    if config.strategy not in _NEEDS_KEY or config.unique_key:
        return config.strategy
    if config.strategy == "insert":
        raise InvalidConfig(f"{config.node}: incremental_strategy insert adds rows with new keys: it needs unique_key.")
    if any(action.side == "not_matched_by_source" for action in config.merge):
        raise InvalidConfig(
            f"{config.node}: merge_clauses concern rows that the source does not have, and without unique_key that is "
            "every row of the table. Set unique_key or merge_on_using_columns."
        )
    return "append"


def plan_write(
    config: ModelConfig, strategy: str, staged: Staged, constraints: TableConstraints | None = None
) -> Write:
    """Return the spec of one write, and the SELECT over the staged rows that feeds it.

    Args:
        config: The model's config.
        strategy: The strategy of this write.
        staged: The rows and their table.
        constraints: The constraints of a table that is written whole.

    Raises:
        InvalidConfig: The config does not fit the rows or the table. Raised before anything is
            written.
        SchemaMismatch: The columns do not fit the table.
    """
    _require_columns(config, staged)
    source, target = staged.columns, staged.target
    if target is None:
        whole = staged.whole_write(config, strategy, source, constraints)
        return Write(whole, selected(source, config.constraints, staged.name))
    refuse_other_partitions(config, staged.table, target)
    columns, schema_mode = columns_to_write(config, staged.table, source, target.schema.names)
    shared: dict[str, Any] = {**config.layout, **config.writing, "schema_mode": schema_mode}
    del shared["table_properties"]  # properties are set only on a new table
    select = selected(columns, config.constraints, staged.name)
    keys = tuple(match(key, columns) or key for key in config.unique_key)
    if strategy == "append":
        return Write(WriteSpec(mode="append", **shared), select)
    if strategy == "safeappend":
        return Write(WriteSpec(mode="safeappend", read_version=target.version, **shared), select)
    if strategy == "merge":
        clauses, on = clauses_of(config.merge, columns, target.schema.names), _merge_on(config)
        mentioned = source_columns([on, *(text for clause in clauses for text in clause.expressions)])
        beside = [c for c in source if c not in columns and match(c, mentioned)]
        if beside:
            clauses = tuple(_limited(clause, columns) for clause in clauses)
            select = selected([*columns, *beside], config.constraints, staged.name)
        compares = config.only_if_changed
        return Write(MergeSpec(keys=keys, clauses=clauses, on=on, only_if_changed=compares, **shared), select)
    if strategy == "insert":
        adds = (MergeClause("not_matched_insert"),)
        return Write(MergeSpec(keys=keys, clauses=adds, on=_merge_on(config), **shared), select)
    if strategy == "microbatch":
        slice_ = _slice(config, source)
        predicate = _all_of([slice_, *_target_predicates(config)])
        return Write(WriteSpec(mode="replace", predicate=predicate, **shared), f"{select} where {slice_}")
    predicate = _all_of(_target_predicates(config))
    if strategy == "delete+insert":
        return Write(DeleteInsertSpec(keys=keys, predicate=predicate, **shared), select)
    assert strategy == "insert_overwrite", "write_strategy gives one of these"
    transforms = [key for key in target.partition_keys if key not in target.partition_columns]
    if predicate is None and transforms:
        raise InvalidConfig(
            f"{config.node}: insert_overwrite replaces the partitions of the new rows, by the values of columns, "
            f"and table {staged.table} is partitioned by {', '.join(transforms)}",
            remedy="Say which rows go by incremental_predicates, or use delete+insert or microbatch",
        )
    if predicate is None and not target.partition_columns:
        return Write(WriteSpec(mode="overwrite", **{**shared, "schema_mode": "fail"}), select)
    return Write(WriteSpec(mode="replace", predicate=predicate, **shared), select)


def rows_that_stay(config: ModelConfig, strategy: str, staged: Staged) -> str | None:
    """Return the SQL condition over ``target`` for rows that a write leaves; None if none stay."""
    if staged.target is None:
        return None
    if strategy in ("append", "safeappend"):
        return "true"
    if strategy == "microbatch":
        return f"({_slice(config, staged.columns)}) is not true"
    columns: Sequence[str] = config.unique_key
    if strategy == "insert_overwrite":
        columns, predicate = staged.target.partition_columns, _all_of(_target_predicates(config))
        if predicate is not None:
            return f"({predicate}) is not true"
        if not columns:
            return None
    same = " and ".join(f"staged.{quote_identifier(c)} = target.{quote_identifier(c)}" for c in columns)
    return f"not exists (select 1 from {quote_identifier(staged.name)} as staged where {same})"


def selected(columns: Sequence[str], constraints: Constraints, staging: str) -> str:
    """Return a SELECT of some staged columns; a row that breaks a constraint fails it."""
    quoted = quoted_names(columns)
    values = dict(quoted)
    for name in constraints.not_null:
        column = match(name, columns)
        if column is not None:
            error = raising(SchemaMismatch, quote_literal(f"NOT NULL constraint failed: {column} has a NULL in it"))
            values[column] = f"case when {values[column]} is null then {error} else {values[column]} end"
    for name, check in constraints.checks:
        error = raising(SchemaMismatch, quote_literal(f"CHECK constraint failed: {name}, {check}"))
        anchor = columns[0]
        values[anchor] = f"case when ({check}) is false then {error} else {values[anchor]} end"
    listed = ", ".join(sql if sql == quoted[name] else f"{sql} as {quoted[name]}" for name, sql in values.items())
    return f"select {listed} from {quote_identifier(staging)}"


def _slice(config: ModelConfig, source: Sequence[str]) -> str:
    assert config.batch is not None, "parse_model gives a microbatch model its batch"
    name = match(config.batch.event_time.strip().strip('"'), source)
    time = config.batch.event_time if name is None else quote_identifier(name)
    return f"{time} >= {quote_literal(config.batch.start)} and {time} < {quote_literal(config.batch.end)}"


def _merge_on(config: ModelConfig) -> str | None:
    return _all_of([merge_sql(config.node, "incremental_predicates", p) for p in config.predicates])


def _target_predicates(config: ModelConfig) -> list[str]:
    return [target_sql(config.node, "incremental_predicates", p) for p in config.predicates]


def _all_of(conditions: Sequence[str]) -> str | None:
    return " and ".join(f"({c})" for c in conditions) or None


def _limited(clause: MergeClause, columns: Sequence[str]) -> MergeClause:
    """Return a clause with the columns that it writes: the source has others for its conditions."""
    if clause.columns is not None or clause.set is not None or clause.kind.endswith("delete"):
        return clause
    return MergeClause(clause.kind, clause.condition, columns=tuple(columns))


def columns_to_write(
    config: ModelConfig, table: str, source: Sequence[str], target: Sequence[str]
) -> tuple[list[str], SchemaMode]:
    """Return the source columns to write and the schema mode, by dbt's on_schema_change."""
    new = [c for c in source if match(c, target) is None]
    missing = [c for c in target if match(c, source) is None]
    if config.on_schema_change == "ignore":
        if missing and not _names_its_columns(config):
            raise SchemaMismatch(
                f"{config.node}: table {table} has columns that the model no longer selects ({', '.join(missing)}). "
                "Set on_schema_change: append_new_columns (they become NULL) or sync_all_columns (they go), or run "
                "with --full-refresh."
            )
        # the table's columns in the table's order; new ones of the source are left out
        return [name for name in (match(c, source) for c in target) if name is not None], "fail"
    if config.on_schema_change == "fail" and (new or missing):
        raise OutOfSync(
            f"{config.node}: The source and target schemas on this incremental model are out of sync: the model and "
            f"table {table} differ, and on_schema_change is fail. "
            f"New in the model: {', '.join(new) or 'none'}. Missing from the model: {', '.join(missing) or 'none'}. "
            "Run with --full-refresh, or set on_schema_change."
        )
    mode: Any = config.on_schema_change  # append_new_columns and sync_all_columns are schema modes
    return list(source), mode


def _names_its_columns(config: ModelConfig) -> bool:
    """Return True for a merge whose clauses name the source of each value."""
    return config.strategy == "merge" and all(
        action.action in ("delete", "do_nothing", "error") or action.mode == "explicit" for action in config.merge
    )


def _require_columns(config: ModelConfig, staged: Staged) -> None:
    source, table, keys = staged.columns, staged.table, staged.target is not None  # a first write matches nothing
    if not source:
        raise InvalidConfig(f"{config.node}: the model for table {table} returns no columns.")
    wanted: dict[str, Iterable[str]] = {
        "unique_key": config.unique_key if keys else (),
        "partition_by": config.partition_by or (),
        "sort_by": config.sort_by,
        "z_order_by": config.z_order_by,
        "merge_update_columns": [name for action in config.merge for name in action.include] if keys else (),
    }
    for key, wanted_names in wanted.items():
        absent = [
            name
            for name in wanted_names
            if match(name, source) is None and (key != "partition_by" or match(_column_of(name), source) is None)
        ]
        if absent:
            raise InvalidConfig(
                f"{config.node}: {key} names {', '.join(absent)}, which the model does not return; table {table} was "
                f"not written. It returns {', '.join(source)}."
            )


def _column_of(key: str) -> str:
    """Return the column of a partition key or its transform: ``month(at)``, ``bucket(8, id)``."""
    transform = _TRANSFORM.fullmatch(key)
    return key if transform is None else unquoted(transform[1])


def refuse_other_partitions(config: ModelConfig, table: str, target: Snapshot) -> None:
    """Refuse a partition_by that differs from the table's. Raises InvalidConfig."""
    present, wanted = target.partition_keys, config.partition_by
    if wanted is not None and not target.has_partitions(wanted):
        raise InvalidConfig(
            f"{config.node}: table {table} is partitioned by {', '.join(present) or 'nothing'}, not by "
            f"{', '.join(wanted)}",
            remedy="Run with --full-refresh to write it anew with these partitions, or set partition_by back",
        )
