"""Asset and input metadata, parsed into one typed value. No other module reads the metadata.

Dagster lets anybody add metadata, so an unknown key passes. A near miss of a known key is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any, cast

from dagster import AssetKey, MetadataValue

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake.lake import Lake
from duckrun.values.applying import ApplySpec, ScdType
from duckrun.values.changes import KINDS, ChangeKind
from duckrun.values.choices import (
    ENGINES,
    MERGE_MODES,
    PUBLISH,
    SCHEMA_MODES,
    WRITE_MODES,
    WRITERS,
    EngineName,
    MergeMode,
    SchemaMode,
    WriteMode,
    WriterChoice,
)
from duckrun.values.frozen import frozen
from duckrun.values.lake_format import DUCKLAKE, FORMATS, FormatName
from duckrun.values.layout import CODECS, Layout, with_feed
from duckrun.values.nearest import nearest
from duckrun.values.rows import (
    UPSERT,
    AppTransaction,
    DeleteInsertSpec,
    MergeClause,
    MergeSpec,
    ReadSpec,
    RowSpec,
    WriteSpec,
    preferred,
)
from duckrun.values.snapshot import TableRef
from duckrun_dagster import config_values as parse
from duckrun_dagster.config_values import PartitionExpr

_SCD: dict[str, ScdType] = {"scd1": 1, "scd2": 2}
_BY_KEYS = ("merge", "delete+insert", *_SCD)
MODES: tuple[str, ...] = (*(mode for mode in WRITE_MODES if mode != "safeappend"), *_BY_KEYS)

# Keys of other tools that resemble a known key: an asset of a model may have metadata "model".
_OTHER_WORDS = frozenset(
    {
        "model",
        "models",
        "node",
        "code",
        "column",
        "row",
        "reversion",
        "types",
        "published",
        "publisher",
        "form",
        "formatted",
    }
)
_NEAR = 0.8
_Parser = Callable[[Any, str], Any]
_OF_KEYS = ("merge_keys", "merge_clauses", "only_if_changed", "sequence_by", "deletes")
"""Keys that only a mode by keys uses."""


def _key(parser: _Parser, default: Any = None, *, factory: type | None = None, of_run: bool = False) -> Any:
    """Return the field of a metadata key.

    Args:
        parser: Parses the key's value.
        default: The value of the field if the metadata lacks the key.
        factory: Makes this value, if it is mutable.
        of_run: True if a run's configuration may override the key. Such a key says how the table is
            written, not which table it is.
    """
    value: dict[str, Any] = {"default": default} if factory is None else {"default_factory": factory}
    return field(metadata={"parser": parser, "of_run": of_run}, **value)


@frozen
class TableConfig(Layout):
    """The table of an asset and how it is written: the asset's metadata, parsed."""

    schema: str = _key(parse.text)
    table: str = _key(parse.text)
    location: str | None = _key(parse.text)
    lake: str | None = _key(parse.text)
    format: FormatName | None = _key(parse.one_of(FORMATS))
    publish: str = _key(parse.one_of(PUBLISH), "each")
    engine: EngineName | None = _key(parse.one_of(ENGINES), of_run=True)
    mode: str | None = _key(parse.one_of(MODES), of_run=True)
    merge_keys: tuple[str, ...] = _key(parse.names, (), of_run=True)
    merge_clauses: tuple[MergeClause, ...] = _key(parse.clauses, (), of_run=True)
    only_if_changed: bool = _key(parse.flag, False, of_run=True)
    sequence_by: str | None = _key(parse.text, of_run=True)
    deletes: bool | str = _key(parse.condition, True, of_run=True)
    partition_expr: Mapping[str | None, PartitionExpr] = _key(parse.partition_expr, factory=dict)
    schema_mode: SchemaMode = _key(parse.one_of(SCHEMA_MODES), "fail", of_run=True)
    writer: WriterChoice = _key(parse.one_of(WRITERS), "auto", of_run=True)
    merge_mode: MergeMode = _key(parse.one_of(MERGE_MODES), "auto", of_run=True)
    change_data_feed: bool | None = _key(parse.flag)
    commit_metadata: Mapping[str, str] = _key(parse.words, factory=dict, of_run=True)
    column_descriptions: Mapping[str, str] = _key(parse.texts, factory=dict)

    @property
    def name(self) -> str:
        """Return the qualified name of the table."""
        return ".".join(part for part in (self.lake, self.schema, self.table) if part)

    def refuse_of_other_format(self, lake_format: str, what: str) -> None:
        """Refuse metadata that the format of the table's lake does not support.

        Args:
            lake_format: The format of the lake.
            what: The subject of the error text, such as the asset.

        Raises:
            InvalidConfig: The metadata names another format than the lake's.
            UnsupportedFeature: The lake's format lacks a feature that the metadata uses.
        """
        if self.format is not None and self.format != lake_format:
            raise InvalidConfig(
                f"{what}: metadata 'format' is {self.format!r}, and its lake is of format {lake_format}: "
                "the format belongs to a lake, not to a table. Name "
                f"a lake of format {self.format} in metadata 'lake' (DuckrunResource: lakes), or leave 'format' out."
            )
        if lake_format != DUCKLAKE:
            if self.publish == "together":
                raise UnsupportedFeature(
                    f"{what}: metadata 'publish' is 'together', and its lake is of format {lake_format}, "
                    "where each table has a log of its own, so that no "
                    "commit spans several. A lake of format ducklake has such commits, and "
                    "publish_after_checks() publishes the tables of a job after its checks."
                )
            return
        delta = next((name for name in self.table_properties if name.lower().startswith("delta.")), None)
        for key, reason in (
            ("location", "the catalog says where a table's files lie" if self.location else None),
            ("cluster_by", "liquid clustering is Delta's, use 'sort_by'" if self.cluster_by else None),
            ("table_properties", f"{delta} is a property of Delta tables, leave it out" if delta else None),
        ):
            if reason is not None:
                raise UnsupportedFeature(
                    f"{what}: metadata {key!r} does not go with a lake of format ducklake: {reason}."
                )

    def partition_column(self, dimension: str | None = None) -> str | None:
        """Return the column that holds the partition; None if the metadata names none.

        Args:
            dimension: The dimension of multi-dimensional partitions whose column is returned.
        """
        named = self.partition_expr.get(dimension)
        return None if named is None else named.column

    def refuse_partitions(self, what: str = "") -> None:
        """Refuse a mode that does not support a partitioned asset; ``what`` begins the error text.

        Raises:
            InvalidConfig: The mode is ``scd1`` or ``scd2``.
        """
        if self.mode in _SCD:
            raise InvalidConfig(
                f"{what}mode {self.mode!r} applies changes by key, "
                "and the rows of a partition are not all of a key's. Leave the asset without "
                "partitions; its input may have them."
            )

    def _inserts_all(self) -> bool:
        """Return True if a merge into an empty table stores the source rows unchanged."""
        inserts = [clause for clause in self.merge_clauses if clause.kind == "not_matched_insert"]
        return len(inserts) == 1 and inserts[0] == MergeClause("not_matched_insert")

    def write_spec(
        self,
        *,
        app: AppTransaction | None,
        predicate: str | None = None,
        partition_by: tuple[str, ...] | None = None,
        description: str | None = None,
        column_comments: Mapping[str, str] | None = None,
        applies: bool = False,
        whole: bool = False,
    ) -> RowSpec | ApplySpec:
        """Return the write that the engine carries out.

        Args:
            app: The work and attempt that the commit records; None outside of a run.
            predicate: The partition that is written; None for the whole table.
            partition_by: Partition columns for a table whose metadata names no layout.
            description: Description of the table.
            column_comments: Comments on columns.
            applies: The rows are changes: ``_change_type`` says what happens to each row.
            whole: The rows replace all present rows.

        Raises:
            InvalidConfig: The combination cannot be carried out.
        """
        mode = self.mode or ("merge" if self.merge_keys else "replace" if predicate is not None else "overwrite")
        has_layout = self.partition_by is not None or self.cluster_by
        layout = self.layout if has_layout else {**self.layout, "partition_by": partition_by}
        shared: dict[str, Any] = {"schema_mode": self.schema_mode, "app": app, **layout}
        shared["table_properties"] = with_feed(self.table_properties, self.change_data_feed)
        shared |= {"writer": self.writer, "merge_mode": self.merge_mode, "commit_metadata": self.commit_metadata}
        if applies and mode == "merge" and not self.merge_clauses:
            return ApplySpec(self.merge_keys, None, whole=whole, within=predicate, **shared)
        if applies and mode == "delete+insert":
            raise InvalidConfig(
                "mode 'delete+insert' stores rows as they come, "
                "and of these '_change_type' says which are deleted. Leave mode out, so that "
                "the changes are applied by merge_keys, or return rows without '_change_type'."
            )
        if whole and mode not in _SCD:
            if self.merge_clauses and not self._inserts_all():
                raise InvalidConfig(
                    "the first run of an asset of changes, and a full refresh, "
                    "write the table anew of the rows as they come: its merge_clauses need "
                    "one not_matched_insert, of all columns and rows."
                )
            mode = "overwrite" if predicate is None else "replace"
        if mode == "merge":
            clauses, compares = self.merge_clauses or UPSERT, self.only_if_changed
            return MergeSpec(self.merge_keys, clauses, within=predicate, only_if_changed=compares, **shared)
        if mode == "delete+insert":
            return DeleteInsertSpec(self.merge_keys, within=predicate, **shared)
        if mode in _SCD:
            assert self.sequence_by is not None, "_table_config asks for it"
            if predicate is not None:
                self.refuse_partitions()
            return ApplySpec(self.merge_keys, self.sequence_by, _SCD[mode], self.deletes, whole=whole, **shared)
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


def refuse_to_replace(config: TableConfig, what: str) -> None:
    """Refuse an asset of changes whose metadata does not say how the changes are applied.

    Args:
        config: The asset's metadata.
        what: The subject of the error text, such as the asset.

    Raises:
        InvalidConfig: The metadata has neither ``mode`` nor ``merge_keys``.
    """
    if config.mode is None and not config.merge_keys:
        raise InvalidConfig(
            f"{what} reads changes, and without 'merge_keys' or 'mode' "
            "the changed rows alone would replace its table, or its partition. Set "
            "metadata 'merge_keys' to apply them by key, or 'mode': 'append' for a log of changes. "
            "If the asset returns all rows of its table or "
            "partition each time, say so: 'mode': 'overwrite', with partitions 'replace'."
        )


def table_of(lake: Lake, config: TableConfig) -> TableRef:
    """Return the table in the lake; a relative location is below the lake's root."""
    if config.location is None:
        return lake.look_up(config.schema, config.table)[0]
    if is_relative(config.location) and ".." in PurePosixPath(config.location).parts:
        raise InvalidConfig(
            f"table {config.name}: metadata 'location' {config.location!r} leaves the root of its lake; "
            "write the whole path of a folder that is elsewhere."
        )
    location = f"{lake.root}/{config.location}" if is_relative(config.location) else config.location
    return lake.at(location, schema=config.schema, name=config.table)


def is_relative(location: str) -> bool:
    """Return True if a location is below the lake's root: neither a URL nor an absolute path."""
    return "://" not in location and not location.startswith(("/", "~"))


def parse_table(
    asset_key: AssetKey, metadata: Mapping[str, Any], *, default_schema: str, defaults: Mapping[str, Any] | None = None
) -> TableConfig:
    """Return the table of an asset, from its key and its metadata.

    A key of two parts is schema and table; one part is a table of ``default_schema``. A longer key
    needs ``table`` (and ``schema``) in the metadata.

    Args:
        asset_key: The asset.
        metadata: The asset's metadata; it takes precedence over the key.
        default_schema: The schema of a key of one part.
        defaults: The IO manager's defaults.

    Raises:
        InvalidConfig: The metadata holds an error; the text names the asset.
    """
    what = f"Asset {asset_key.to_user_string()}"
    values = with_defaults(_known(metadata, TABLE_KEYS, what), defaults)
    parts = asset_key.path
    if len(parts) > 2 and "location" not in values and not values.get("table"):
        raise InvalidConfig(
            f"{what}: a key of {len(parts)} parts names no table. "
            "Set metadata 'schema' and 'table', or use a key of one part (table) or two (schema, table)."
        )
    values["schema"] = values.get("schema") or (parts[-2] if len(parts) == 2 else default_schema)
    values["table"] = values.get("table") or parts[-1]
    return _table_config(values, what)


def parse_output(
    metadata: Mapping[str, Any], *, default_schema: str, what: str, defaults: Mapping[str, Any] | None = None
) -> TableConfig:
    """Return the table of an op's output, which its metadata names.

    Args:
        metadata: The output's metadata.
        default_schema: The schema where the metadata names none.
        what: The subject of the error text.
        defaults: The IO manager's defaults.

    Raises:
        InvalidConfig: The metadata names no table, or holds an error.
    """
    values = with_defaults(_known(metadata, TABLE_KEYS, what), defaults)
    if not values.get("table"):
        raise InvalidConfig(
            f"{what} is no asset, so it has no table. Name one: dg.Out(metadata={{'table': …}}) (and 'schema'), "
            "make it an "
            "asset, or give the output another io_manager_key."
        )
    return _table_config({"schema": default_schema, **values}, what)


def _table_config(values: Mapping[str, Any], what: str) -> TableConfig:
    """Parse known keys with plain values. Raises InvalidConfig, naming ``what``."""
    where = f"{what}: metadata"
    try:
        config = TableConfig(**_parsed(values, _PARSERS, where))
    except InvalidConfig as error:
        error.name(what)
        raise
    if config.mode in _BY_KEYS and not config.merge_keys:
        raise InvalidConfig(
            f"{where} 'mode' is {config.mode!r}, which needs 'merge_keys', the columns to match rows by."
        )
    if config.merge_keys and config.mode not in (None, *_BY_KEYS):
        raise InvalidConfig(f"{where} 'merge_keys' goes with mode 'merge' or 'delete+insert', not {config.mode!r}.")
    if (config.mode in _SCD) != (config.sequence_by is not None):
        raise InvalidConfig(
            f"{where} 'sequence_by' is the column in whose order changes are applied: "
            "it goes with mode 'scd1' or 'scd2', which need it."
        )
    if config.engine == "spark" and config.writer != "auto":
        raise InvalidConfig(
            f"{where} 'writer' is {config.writer!r}, which makes the data files of engine duckdb; "
            "with engine 'spark' Spark does."
        )
    if config.merge_clauses and (config.mode not in (None, "merge") or not config.merge_keys):
        raise InvalidConfig(f"{where} 'merge_clauses' goes with mode 'merge' and 'merge_keys'.")
    if config.only_if_changed and (config.mode not in (None, "merge", *_SCD) or not config.merge_keys):
        raise InvalidConfig(f"{where} 'only_if_changed' goes with mode 'merge' and 'merge_keys'.")
    return config


def check_defaults(defaults: Mapping[str, Any], what: str) -> None:
    """Refuse defaults that no asset could be written with.

    Args:
        defaults: The IO manager's defaults.
        what: The subject of the error text.

    Raises:
        InvalidConfig: A value is invalid, or two defaults exclude each other.
    """
    parsed = _parsed(defaults, _PARSERS, f"{what}:")
    if parsed.get("merge_keys") and parsed.get("mode") not in (None, *_BY_KEYS):
        raise InvalidConfig(f"{what}: 'merge_keys' goes with mode 'merge' or 'delete+insert', not {parsed['mode']!r}.")
    if parsed.get("partition_by") and parsed.get("cluster_by"):
        raise InvalidConfig(f"{what}: 'partition_by' and 'cluster_by' exclude each other; set one of them.")


def with_defaults(asset_values: Mapping[str, Any], defaults: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an asset's values, completed by the defaults of its IO manager.

    The asset's value wins key by key; ``table_properties`` and ``commit_metadata`` are merged entry
    by entry. An asset's value also removes a default that contradicts it: its ``mode`` removes
    merge keys, its ``partition_by`` removes ``cluster_by``, and engine Spark removes ``writer``. A
    default writer ``delta_rs`` applies to the writes that delta_rs supports.
    """
    base = dict(defaults or {})
    if "writer" in base:
        base["writer"] = preferred(base["writer"])
    if asset_values.get("mode") == "delete+insert" or not (asset_values.get("merge_keys") or base.get("merge_keys")):
        base.pop("only_if_changed", None)
    # An asset without a mode is overwritten anyway; of a partitioned asset, only the run's
    # partitions.
    if base.get("mode") == "overwrite":
        del base["mode"]
    ends: dict[str, tuple[str, ...]] = {"partition_by": ("cluster_by",), "cluster_by": ("partition_by",)}
    if asset_values.get("mode") not in (None, *_BY_KEYS):
        ends["mode"] = _OF_KEYS
    elif asset_values.get("mode") not in (None, *_SCD):
        ends["mode"] = ("sequence_by", "deletes")
    if base.get("mode") not in _BY_KEYS:
        ends["merge_keys"] = ("mode",)
    if asset_values.get("engine") == "spark":
        ends["engine"] = ("writer",)
    for key in asset_values.keys() & ends.keys():
        base = {name: value for name, value in base.items() if name not in ends[key]}
    for key in ("table_properties", "commit_metadata"):
        if isinstance(asset_values.get(key), Mapping) and isinstance(base.get(key), Mapping):
            base[key] = {**base[key], **asset_values[key]}
            asset_values = {name: value for name, value in asset_values.items() if name != key}
    return {**base, **asset_values}


def for_this_run(metadata: Mapping[str, Any], *overrides: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Return an asset's metadata with the overrides of a run; a later override wins.

    A run's mode that does not use merge keys also removes the asset's merge keys.

    Raises:
        InvalidConfig: An override has an unknown key; the text names ``what``.
    """
    result = dict(metadata)
    for override in overrides:
        override_values = _known(override, RUN_KEYS, what)
        if override_values.get("mode") not in (None, *_BY_KEYS):
            result = {key: value for key, value in result.items() if key not in _OF_KEYS}
        result |= override_values
    return result


@dataclass(frozen=True)
class InputConfig:
    """The read that an input requests: the metadata of an ``AssetIn``, parsed."""

    columns: tuple[str, ...] | None = _key(parse.names)
    predicate: str | None = _key(parse.text)
    version: int | None = _key(parse.version)
    timestamp: str | None = _key(parse.moment)
    changes: ChangeKind | None = _key(parse.one_of(KINDS[:4]))
    """The kind of changes to read; None for an input of rows."""
    key: tuple[str, ...] = _key(parse.names, ())
    type: str | None = _key(parse.text)
    """Name of the type of an input without an annotation."""
    allow_missing_partitions: bool = _key(parse.flag, False)
    """True if the input may skip partitions that do not exist."""

    @property
    def read(self) -> ReadSpec:
        """Return the rows to read."""
        return ReadSpec(self.columns, self.predicate, self.version, self.timestamp)


def parse_input(metadata: Mapping[str, Any], *, what: str) -> InputConfig:
    """Return the read that an input requests.

    Raises:
        InvalidConfig: The metadata holds an error; the text names ``what``.
    """
    config = InputConfig(**_parsed(_known(metadata, INPUT_KEYS, what), _INPUT_PARSERS, f"{what}: metadata"))
    if config.version is not None and config.timestamp is not None:
        raise InvalidConfig(f"{what}: metadata names a 'version' and a 'timestamp'; give one of them.")
    if config.key and config.changes is None:
        raise InvalidConfig(f"{what}: metadata 'key' goes with 'changes', whose rows it tells apart.")
    return config


def parse_changes(node: Any) -> dict[str, InputConfig]:
    """Return the inputs of an op or a graph that request changes, by name. Raises InvalidConfig."""
    # The other inputs may have metadata of another IO manager.
    asking = [each for each in node.input_defs if (each.metadata or {}).get("changes") is not None]
    return {each.name: parse_input(each.metadata, what=f"Input {each.name!r}") for each in asking}


def column_descriptions(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the column descriptions in an asset's metadata. Raises InvalidConfig."""
    value = metadata.get("column_descriptions")
    return {} if value is None else parse.texts(getattr(value, "value", value), "metadata 'column_descriptions'")


def _known(metadata: Mapping[str, Any], known: Sequence[str], what: str) -> dict[str, Any]:
    """Return the known keys with plain values. Raises InvalidConfig for a near miss."""
    result: dict[str, Any] = {}
    for key, value in metadata.items():
        if key in known:
            plain = value.value if isinstance(value, MetadataValue) else value
            if plain is not None:
                result[key] = plain
        elif near := _near_miss(key, known):
            raise InvalidConfig(f"{what}: unknown metadata key {key!r}. Did you mean {near!r}?")
    return result


def _near_miss(key: str, known: Sequence[str]) -> str | None:
    if "/" in key:  # the namespace of another library: dagster/…, dagster_dbt/…
        return None
    plain = key.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in _OTHER_WORDS:
        return None
    return next(iter(nearest(plain, known, cutoff=_NEAR)), None)


def _parsed(values: Mapping[str, Any], parsers: Mapping[str, _Parser], where: str) -> dict[str, Any]:
    return {key: parsers[key](value, f"{where} {key!r}") for key, value in values.items()}


def _parsers(cls: type[TableConfig | InputConfig]) -> dict[str, _Parser]:
    return {each.name: each.metadata["parser"] for each in fields(cls) if "parser" in each.metadata}


_PARSERS = _parsers(TableConfig) | {
    "partition_by": parse.names,
    "sort_by": parse.names,
    "cluster_by": parse.names,
    "table_properties": parse.properties,
    "target_file_size": parse.size,
    "compression": parse.one_of(CODECS),
}
TABLE_KEYS = tuple(_PARSERS)
RUN_KEYS = (*(each.name for each in fields(TableConfig) if each.metadata.get("of_run")), "sort_by")
_INPUT_PARSERS = _parsers(InputConfig)
INPUT_KEYS = tuple(_INPUT_PARSERS)
