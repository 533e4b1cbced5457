"""The config of a dbt model as one frozen value. No other module reads a config."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, cast

from dbt.adapters.duckrun.model.choices import NAIVE_TIMESTAMPS
from dbt.adapters.duckrun.model.constraints import Constraints, parse_constraints
from dbt.adapters.duckrun.model.expressions import target_sql
from dbt.adapters.duckrun.model.merge_config import MergeAction, parse_merge
from dbt.adapters.duckrun.model.values import match, names, one_of, properties, texts

from duckrun.display.units import parse_bytes
from duckrun.errors import InvalidConfig
from duckrun.values.applying import ApplySpec
from duckrun.values.choices import MERGE_MODES, WRITERS, MergeMode, WriterChoice
from duckrun.values.frozen import frozen
from duckrun.values.layout import CODECS, Codec, Layout, with_feed
from duckrun.values.nearest import nearest

SCD = ("scd1", "scd2")
STRATEGIES = ("append", "safeappend", "merge", "insert", "delete+insert", "insert_overwrite", "microbatch", *SCD)
# dbt-duckdb's own default: a project that moves to this adapter keeps its meaning.
DEFAULT_STRATEGY = "delete+insert"
_KEYS = (
    "change_data_feed", "cluster_by", "compression", "deletes", "engine", "incremental_predicates",
    "incremental_strategy", "liquid_clustered_by", "location", "merge_clauses", "merge_exclude_columns",
    "merge_insert_condition", "merge_mode", "merge_on_using_columns", "merge_update_columns",
    "merge_update_condition", "merge_update_set_expressions", "naive_timestamps", "on_schema_change",
    "only_if_changed", "partition_by", "partitioned_by", "sequence_by", "sort_by", "sorted_by", "table_properties",
    "target_file_size", "tblproperties", "unique_key", "writer", "z_order_by", "zorder",
)  # fmt: skip
_OF_OTHERS = ("clustered_by", "order_by")
"""Keys of other adapters that are near one of these."""
ON_SCHEMA_CHANGE = ("ignore", "fail", "append_new_columns", "sync_all_columns")


@frozen
class Batch:
    """The time slice of one run of a microbatch model: [start, end) in UTC, from dbt."""

    event_time: str
    start: str
    end: str


@frozen
class ModelConfig(Layout):
    """The parsed config of one node. Its name is in every error."""

    node: str
    strategy: str = DEFAULT_STRATEGY
    unique_key: tuple[str, ...] = ()
    merge: tuple[MergeAction, ...] = ()
    only_if_changed: bool = False
    predicates: tuple[str, ...] = ()
    apply: ApplySpec | None = None
    """How changes are applied, for the strategies scd1 and scd2."""
    batch: Batch | None = None
    on_schema_change: str = "ignore"
    z_order_by: tuple[str, ...] = ()
    location: str | None = None
    writer: WriterChoice = "auto"
    merge_mode: MergeMode = "auto"
    change_data_feed: bool | None = None
    naive_timestamps: str | None = None
    """None takes the profile's value."""
    sql_header: str | None = None
    constraints: Constraints = field(default_factory=Constraints)
    description: str | None = None
    documented: Mapping[str, Any] = field(default_factory=dict)
    """The columns in the manifest, if their descriptions are persisted (see column_comments)."""

    @property
    def writing(self) -> dict[str, Any]:
        """Return how rows are written, as keywords of every spec."""
        return {"writer": self.writer, "merge_mode": self.merge_mode}

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except InvalidConfig as error:
            raise InvalidConfig(f"{self.node}: {error}") from None


def parse_model(model: Mapping[str, Any]) -> ModelConfig:
    """Return the config of a dbt node (the dictionary that macros know as ``model``).

    Raises:
        InvalidConfig: A value is invalid; the text lists the known ones.
    """
    node = str(model.get("unique_id", "model"))
    config: Mapping[str, Any] = model.get("config") or {}
    strategy = config.get("incremental_strategy") or DEFAULT_STRATEGY
    if strategy == "default":
        strategy = DEFAULT_STRATEGY
    _refuse_misspelled(node, config)
    _check_strategy(node, strategy)
    unique_key = tuple(dict.fromkeys(names(node, "unique_key", config.get("unique_key"))))
    if strategy == "microbatch" and unique_key:
        raise InvalidConfig(
            f"{node}: incremental_strategy microbatch does not support 'unique_key': it replaces a slice of time, by "
            "event_time. Remove unique_key, or use incremental_strategy merge."
        )
    docs: Mapping[str, Any] = config.get("persist_docs") or {}
    columns: Mapping[str, Any] = model.get("columns") or {}
    size, codec, naive = (config.get(key) for key in ("target_file_size", "compression", "naive_timestamps"))
    feed = _flag(node, "change_data_feed", config)
    keys = names(node, "merge_on_using_columns", config.get("merge_on_using_columns")) or unique_key
    return ModelConfig(
        node=node,
        strategy=strategy,
        unique_key=keys,
        apply=_apply(node, strategy, keys, config),
        merge=parse_merge(node, config),
        only_if_changed=bool(_flag(node, "only_if_changed", config)),
        predicates=texts(
            node, "incremental_predicates", config.get("predicates") or config.get("incremental_predicates")
        ),
        batch=_batch(node, strategy, model, config),
        on_schema_change=one_of(node, "on_schema_change", config.get("on_schema_change") or "ignore", ON_SCHEMA_CHANGE),
        partition_by=names(node, "partition_by", config.get("partition_by") or config.get("partitioned_by")) or None,
        sort_by=names(node, "sort_by", config.get("sort_by") or config.get("sorted_by")),
        cluster_by=names(node, "cluster_by", config.get("cluster_by") or config.get("liquid_clustered_by")) or None,
        z_order_by=names(node, "z_order_by", config.get("z_order_by") or config.get("zorder")),
        table_properties=with_feed(
            properties(node, config.get("table_properties") or config.get("tblproperties")), feed
        ),
        change_data_feed=feed,
        target_file_size=None if size is None else parse_bytes(size),
        compression=None if codec is None else cast(Codec, one_of(node, "compression", codec, CODECS)),
        location=config.get("location"),
        writer=cast(WriterChoice, one_of(node, "writer", config.get("writer") or "auto", WRITERS)),
        merge_mode=cast(MergeMode, one_of(node, "merge_mode", config.get("merge_mode") or "auto", MERGE_MODES)),
        naive_timestamps=None if naive is None else one_of(node, "naive_timestamps", naive, NAIVE_TIMESTAMPS),
        sql_header=config.get("sql_header") or None,
        constraints=parse_constraints(node, model),
        description=(model.get("description") or None) if docs.get("relation") else None,
        documented=columns if docs.get("columns") else {},
    )


def _refuse_misspelled(node: str, config: Mapping[str, Any]) -> None:
    """Raise InvalidConfig for a key that is none of this adapter's, but almost one of them.

    Other keys may be those of packages, other adapters, or the project's own macros.
    """
    for key in config.keys() - {*_KEYS, *_OF_OTHERS}:
        if near := nearest(key, _KEYS, cutoff=0.85):
            raise InvalidConfig(f"{node}: unknown config {key!r}. Did you mean {near[0]!r}?")


def _flag(node: str, key: str, config: Mapping[str, Any]) -> bool | None:
    """Return a value of a config that is true or false; None if it is not set."""
    value = config.get(key)
    if value is not None and not isinstance(value, bool):
        raise InvalidConfig(f"{node}: {key} is {value!r}; it takes true or false.")
    return value


def column_comments(documented: Mapping[str, Any], columns: Iterable[str]) -> dict[str, str]:
    """Return the descriptions of columns, by their names in the table."""
    columns = list(columns)
    comments: dict[str, str] = {}
    # A column that is documented with ``quote: true`` means a column of exactly that name.
    for column in documented.values():
        name = column["name"] if column.get("quote") else match(column["name"], columns)
        if column.get("description") and name in columns:
            comments[name] = column["description"]
    return comments


def _check_strategy(node: str, strategy: Any) -> None:
    try:
        one_of(node, "incremental_strategy", strategy, STRATEGIES)
    except InvalidConfig as error:
        macro = f"get_incremental_{strategy}_sql"
        raise InvalidConfig(
            f'{error} (dbt could not find an incremental strategy macro with the name "{macro}": it would be SQL for '
            "tables of DuckDB, and a lake has strategies of its own.)"
        ) from None


def _apply(node: str, strategy: str, keys: tuple[str, ...], config: Mapping[str, Any]) -> ApplySpec | None:
    """Return how changes are applied; None for another strategy or materialization."""
    if strategy not in SCD or config.get("materialized") != "incremental":
        return None
    sequence, deletes = config.get("sequence_by"), config.get("deletes", True)
    lacking = [name for name, value in (("unique_key", keys), ("sequence_by", sequence)) if not value]
    if lacking:
        raise InvalidConfig(
            f"{node}: incremental_strategy {strategy} applies changes by key, in the order of a column: "
            f"it needs {lacking[0]}."
        )
    if not isinstance(sequence, str):
        raise InvalidConfig(f"{node}: sequence_by is {sequence!r}; it takes the name of one column.")
    if not isinstance(deletes, bool | str):
        raise InvalidConfig(f"{node}: deletes is {deletes!r}; it takes true, false, or a condition in SQL.")
    return ApplySpec(keys, sequence, 1 if strategy == "scd1" else 2, deletes)


def _batch(node: str, strategy: str, model: Mapping[str, Any], config: Mapping[str, Any]) -> Batch | None:
    """Return the slice of a microbatch run; None for another strategy."""
    if strategy != "microbatch":
        return None
    event_time, batch = config.get("event_time"), model.get("batch") or {}
    start, end = batch.get("event_time_start"), batch.get("event_time_end")
    if not event_time or not (start and end):
        raise InvalidConfig(
            f"{node}: incremental_strategy microbatch needs event_time, begin and batch_size in the model's config, by "
            "which dbt gives it the slices to run."
        )
    return Batch(target_sql(node, "event_time", event_time), str(start), str(end))
