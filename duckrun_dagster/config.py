"""Asset and input metadata become one typed value, here and nowhere else.

Metadata is open to everybody in Dagster, so an unknown key passes, unless it is nearly one that this module knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from functools import partial
from typing import Any, cast, get_args

import sqlglot
from dagster import AssetKey, MetadataValue
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig
from duckrun.lake.lake import Lake
from duckrun.values.layout import Layout
from duckrun.values.nearest import did_you_mean, nearest
from duckrun.values.rows import (
    SCHEMA_MODES,
    UPSERT,
    WRITE_MODES,
    AppTransaction,
    ClauseKind,
    DeleteInsertSpec,
    EngineName,
    MergeClause,
    MergeSpec,
    ReadSpec,
    RowSpec,
    SchemaMode,
    WriteMode,
    WriteSpec,
)
from duckrun.values.snapshot import TableRef

ENGINES: tuple[str, ...] = get_args(EngineName)
MODES: tuple[str, ...] = (*(mode for mode in WRITE_MODES if mode != "safeappend"), "merge", "delete+insert")

# What one run may say otherwise than the asset: how the table is written, not which one it is.
RUN_KEYS = ("engine", "mode", "merge_keys", "merge_clauses", "schema_mode", "sort_by")
INPUT_KEYS = ("columns", "predicate", "version", "timestamp", "changes", "key", "type", "allow_missing_partitions")

# Words of other trades that only look like ours: a model asset may well carry metadata "model".
_OTHER_WORDS = frozenset({"model", "models", "node", "code", "column", "row", "reversion", "types"})
_NEAR = 0.8


@dataclass(frozen=True)
class PartitionExpr:
    """The column that holds a partition; ``cast`` is the type that the metadata casts it to, as dagster-duckdb's users write."""

    column: str
    cast: str | None = None

    @classmethod
    def parse(cls, text: str) -> PartitionExpr:
        """``day``, ``"day"``, ``CAST(day AS TIMESTAMP)``; any other text is the name of a column, whatever is in it."""
        try:
            tree = sqlglot.parse_one(text, dialect="duckdb")
        except SqlglotError:
            return cls(text)
        inner, cast = (tree.this, tree.to.this.name) if type(tree) is exp.Cast else (tree, None)
        if not isinstance(inner, exp.Column) or len(inner.parts) != 1 or isinstance(inner.this, exp.Star):
            return cls(text)
        return cls(inner.name, cast)


@dataclass(frozen=True)
class TableConfig(Layout):
    """Where an asset's table is and how it is written: the asset's metadata, parsed."""

    schema: str
    table: str
    location: str | None = None
    engine: EngineName | None = None
    mode: str | None = None
    merge_keys: tuple[str, ...] = ()
    merge_clauses: tuple[MergeClause, ...] = ()
    partition_expr: Mapping[str | None, PartitionExpr] = field(default_factory=dict)
    schema_mode: SchemaMode = "fail"

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"

    def partition_column(self, dimension: str | None = None) -> str | None:
        """The column that holds the partition, or that dimension of it; None if the metadata does not say."""
        named = self.partition_expr.get(dimension)
        return None if named is None else named.column

    def write_spec(
        self,
        *,
        app: AppTransaction | None,
        predicate: str | None = None,
        partition_by: tuple[str, ...] | None = None,
        description: str | None = None,
        column_comments: Mapping[str, str] | None = None,
    ) -> RowSpec:
        """What the engine is asked to do. ``predicate`` is the partition being written, None for the whole table.

        Raises InvalidConfig for a combination that cannot be carried out.
        """
        mode = self.mode or ("merge" if self.merge_keys else "replace" if predicate is not None else "overwrite")
        own = self.partition_by is not None or self.cluster_by
        layout = self.layout if own else {**self.layout, "partition_by": partition_by}
        shared: dict[str, Any] = {"schema_mode": self.schema_mode, "app": app, **layout}
        if mode == "merge":
            return MergeSpec(self.merge_keys, clauses=self.merge_clauses or UPSERT, within=predicate, **shared)
        if mode == "delete+insert":
            return DeleteInsertSpec(self.merge_keys, within=predicate, **shared)
        if predicate is not None and mode == "overwrite":
            raise InvalidConfig(
                "mode 'overwrite' would replace every partition of the table, not only those of this run. "
                "Leave mode out (a partitioned asset replaces exactly its partitions), or set it to 'replace'."
            )
        return WriteSpec(
            mode=cast(WriteMode, mode),
            predicate=predicate if mode == "replace" else None,
            within=None if mode == "replace" else predicate,
            description=description,
            column_comments=column_comments or {},
            **shared,
        )


def table_of(lake: Lake, config: TableConfig) -> TableRef:
    """The table in the lake; a location that is relative is below the lake's root."""
    if config.location is None:
        return lake.resolve(config.schema, config.table)
    location = f"{lake.root}/{config.location}" if is_relative(config.location) else config.location
    return lake.at(location, schema=config.schema, name=config.table)


def is_relative(location: str) -> bool:
    """Whether a location is below the lake's root, and no URL or path of its own."""
    return "://" not in location and not location.startswith(("/", "~"))


def parse_table(asset_key: AssetKey, metadata: Mapping[str, Any], *, default_schema: str) -> TableConfig:
    """The table of an asset: from its key, and from metadata where that says more.

    Two parts of a key are schema and table, one part is a table of ``default_schema``; a longer key needs ``table``
    (and ``schema``) in the metadata. Raises InvalidConfig, naming the asset.
    """
    what = f"Asset {asset_key.to_user_string()}"
    values = _known(metadata, TABLE_KEYS, what)
    parts = asset_key.path
    if len(parts) > 2 and "location" not in values and not values.get("table"):
        raise InvalidConfig(
            f"{what}: a key of {len(parts)} parts names no table. "
            "Set metadata 'schema' and 'table', or use a key of one part (table) or two (schema, table)."
        )
    values["schema"] = values.get("schema") or (parts[-2] if len(parts) == 2 else default_schema)
    values["table"] = values.get("table") or parts[-1]
    return _table_config(values, what)


def parse_output(metadata: Mapping[str, Any], *, default_schema: str, what: str) -> TableConfig:
    """The table of an op's output, which its metadata names. Raises InvalidConfig, naming ``what``, where it names none."""
    values = _known(metadata, TABLE_KEYS, what)
    if not values.get("table"):
        raise InvalidConfig(
            f"{what} is no asset, so it has no table. Name one: dg.Out(metadata={{'table': …}}) (and 'schema'), make it an "
            "asset, or give the output another io_manager_key."
        )
    return _table_config({"schema": default_schema, **values}, what)


def _table_config(values: Mapping[str, Any], what: str) -> TableConfig:
    """Known keys with plain values, parsed. Raises InvalidConfig, naming ``what``."""
    where = f"{what}: metadata"
    try:
        config = TableConfig(**{key: _PARSERS[key](value, f"{where} {key!r}") for key, value in values.items()})
    except InvalidConfig as error:
        if str(error).startswith(what):
            raise
        raise InvalidConfig(f"{what}: {error}") from error
    if config.mode in ("merge", "delete+insert") and not config.merge_keys:
        raise InvalidConfig(
            f"{where} 'mode' is {config.mode!r}, which needs 'merge_keys', the columns to match rows by."
        )
    if config.merge_keys and config.mode not in (None, "merge", "delete+insert"):
        raise InvalidConfig(f"{where} 'merge_keys' goes with mode 'merge' or 'delete+insert', not {config.mode!r}.")
    if config.merge_clauses and (config.mode == "delete+insert" or not config.merge_keys):
        raise InvalidConfig(f"{where} 'merge_clauses' goes with mode 'merge' and 'merge_keys'.")
    return config


def for_this_run(metadata: Mapping[str, Any], *overrides: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """An asset's metadata with what a run says otherwise; a later override wins. Raises InvalidConfig, naming ``what``.

    A mode that is given for a run takes the place of the asset's merge keys too, where it has no use for them.
    """
    result = dict(metadata)
    for override in overrides:
        own = _known(override, RUN_KEYS, what)
        if own.get("mode") not in (None, "merge", "delete+insert"):
            result = {key: value for key, value in result.items() if key not in ("merge_keys", "merge_clauses")}
        result |= own
    return result


def parse_input(metadata: Mapping[str, Any], *, what: str) -> ReadSpec:
    """What an input reads: the metadata of an ``AssetIn``, parsed. Raises InvalidConfig, naming ``what``."""
    values = _known(metadata, INPUT_KEYS, what)
    for key in ("changes", "key"):
        if key in values:
            raise InvalidConfig(
                f"{what}: reading changes (metadata {key!r}) is not built yet; read the table, or a version."
            )
    version, timestamp = values.get("version"), values.get("timestamp")
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        raise InvalidConfig(f"{what}: metadata 'version' is {version!r}; it takes a version number such as 3.")
    if version is not None and timestamp is not None:
        raise InvalidConfig(f"{what}: metadata names a 'version' and a 'timestamp'; give one of them.")
    if isinstance(timestamp, date):  # a datetime is one too
        timestamp = timestamp.isoformat()
    predicate = values.get("predicate")
    columns = values.get("columns")
    return ReadSpec(
        columns=None if columns is None else _names(columns, f"{what}: metadata 'columns'"),
        predicate=None if predicate is None else _text(predicate, f"{what}: metadata 'predicate'"),
        version=version,
        timestamp=None if timestamp is None else _text(timestamp, f"{what}: metadata 'timestamp'"),
    )


def input_type(metadata: Mapping[str, Any], *, what: str) -> str | None:
    """The name of the type that an input without an annotation asks for. Raises InvalidConfig, naming ``what``."""
    value = _known(metadata, INPUT_KEYS, what).get("type")
    return None if value is None else _text(value, f"{what}: metadata 'type'")


def allows_missing_partitions(metadata: Mapping[str, Any], *, what: str) -> bool:
    """Whether an input may leave out partitions that do not exist. Raises InvalidConfig, naming ``what``."""
    value = _known(metadata, INPUT_KEYS, what).get("allow_missing_partitions", False)
    if not isinstance(value, bool):
        raise InvalidConfig(f"{what}: metadata 'allow_missing_partitions' is {value!r}; it takes True or False.")
    return value


def _known(metadata: Mapping[str, Any], known: Sequence[str], what: str) -> dict[str, Any]:
    """The known keys of a metadata mapping, with plain values. Raises InvalidConfig for a key that is nearly a known one."""
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        if key in known:
            plain = value.value if isinstance(value, MetadataValue) else value
            if plain is not None:
                found[key] = plain
        elif near := _near_miss(key, known):
            raise InvalidConfig(f"{what}: unknown metadata key {key!r}. Did you mean {near!r}?")
    return found


def _near_miss(key: str, known: Sequence[str]) -> str | None:
    if "/" in key:  # a namespace of somebody else's: dagster/…, dagster_dbt/…
        return None
    plain = key.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in _OTHER_WORDS:
        return None
    return next(iter(nearest(plain, known, cutoff=_NEAR)), None)


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidConfig(f"{what} is {value!r}; it takes a text that is not empty.")
    return value


def _one_of(value: Any, what: str, *, allowed: Sequence[str]) -> Any:
    if value in allowed:
        return value
    raise InvalidConfig(
        f"{what} is {value!r}; it takes one of {', '.join(allowed)}.{did_you_mean(str(value), allowed)}"
    )


def _names(value: Any, what: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, Sequence) or not all(isinstance(name, str) and name for name in value):
        raise InvalidConfig(f"{what} is {value!r}; it takes a column name or a list of them.")
    return tuple(value)


def _partition_expr(value: Any, what: str) -> dict[str | None, PartitionExpr]:
    if isinstance(value, str) and value.strip():
        return {None: PartitionExpr.parse(value)}
    if isinstance(value, Mapping) and all(isinstance(v, str) and v for v in value.values()):
        return {str(dimension): PartitionExpr.parse(column) for dimension, column in value.items()}
    raise InvalidConfig(
        f"{what} is {value!r}; it takes a column name, or for several dimensions {{dimension: column}}."
    )


def _properties(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{what} is {value!r}; it takes a mapping such as {{'delta.appendOnly': 'true'}}.")
    return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


def _clauses(value: Any, what: str) -> tuple[MergeClause, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise InvalidConfig(f"{what} is {value!r}; it takes a list of clauses, each a mapping with 'kind'.")
    return tuple(_clause(each, what) for each in value)


def _clause(value: Any, what: str) -> MergeClause:
    if isinstance(value, MergeClause):
        return value
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping):
        raise InvalidConfig(f"{what} holds {value!r}; a clause is a mapping with 'kind'.")
    for key in value:
        _one_of(key, f"A key in {what}", allowed=[f.name for f in fields(MergeClause)])
    kinds = get_args(ClauseKind)
    if value.get("kind") is None:
        raise InvalidConfig(f"A clause in {what} has no 'kind'; the kinds are {', '.join(kinds)}.")
    columns = value.get("columns")
    return MergeClause(
        kind=_one_of(value["kind"], f"'kind' in {what}", allowed=kinds),
        condition=value.get("condition"),
        columns=None if columns is None else _names(columns, f"'columns' in {what}"),
        set=value.get("set"),
    )


_PARSERS: dict[str, Callable[[Any, str], Any]] = {
    "schema": _text,
    "table": _text,
    "location": _text,
    "engine": partial(_one_of, allowed=ENGINES),
    "mode": partial(_one_of, allowed=MODES),
    "merge_keys": _names,
    "merge_clauses": _clauses,
    "partition_expr": _partition_expr,
    "partition_by": _names,
    "schema_mode": partial(_one_of, allowed=SCHEMA_MODES),
    "sort_by": _names,
    "cluster_by": _names,
    "table_properties": _properties,
}
TABLE_KEYS = tuple(_PARSERS)
