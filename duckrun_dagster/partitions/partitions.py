"""Partitions of an asset as rows of its table: a step's partitions become one SQL predicate.

A time window ``[start, end)`` becomes ``column >= start AND column < end`` in the type of the
column. A timestamp with a time zone is compared as an instant. A date, a timestamp without a zone
and a text are compared with the wall clock of the partition's own time zone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from dagster import (
    AllPartitionMapping,
    InputContext,
    MultiPartitionKey,
    MultiPartitionsDefinition,
    OutputContext,
    PartitionsDefinition,
    StaticPartitionsDefinition,
    TimeWindow,
    TimeWindowPartitionsDefinition,
)

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.libraries import pa
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun_dagster.config import TableConfig
from duckrun_dagster.contexts import known, naming, step_of

# Most significant part first, so that texts sort by time.
_SORTABLE_FORMAT = re.compile(r"%Y([-/.]?%m([-/.]?%d([ T_-]?%H(:?%M(:?%S)?)?)?)?)?")
_INTEGER = re.compile("-?[0-9]+")
_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")

# Casts (sqlglot's type names) that leave a value in its partition.
_TEXTS = frozenset({"VARCHAR", "TEXT", "CHAR"})
_TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "DATETIME"})


@dataclass(frozen=True)
class PartitionSlice:
    """The partitions of one asset that one step writes or reads."""

    definition: PartitionsDefinition
    keys: tuple[str, ...]

    @property
    def label(self) -> str:
        """Return a short name that is equal whenever the partitions are equal."""
        if len(self.keys) == 1:
            return self.keys[0]
        digest = hashlib.sha256("\n".join(self.keys).encode()).hexdigest()[:12]
        return f"{self.keys[0]}...{self.keys[-1]}#{len(self.keys)}-{digest}"

    def predicate(self, config: TableConfig, schema: pa.Schema, asset: str) -> str:
        """Return the SQL predicate (DuckDB's) of exactly the rows of these partitions.

        Without partitions, the predicate matches no row.

        Raises:
            InvalidConfig: The metadata names no ``partition_expr``.
            SchemaMismatch: The partition column is missing from ``schema``.
            UnsupportedFeature: The column's type cannot hold the partition.
        """
        if not self.keys:
            return "false"
        with naming(f"Asset {asset}"):
            if isinstance(self.definition, MultiPartitionsDefinition):
                return _multi_predicate(self.definition, self.keys, config, schema)
            return _predicate(self.definition, self.keys, config, schema)

    def table_partitioning(self, config: TableConfig, schema: pa.Schema) -> tuple[str, ...] | None:
        """Return the partition columns of a new table; None if it is not partitioned.

        A column that holds instants is no partition column: each value would be a partition.
        """
        columns = [_column(schema, named.column) for named in config.partition_expr.values()]
        if any(column is None or pa.types.is_timestamp(_value_type(schema.field(column))) for column in columns):
            return None
        chosen = tuple(column for column in columns if column is not None)
        # Delta leaves partition columns out of the files, and a file needs at least one column.
        return chosen if chosen and len(chosen) < len(schema.names) else None


def partitions_of(context: InputContext | OutputContext) -> PartitionSlice:
    """Return the partitions of a context. A test may build one with a key and without a definition.

    Raises:
        InvalidConfig: The context has a range of partitions without their definition.
    """
    try:
        # Dagster may return a range as a set, whose order differs between processes. A retry must
        # get the same label.
        keys = tuple(sorted(context.asset_partition_keys))
    except NotImplementedError as error:  # raised by Dagster's placeholder for a missing definition
        raise InvalidConfig(
            f"Asset {context.asset_key.to_user_string()}: a context with a range of partitions needs their "
            "definition; give it "
            "asset_partitions_def."
        ) from error
    return PartitionSlice(_definition_of(context) or StaticPartitionsDefinition(list(keys)), keys)


def _definition_of(context: InputContext | OutputContext) -> PartitionsDefinition | None:
    return known(lambda: context.asset_partitions_def)


def written_partitions(context: OutputContext) -> PartitionSlice | None:
    """Return the partitions that this step writes; None for an asset without partitions."""
    if not context.has_asset_key or not context.has_asset_partitions:
        return None
    return partitions_of(context)


def read_partitions(context: InputContext) -> PartitionSlice | None:
    """Return the partitions that this step reads of an upstream asset; None for the whole table.

    An asset without partitions reads the whole table, with rows that no partition claims, unless
    its partition mapping names partitions. So does a load of all partitions of an asset outside of
    a run.
    """
    if not context.has_asset_key or not context.has_asset_partitions:
        return None
    step = step_of(context)
    if step is not None:
        reader = step.job_def.asset_layer.get_assets_def_for_node(step.node_handle)
        mapping = None if reader is None else reader.get_partition_mapping_for_dep(context.asset_key)
        if (reader is None or step.entity_partitions_def is None) and isinstance(mapping, AllPartitionMapping | None):
            return None
    wanted = partitions_of(context)
    if step is not None or context.has_partition_key or _definition_of(context) is None:
        return wanted
    existing = wanted.definition.get_partition_keys(dynamic_partitions_store=context.instance)
    return None if set(wanted.keys) >= set(existing) else wanted


def _multi_predicate(
    definition: MultiPartitionsDefinition, keys: Sequence[str], config: TableConfig, schema: pa.Schema
) -> str:
    """Return the predicate of partitions with two dimensions."""
    # One term per set of keys of the second dimension, over all keys of the first that have this
    # set. DuckDB takes minutes to plan one term for each of some thousand partitions.
    first, second = definition.partitions_defs
    seconds: dict[str, list[str]] = {}
    for key in keys:
        parsed = key if isinstance(key, MultiPartitionKey) else definition.get_partition_key_from_str(key)
        seconds.setdefault(parsed.keys_by_dimension[first.name], []).append(parsed.keys_by_dimension[second.name])
    firsts: dict[tuple[str, ...], list[str]] = {}
    for one, others in seconds.items():
        firsts.setdefault(tuple(sorted(others)), []).append(one)
    terms = []
    for shared, ones in firsts.items():
        sides = [
            _predicate(dimension.partitions_def, chosen, config, schema, dimension.name)
            for dimension, chosen in ((first, ones), (second, shared))
        ]
        terms.append(" AND ".join(f"({side})" if " OR " in side else side for side in sides))
    return terms[0] if len(terms) == 1 else " OR ".join(f"({term})" for term in terms)


def _predicate(
    definition: PartitionsDefinition,
    keys: Sequence[str],
    config: TableConfig,
    schema: pa.Schema,
    dimension: str | None = None,
) -> str:
    named = config.partition_column(dimension)
    if named is None:
        example = "'partition_expr': 'day'" if dimension is None else f"'partition_expr': {{{dimension!r}: 'day'}}"
        raise InvalidConfig(
            f"it has partitions{f' (dimension {dimension})' if dimension else ''}, but its metadata names no column "
            f"that holds them. Set metadata {{{example}}}."
        )
    column = _column(schema, named)
    if column is None and "(" in named:
        raise UnsupportedFeature(
            f"metadata 'partition_expr' is the SQL {named!r}; it takes the name of a column, or a CAST of one. Add a "
            "column of that value to the asset and name it."
        )
    if column is None:
        raise SchemaMismatch(
            f"its partition column {named!r} (metadata 'partition_expr') is missing from the columns "
            f"{', '.join(schema.names)} of table {config.name}. Add the column, or correct 'partition_expr'."
        )
    field = schema.field(column)
    _refuse_cast(config.partition_expr[dimension].cast, field)
    name = quote_identifier(column)
    if isinstance(definition, TimeWindowPartitionsDefinition):
        ranges = []
        for window in _windows(definition, keys):
            start, end = (_boundary(moment, field, definition.fmt) for moment in (window.start, window.end))
            ranges.append(f"{name} >= {start} AND {name} < {end}")
        return ranges[0] if len(ranges) == 1 else " OR ".join(f"({each})" for each in ranges)
    if pa.types.is_integer(_value_type(field)):
        static = isinstance(definition, StaticPartitionsDefinition)
        _refuse_equal_numbers(keys, tuple(definition.get_partition_keys()) if static else tuple(keys), field)
    values = [_value(key, field) for key in keys]
    return f"{name} = {values[0]}" if len(values) == 1 else f"{name} IN ({', '.join(values)})"


def _refuse_cast(cast: str | None, field: pa.Field) -> None:
    """Raise UnsupportedFeature for a cast that changes the partition of a value."""
    # The predicate compares the column itself, without the cast.
    kind = _value_type(field)
    in_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    same = (
        _is_text(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind)
        if cast in _TEXTS
        else cast in _TIMES and in_time
    )
    if cast is not None and not same:
        raise UnsupportedFeature(
            f"metadata 'partition_expr' casts column {field.name}, which is {field.type}, to {cast}. Name the column "
            "alone, where its values are those of the partitions, or add one of that type to the asset."
        )


def _windows(definition: TimeWindowPartitionsDefinition, keys: Sequence[str]) -> list[TimeWindow]:
    """Return the windows of some partitions, with adjacent windows joined."""
    windows = sorted((definition.time_window_for_partition_key(key) for key in keys), key=lambda w: w.start.timestamp())
    joined = windows[:1]
    for window in windows[1:]:
        if window.start.timestamp() <= joined[-1].end.timestamp():
            joined[-1] = TimeWindow(joined[-1].start, window.end)
        else:
            joined.append(window)
    return joined


def _boundary(moment: datetime, field: pa.Field, fmt: str) -> str:
    """Return one end of a window as a literal of the column's type."""
    kind = _value_type(field)
    if pa.types.is_timestamp(kind):
        if kind.tz is not None:
            return f"TIMESTAMPTZ {quote_literal(moment.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S+00:00'))}"
        _refuse_repeated_time(moment, field)
        return f"TIMESTAMP {quote_literal(moment.strftime('%Y-%m-%d %H:%M:%S'))}"
    if pa.types.is_date(kind):
        if (moment.hour, moment.minute, moment.second) != (0, 0, 0):
            raise UnsupportedFeature(
                f"column {field.name} holds dates, which cannot tell partitions that start at "
                f"{moment:%H:%M} apart. Name a timestamp column in metadata 'partition_expr'."
            )
        return f"DATE {quote_literal(moment.strftime('%Y-%m-%d'))}"
    if _is_text(kind):
        if not _SORTABLE_FORMAT.fullmatch(fmt):
            raise UnsupportedFeature(
                f"texts of the partition format {fmt!r} do not sort by time, so column {field.name} cannot hold a "
                "range of them. Use a date or timestamp column, or a format such as '%Y-%m-%d'."
            )
        # The key of a repeated hour ends with its offset, so it sorts after the first one.
        return quote_literal(moment.strftime(f"{fmt}%z" if moment.fold and _is_ambiguous(moment) else fmt))
    if pa.types.is_integer(kind) and moment.strftime(fmt).isdigit() and _SORTABLE_FORMAT.fullmatch(fmt):
        _refuse_repeated_time(moment, field)
        return str(int(moment.strftime(fmt)))
    raise UnsupportedFeature(
        f"column {field.name} is {field.type}; time partitions need a date, timestamp or text column"
        + (f" (a whole number needs a partition format of digits, not {fmt!r})." if pa.types.is_integer(kind) else ".")
    )


def _refuse_repeated_time(moment: datetime, field: pa.Field) -> None:
    """Raise UnsupportedFeature for a boundary that a clock without a zone shows twice."""
    # Clocks that go back from 2:00 to 1:00 can be divided at the first 1:00, since everything after
    # it is at least 1:00. They cannot be divided at the second 1:00, nor at half past.
    if _is_ambiguous(moment) and (moment.fold or _is_ambiguous(moment - timedelta(microseconds=1))):
        raise UnsupportedFeature(
            f"{moment:%Y-%m-%d %H:%M} happens twice in the partition's time zone ({moment.tzinfo}), and column "
            f"{field.name} has no time zone to tell which. Use a timestamp with a time zone, or partitions in UTC."
        )


def _refuse_equal_numbers(keys: Sequence[str], others: tuple[str, ...], field: pa.Field) -> None:
    """Raise UnsupportedFeature for a partition that is the number of another one, as 01 is 1."""
    equal = _equal_numbers(others)
    for key in keys:
        if key in equal:
            raise UnsupportedFeature(
                f"partitions {key!r} and {equal[key]!r} are one value of column {field.name}, which is {field.type}. "
                "Use a text column for these partitions."
            )


@lru_cache(maxsize=8)  # a fan-in needs one predicate for each of its partitions
def _equal_numbers(keys: tuple[str, ...]) -> dict[str, str]:
    """Return the keys that are the number of another key, and that key."""
    first, equal = dict[int, str](), dict[str, str]()
    for key in filter(_INTEGER.fullmatch, keys):
        other = first.setdefault(int(key), key)
        if other != key:
            equal |= {key: other, other: key}
    return equal


def _value(key: str, field: pa.Field) -> str:
    """Return a partition key as a literal of the column's type."""
    kind = _value_type(field)
    if _is_text(kind):
        return quote_literal(key)
    if pa.types.is_integer(kind) and _INTEGER.fullmatch(key):
        return key
    if pa.types.is_date(kind) and _DAY.fullmatch(key):
        return f"DATE {quote_literal(key)}"
    raise UnsupportedFeature(
        f"partition {key!r} cannot be a value of column {field.name}, which is {field.type}. "
        "Use a text column for these partitions."
    )


def _is_ambiguous(moment: datetime) -> bool:
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def _value_type(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _column(schema: pa.Schema, named: str) -> str | None:
    """Return the column of that name.

    Letter case counts only if several columns differ in case alone.
    """
    if named in schema.names:
        return named
    alike = [name for name in schema.names if name.lower() == named.lower()]
    return alike[0] if len(alike) == 1 else None
