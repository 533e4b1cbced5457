"""dbt model config -> one frozen value -> the spec of one write. Nobody behind this module looks into a config."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from sqlglot import exp

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.specs import (
    AppTransaction,
    DeleteInsertSpec,
    MergeClause,
    MergeSpec,
    SchemaMode,
    Spec,
    WriteMode,
    WriteSpec,
)
from duckrun.sql import quote_identifier

OVERWRITE = "overwrite"
STRATEGIES = ("append", "merge", "delete+insert")
STRATEGIES_TO_COME = ("insert", "insert_overwrite", "microbatch", "safeappend")
# dbt-duckdb's own default, so that a project that changes its profile keeps its meaning.
DEFAULT_STRATEGY = "delete+insert"
ON_SCHEMA_CHANGE = ("ignore", "fail", "append_new_columns", "sync_all_columns")
ENGINES = ("duckdb", "spark")
DIALECTS = ("duckdb", "spark")
MERGE_CONFIG_TO_COME = (
    "merge_clauses",
    "merge_on_using_columns",
    "merge_update_set_expressions",
    "merge_returning_columns",
)
# The names by which dbt's and dbt-duckdb's predicates call the two sides of a merge.
_TARGET_ALIASES = ("dbt_internal_dest", "dbt_internal_target", "target")
_SOURCE_ALIASES = ("dbt_internal_source", "source")


@dataclass(frozen=True)
class ModelConfig:
    """What one node asks of the lake. Its name is in every error."""

    node: str
    strategy: str = DEFAULT_STRATEGY
    unique_key: tuple[str, ...] = ()
    update_columns: tuple[str, ...] | None = None
    exclude_columns: tuple[str, ...] = ()
    update_condition: str | None = None
    insert_condition: str | None = None
    predicates: tuple[str, ...] = ()
    on_schema_change: str = "ignore"
    partition_by: tuple[str, ...] | None = None
    sort_by: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)
    target_file_size: int | None = None
    location: str | None = None
    description: str | None = None
    column_comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Write:
    """A spec, and the query over the staging relation whose rows it writes."""

    spec: Spec
    select: str
    widen: WriteSpec | None = (
        None  # goes first, with none of the rows: adds the columns that the spec's mode cannot add
    )


def parse_model(model: Mapping[str, Any]) -> ModelConfig:
    """The config of a dbt node (the dictionary that macros know as ``model``).

    Raises InvalidConfig, with the known ones, for a value that is not known, and UnsupportedFeature for what is to come.
    """
    node = str(model.get("unique_id", "model"))
    config: Mapping[str, Any] = model.get("config") or {}

    _one_of(node, "dialect", config.get("dialect") or "duckdb", DIALECTS)
    engine = _one_of(node, "engine", config.get("engine") or "duckdb", ENGINES)
    if engine == "spark" or config.get("dialect") == "spark":
        raise UnsupportedFeature(
            f"{node}: engine: spark is not supported for dbt models by this version. Remove engine and dialect from "
            "its config to run it on DuckDB, or write it as a Dagster asset with engine='spark'."
        )
    for key in MERGE_CONFIG_TO_COME:
        if config.get(key):
            raise UnsupportedFeature(
                f"{node}: {key} is not supported by this version; merge knows unique_key, merge_update_columns, "
                "merge_exclude_columns, merge_update_condition, merge_insert_condition and incremental_predicates."
            )
    strategy = config.get("incremental_strategy") or DEFAULT_STRATEGY
    if strategy == "default":
        strategy = DEFAULT_STRATEGY
    if strategy in STRATEGIES_TO_COME:
        raise UnsupportedFeature(
            f"{node}: incremental_strategy {strategy!r} is not supported by this version; use {', '.join(STRATEGIES)}."
        )
    _one_of(node, "incremental_strategy", strategy, STRATEGIES)
    on_schema_change = _one_of(node, "on_schema_change", config.get("on_schema_change") or "ignore", ON_SCHEMA_CHANGE)

    update, exclude = config.get("merge_update_columns"), config.get("merge_exclude_columns")
    if update and exclude:
        raise InvalidConfig(f"{node}: merge_update_columns and merge_exclude_columns exclude each other; keep one.")
    docs: Mapping[str, Any] = config.get("persist_docs") or {}
    columns: Mapping[str, Any] = model.get("columns") or {}
    size = config.get("target_file_size")
    return ModelConfig(
        node=node,
        strategy=strategy,
        unique_key=_names(node, "unique_key", config.get("unique_key")),
        update_columns=_names(node, "merge_update_columns", update) or None,
        exclude_columns=_names(node, "merge_exclude_columns", exclude),
        update_condition=_merge_sql(node, "merge_update_condition", config.get("merge_update_condition")),
        insert_condition=_merge_sql(node, "merge_insert_condition", config.get("merge_insert_condition")),
        predicates=_texts(
            node, "incremental_predicates", config.get("predicates") or config.get("incremental_predicates")
        ),
        on_schema_change=on_schema_change,
        partition_by=_names(node, "partition_by", config.get("partition_by") or config.get("partitioned_by")) or None,
        sort_by=_names(node, "sort_by", config.get("sort_by") or config.get("sorted_by")),
        table_properties=_properties(node, config.get("table_properties") or config.get("tblproperties")),
        target_file_size=None if size is None else int(size),
        location=config.get("location"),
        description=(model.get("description") or None) if docs.get("relation") else None,
        column_comments=column_comments(columns) if docs.get("columns") else {},
    )


def column_comments(columns: Mapping[str, Any]) -> dict[str, str]:
    """The descriptions of a node's documented columns."""
    return {c["name"]: c["description"] for c in columns.values() if c.get("description")}


def write_strategy(config: ModelConfig, *, exists_as_table: bool, full_refresh: bool) -> str:
    """How an incremental model writes this time: whole, when there is nothing to add to; else by its strategy.

    Without a unique_key there is nothing to match, and dbt's merge and delete+insert only insert.
    """
    if full_refresh or not exists_as_table:
        return OVERWRITE
    if config.strategy != "append" and not config.unique_key:
        return "append"
    return config.strategy


def plan_write(
    config: ModelConfig,
    strategy: str,
    *,
    table: str,
    staging: str,
    source_columns: Sequence[str],
    target_columns: Sequence[str] | None,
    app: AppTransaction | None,
) -> Write:
    """The spec of one write, and the SELECT over ``staging`` that feeds it.

    ``target_columns`` is None where the table is written whole. Raises InvalidConfig and SchemaMismatch, which name
    the table, before anything is written.
    """
    _require_columns(config, table, source_columns)
    comments = _own_case(config.column_comments, source_columns)
    if strategy == OVERWRITE or target_columns is None:
        return Write(
            WriteSpec(
                mode="overwrite",
                partition_by=config.partition_by,
                sort_by=config.sort_by,
                table_properties=config.table_properties,
                target_file_size=config.target_file_size,
                description=config.description,
                column_comments=comments,
                app=app,
            ),
            f"select * from {quote_identifier(staging)}",
        )
    columns, schema_mode = _columns_to_write(config, table, source_columns, target_columns)
    select = f"select {', '.join(quote_identifier(c) for c in columns)} from {quote_identifier(staging)}"
    shared: dict[str, Any] = {
        "schema_mode": schema_mode,
        "app": app,
        "partition_by": config.partition_by,
        "sort_by": config.sort_by,
        "table_properties": config.table_properties,
    }
    if strategy == "append":
        mode: WriteMode = "append"
        return Write(WriteSpec(mode=mode, target_file_size=config.target_file_size, **shared), select)
    keys = tuple(_match(key, columns) or key for key in config.unique_key)
    if strategy == "delete+insert":
        predicate = " and ".join(f"({_unqualified(p)})" for p in config.predicates) or None
        spec = DeleteInsertSpec(keys=keys, predicate=predicate, **shared)
        if schema_mode == "fail" or all(_match(c, target_columns) for c in columns):
            return Write(spec, select)
        # The staged writer, which deletes and inserts, keeps the schema that it finds.
        return Write(spec, select, widen=WriteSpec(mode="append", schema_mode="append_new_columns"))
    if strategy == "merge":
        return Write(MergeSpec(keys=keys, clauses=_clauses(config, columns), on=_merge_on(config), **shared), select)
    raise InvalidConfig(
        f"{config.node}: unknown write strategy {strategy!r}; known are overwrite, {', '.join(STRATEGIES)}."
    )


def _clauses(config: ModelConfig, columns: Sequence[str]) -> tuple[MergeClause, ...]:
    update: tuple[str, ...] | None = None
    if config.update_columns is not None:
        update = tuple(_match(name, columns) or name for name in config.update_columns)
    elif config.exclude_columns:
        excluded = {name.lower() for name in config.exclude_columns}
        update = tuple(name for name in columns if name.lower() not in excluded)
    return (
        MergeClause("matched_update", condition=config.update_condition, columns=update),
        MergeClause("not_matched_insert", condition=config.insert_condition),
    )


def _merge_on(config: ModelConfig) -> str | None:
    texts = [_merge_sql(config.node, "incremental_predicates", p) for p in config.predicates]
    return " and ".join(f"({text})" for text in texts) or None


def _columns_to_write(
    config: ModelConfig, table: str, source: Sequence[str], target: Sequence[str]
) -> tuple[list[str], SchemaMode]:
    """dbt's on_schema_change: which columns of the source are written, and what the table may become."""
    new = [c for c in source if _match(c, target) is None]
    missing = [c for c in target if _match(c, source) is None]
    if config.on_schema_change == "ignore":
        if missing:
            raise SchemaMismatch(
                f"{config.node}: table {table} has columns that the model no longer selects ({', '.join(missing)}). "
                "Set on_schema_change: append_new_columns (they become NULL) or sync_all_columns (they go), or run "
                "with --full-refresh."
            )
        # the table's columns in the table's order; new ones of the source are left out
        return [name for name in (_match(c, source) for c in target) if name is not None], "fail"
    if config.on_schema_change == "fail" and (new or missing):
        raise SchemaMismatch(
            f"{config.node}: the model and table {table} are out of sync, and on_schema_change is fail. "
            f"New in the model: {', '.join(new) or 'none'}. Missing from the model: {', '.join(missing) or 'none'}. "
            "Run with --full-refresh, or set on_schema_change."
        )
    modes: dict[str, SchemaMode] = {"append_new_columns": "append_new_columns", "sync_all_columns": "sync_all_columns"}
    return list(source), modes.get(config.on_schema_change, "fail")


def _require_columns(config: ModelConfig, table: str, source: Sequence[str]) -> None:
    if not source:
        raise InvalidConfig(f"{config.node}: the model returns no columns, so table {table} was not written.")
    wanted: dict[str, Iterable[str]] = {
        "unique_key": config.unique_key,
        "partition_by": config.partition_by or (),
        "sort_by": config.sort_by,
        "merge_update_columns": config.update_columns or (),
    }
    for key, names in wanted.items():
        absent = [name for name in names if _match(name, source) is None]
        if absent:
            raise InvalidConfig(
                f"{config.node}: {key} names {', '.join(absent)}, which the model does not return; table {table} was "
                f"not written. It returns {', '.join(source)}."
            )


def _match(name: str, columns: Iterable[str]) -> str | None:
    """The column of that name as its owner spells it: SQL does not tell cases apart."""
    columns = list(columns)
    if name in columns:
        return name
    return next((c for c in columns if c.lower() == name.lower()), None)


def _own_case(comments: Mapping[str, str], columns: Sequence[str]) -> dict[str, str]:
    pairs = ((_match(name, columns), text) for name, text in comments.items())
    return {name: text for name, text in pairs if name is not None}


# -- values


def _one_of(node: str, key: str, value: Any, known: Sequence[str]) -> str:
    if value in known:
        return str(value)
    near = difflib.get_close_matches(str(value), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise InvalidConfig(f"{node}: unknown {key} {value!r}; known are {', '.join(known)}.{hint}")


def _texts(node: str, key: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple | set) or not all(isinstance(v, str) for v in values):
        raise InvalidConfig(f"{node}: {key} must be a string or a list of strings, not {value!r}.")
    return tuple(v for v in values if v.strip())


def _names(node: str, key: str, value: Any) -> tuple[str, ...]:
    """Column names, with the quotes that dbt users write around odd ones taken off."""
    names = tuple(v.strip() for v in _texts(node, key, value))
    return tuple(n[1:-1].replace('""', '"') if len(n) > 1 and n[0] == n[-1] == '"' else n for n in names)


def _properties(node: str, value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{node}: table_properties must be a mapping of names to values, not {value!r}.")
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


def _merge_sql(node: str, key: str, value: Any) -> str | None:
    """A condition of dbt over DBT_INTERNAL_SOURCE and DBT_INTERNAL_DEST, as one over source and target."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidConfig(f"{node}: {key} must be SQL text, not {value!r}.")
    tree = _expression(node, key, value)
    for column in tree.find_all(exp.Column):
        alias = column.table.lower()
        if alias in _TARGET_ALIASES:
            column.set("table", exp.to_identifier("target"))
        elif alias in _SOURCE_ALIASES:
            column.set("table", exp.to_identifier("source"))
    return tree.sql(dialect="duckdb")


def _unqualified(predicate: str) -> str:
    """A predicate of delete+insert speaks of the target only; the alias goes."""
    tree = _expression("", "incremental_predicates", predicate)
    for column in tree.find_all(exp.Column):
        if column.table.lower() in _TARGET_ALIASES or column.table.lower() == "dbt_incremental_target":
            column.set("table", None)
    return tree.sql(dialect="duckdb")


def _expression(node: str, key: str, text: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, read="duckdb")
    except sqlglot.errors.SqlglotError as error:
        raise InvalidConfig(f"{node}: {key} cannot be read as SQL ({text!r}): {error}") from error
