"""What a DuckLake table is apart from its rows, and the DDL that makes it so.

Types are DuckDB's, as text. Source: the DuckLake specification 1.0, Data Types, Partitioning, Sorted Tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.formats.definitions import Alteration
from duckrun.sql.names import quote_identifier, quote_literal, transpile
from duckrun.values.layout import CHANGE_FEED, COMPRESSION, TARGET_FILE_SIZE, codec_of
from duckrun.values.nearest import did_you_mean
from duckrun.values.rows import SchemaMode
from duckrun.values.tables import (
    SORT_BY,
    AddCheck,
    AddColumn,
    AlterSpec,
    ChangeType,
    ClusterBy,
    ColumnSpec,
    DropCheck,
    DropColumn,
    DropNotNull,
    RenameColumn,
    SetComment,
    SetNotNull,
    SetProperties,
    UnsetProperties,
    sort_order,
)

_REFUSED = {"enum", "union", "array", "bit", "bignum", "varint", "hugeint", "uhugeint"}
"""Types that a DuckLake cannot store; its files hold whole numbers of 128 bits as DOUBLE, so that their last digits are lost."""
_OPTIONS = {COMPRESSION: "parquet_compression", TARGET_FILE_SIZE: "target_file_size"}
"""Table property -> DuckLake's option of the table."""
_NO_OPTIONS = {CHANGE_FEED}
"""Words that a DuckLake fulfils without being told: its catalog knows all changes."""
TRANSFORMS = ("year", "month", "day", "hour", "bucket")
_TRANSFORM = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_WIDER = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT"),
    "UTINYINT": ("USMALLINT", "UINTEGER", "UBIGINT", "SMALLINT", "INTEGER", "BIGINT"),
    "USMALLINT": ("UINTEGER", "UBIGINT", "INTEGER", "BIGINT"),
    "UINTEGER": ("UBIGINT", "BIGINT"),
    "FLOAT": ("DOUBLE",),
}
"""Type -> the types that hold each of its values, to which DuckLake widens. Source: DuckLake specification, Type Promotion."""


@dataclass(frozen=True)
class Partition:
    """A partition key: a column, or a transform of one (``year``, ``month``, ``day``, ``hour``, ``bucket`` into ``buckets``)."""

    column: str
    transform: str = "identity"
    buckets: int | None = None

    @classmethod
    def parse(cls, text: str, columns: Sequence[str]) -> Self:
        """A key as users write it: ``day``, ``month(at)``, ``bucket(8, id)``. Raises InvalidConfig."""
        known = {name.lower(): name for name in columns}
        if text.lower() in known:
            return cls(known[text.lower()])
        found = _TRANSFORM.fullmatch(text)
        if found is None:
            raise InvalidConfig(f"partition_by names {text!r}, which is no column; there are {', '.join(columns)}")
        word, inner = found[1].lower(), found[2].strip()
        buckets = None
        if word == "bucket":
            count, comma, inner = inner.partition(",")
            if not comma or not count.strip().isdigit() or int(count) < 1:
                raise InvalidConfig(f"partition_by: {text!r} is no bucket; write bucket(8, id)")
            buckets = int(count)
        if word not in TRANSFORMS:
            raise InvalidConfig(
                f"partition_by: {word}() is none of DuckLake's partition transforms, which are {', '.join(TRANSFORMS)} and bucket(n, column)."
                f"{did_you_mean(word, TRANSFORMS)}"
            )
        name = inner.strip().strip('"`').lower()
        if name not in known:
            raise InvalidConfig(f"partition_by: {text!r} is of no column; there are {', '.join(columns)}")
        return cls(known[name], word, buckets)

    @classmethod
    def stored(cls, transform: str, column: str) -> Self:
        """A key as the catalog has it."""
        found = re.fullmatch(r"bucket\((\d+)\)", transform)
        return cls(column, "bucket", int(found[1])) if found else cls(column, transform)

    @property
    def sql(self) -> str:
        """The key in DuckLake's SQL."""
        column = quote_identifier(self.column)
        if self.transform == "identity":
            return column
        return f"bucket({self.buckets}, {column})" if self.transform == "bucket" else f"{self.transform}({column})"

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return (
            f"bucket({self.buckets}, {self.column})"
            if self.transform == "bucket"
            else f"{self.transform}({self.column})"
        )


@dataclass(frozen=True)
class DuckLakeDefinition:
    """``fields`` are columns as ``name``, ``type`` (DuckDB's SQL), ``nullable``, ``metadata`` and ``default`` (SQL, or None)."""

    fields: tuple[dict[str, Any], ...]
    partition_by: tuple[Partition, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None

    @property
    def names(self) -> list[str]:
        return [f["name"] for f in self.fields]

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns by whose own values rows are parted."""
        return tuple(key.column for key in self.partition_by if key.transform == "identity")

    @property
    def sql_types(self) -> dict[str, str]:
        return {f["name"]: f["type"] for f in self.fields}

    @property
    def schema(self) -> pa.Schema:
        """The Arrow form of the columns, comments as field metadata."""
        kinds = arrow_types(tuple(f["type"] for f in self.fields))
        return pa.schema(
            [
                pa.field(f["name"], kind, f["nullable"], _metadata(f) or None)
                for f, kind in zip(self.fields, kinds, strict=True)
            ]
        )

    @property
    def schema_json(self) -> str:
        return json.dumps({"type": "struct", "fields": list(self.fields)}, ensure_ascii=False)

    @property
    def sort_by(self) -> tuple[str, ...]:
        return sort_order(self.properties)

    @property
    def checks(self) -> dict[str, str]:
        return {}

    def column(self, name: str) -> dict[str, Any]:
        """A column by its name in any case. Raises SchemaMismatch."""
        for found in self.fields:
            if found["name"].lower() == name.lower():
                return found
        raise SchemaMismatch(f"there is no column {name!r}; the columns are {', '.join(self.names)}")

    def with_column(self, name: str, /, **changes: Any) -> Self:
        old = self.column(name)
        return replace(self, fields=tuple({**f, **changes} if f is old else f for f in self.fields))

    def users_of(self, name: str) -> list[str]:
        """What would not be there without a column."""
        lower = name.lower()
        users = ["the partitioning"] if lower in (key.column.lower() for key in self.partition_by) else []
        return users + (["the sort order"] if lower in (c.lower() for c in self.sort_by) else [])


def _metadata(f: Mapping[str, Any]) -> dict[str, str]:
    """A column's comment, and its default in Spark's SQL, as the fields of any table have them."""
    default = f.get("default")
    said = {} if default is None else {"CURRENT_DEFAULT": transpile(default, "duckdb", "spark")}
    return {**f["metadata"], **said}


@lru_cache(maxsize=512)
def arrow_types(types: tuple[str, ...]) -> tuple[pa.DataType, ...]:
    """DuckDB's types as it gives them to Arrow."""
    with duckdb.connect(config={"threads": "1"}) as alone:
        alone.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"CAST(NULL AS {kind}) AS c{i}" for i, kind in enumerate(types))
        schema = alone.execute(f"SELECT {columns} LIMIT 0").to_arrow_table().schema
    return tuple(f.type for f in schema)


# -- types


def type_in(text: str, dialect: str, column: str) -> str:
    """A type in some dialect's SQL as DuckDB's. Raises SchemaMismatch for one that DuckLake cannot store, InvalidConfig for none."""
    if re.search(r"\bcollate\b", text, re.IGNORECASE):
        raise SchemaMismatch(f"column {column!r}: DuckLake has no collations; leave COLLATE out")
    if re.search(r"\bnot\s+null\b", text, re.IGNORECASE):
        raise UnsupportedFeature(
            f"column {column!r} has NOT NULL inside of its type {text}, which DuckLake does not have; leave it out"
        )
    try:
        said = text if dialect == "duckdb" else exp.DataType.build(text, dialect=dialect).sql(dialect="duckdb")
        kind = duckdb.type(said)
    except (duckdb.Error, SqlglotError) as error:
        raise InvalidConfig(f"column {column!r}: {text!r} is no type: {str(error).splitlines()[0]}") from error
    refuse_type(column, kind)
    return str(kind)


def refuse_type(column: str, kind: Any) -> None:
    """Raise SchemaMismatch for a type, or a part of one, that DuckLake does not have."""
    if kind.id in _REFUSED:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, which DuckLake cannot store; use "
            + (
                "DECIMAL(38, 0)"
                if "hugeint" in kind.id
                else "a list"
                if kind.id == "array"
                else "VARCHAR"
                if kind.id != "union"
                else "a STRUCT"
            )
        )
    if kind.id in ("list", "map", "struct"):
        for name, inner in kind.children:
            refuse_type(f"{column}.{name}", inner)


def refuse_names(names: Iterable[str]) -> None:
    """Raise SchemaMismatch for a column that would hide one of DuckLake's own, by which it knows its rows."""
    for name in names:
        if name.lower() == "rowid":
            raise SchemaMismatch(
                "a DuckLake table has no column rowid: that is the name of its row ids; choose another name"
            )


# -- properties


def refuse_properties(properties: Mapping[str, str]) -> None:
    """Raise InvalidConfig for properties that a DuckLake table has not."""
    for name in properties:
        if name in _OPTIONS or name in (SORT_BY, *_NO_OPTIONS):
            continue
        if name.lower().startswith("delta."):
            raise InvalidConfig(
                f"{name} is a property of Delta tables, and this lake is of format ducklake: leave it out"
            )
        raise InvalidConfig(
            f"a DuckLake table keeps no property {name}; it knows {', '.join((*_OPTIONS, SORT_BY))}.{did_you_mean(name, (*_OPTIONS, SORT_BY))}"
        )


def kept(properties: Mapping[str, str]) -> dict[str, str]:
    """Those that the catalog holds."""
    refuse_properties(properties)
    codec_of(properties)
    return {name: str(value) for name, value in properties.items() if name not in _NO_OPTIONS}


# -- definitions


def field_of(column: ColumnSpec, dialect: str) -> dict[str, Any]:
    """A column to make. Raises UnsupportedFeature for one that is computed."""
    if column.generated is not None or column.identity is not None:
        raise UnsupportedFeature(f"column {column.name} is {column.computed}, which DuckLake does not have")
    default = column.default
    if default is not None and dialect != "duckdb":
        default = transpile(default, dialect, "duckdb")
    return {
        "name": column.name,
        "type": type_in(column.type, dialect, column.name),
        "nullable": column.nullable,
        "metadata": {} if column.comment is None else {"comment": column.comment},
        "default": default,
    }


def partitions(keys: Sequence[str], names: Sequence[str]) -> tuple[Partition, ...]:
    return tuple(Partition.parse(key, names) for key in keys)


@dataclass(frozen=True)
class DuckLakeAlteration(Alteration):
    """An alteration that no data file is written anew for; ``renames`` are (old, new) in their order."""

    renames: tuple[tuple[str, str], ...] = ()

    @property
    def rewrites(self) -> bool:
        return False

    def tests(self) -> list[tuple[str, str]]:
        """DuckLake tests the rows itself."""
        return []


def altered(before: DuckLakeDefinition, spec: AlterSpec) -> DuckLakeAlteration:
    """The definition after some changes, in their order. Raises SchemaMismatch, InvalidConfig, UnsupportedFeature."""
    now, renames = before, []
    columns: dict[str, str | None] = {name: name for name in before.names}
    for change in spec.changes:
        match change:
            case AddColumn(column):
                if column.name.lower() in (name.lower() for name in now.names):
                    raise SchemaMismatch(f"there is a column {column.name!r} already")
                if not column.nullable and column.default is None:
                    raise SchemaMismatch(
                        f"column {column.name} is to be NOT NULL, and rows that are there would have a NULL in it; give it a default, or add it "
                        "first and set NOT NULL once it is filled"
                    )
                refuse_names([column.name])
                now = replace(now, fields=(*now.fields, field_of(column, spec.dialect)))
                columns[column.name] = None
            case DropColumn(name):
                found = now.column(name)
                if users := now.users_of(name):
                    raise InvalidConfig(f"column {found['name']} cannot go: {' and '.join(users)} needs it")
                if len(now.fields) == 1:
                    raise InvalidConfig(f"column {found['name']} cannot go: it is the only one")
                now = replace(now, fields=tuple(f for f in now.fields if f is not found))
                columns.pop(found["name"])
            case RenameColumn(name, to):
                found = now.column(name)
                if to.lower() != found["name"].lower() and to.lower() in (n.lower() for n in now.names):
                    raise SchemaMismatch(f"there is a column {to!r} already")
                refuse_names([to])
                renames.append((found["name"], to))
                columns = {(to if new == found["name"] else new): old for new, old in columns.items()}
                keys = tuple(replace(k, column=to) if k.column == found["name"] else k for k in now.partition_by)
                order = [to if c == found["name"] else c for c in now.sort_by]
                properties = {**now.properties, **({SORT_BY: json.dumps(order)} if order else {})}
                now = replace(now.with_column(name, name=to), partition_by=keys, properties=properties)
            case ChangeType(name, kind):
                found = now.column(name)
                new = type_in(kind, spec.dialect, name)
                if new != found["type"] and not widens(found["type"], new):
                    raise SchemaMismatch(
                        f"column {found['name']} cannot become {new}: DuckLake only widens types, and {found['type']} holds values that it does not"
                    )
                now = now.with_column(name, type=new)
            case SetNotNull(name):
                now = now.with_column(name, nullable=False)
            case DropNotNull(name):
                now = now.with_column(name, nullable=True)
            case SetComment(comment, None):
                now = replace(now, description=comment)
            case SetComment(comment, name):
                now = now.with_column(str(name), metadata={} if comment is None else {"comment": comment})
            case SetProperties(asked):
                now = replace(now, properties={**now.properties, **kept(asked)})
            case UnsetProperties(names, if_exists):
                absent = [name for name in names if name not in now.properties]
                if absent and not if_exists:
                    raise InvalidConfig(f"there is no property {', '.join(absent)}")
                now = replace(now, properties={n: v for n, v in now.properties.items() if n not in names})
            case AddCheck() | DropCheck():
                raise UnsupportedFeature(
                    "DuckLake has no CHECK constraints; check the rows before they are written (a dbt test, a Dagster check)"
                )
            case ClusterBy():
                raise UnsupportedFeature("cluster_by is Delta's liquid clustering; a DuckLake table has sort_by")
    return DuckLakeAlteration(before, now, columns, renames=tuple(renames))


def widens(old: str, new: str) -> bool:
    """True if DuckLake changes a column of one type to the other."""
    if new in _WIDER.get(old, ()):
        return True
    decimals = [re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", kind) for kind in (old, new)]
    if decimals[0] and decimals[1]:
        (p, s), (q, t) = ((int(d[1]), int(d[2])) for d in decimals if d is not None)
        return t >= s and q - t >= p - s
    kinds = [duckdb.type(kind) for kind in (old, new)]
    return (
        all(kind.id == "struct" for kind in kinds) and dict(kinds[0].children).keys() <= dict(kinds[1].children).keys()
    )


def evolved(before: DuckLakeDefinition, fields: Sequence[Mapping[str, Any]], mode: SchemaMode) -> DuckLakeAlteration:
    """The definition that takes the columns of a source."""
    there = {f["name"].lower(): f for f in before.fields}
    incoming = {f["name"].lower(): dict(f) for f in fields}
    columns: dict[str, str | None] = {}
    now: list[dict[str, Any]] = []
    for lower, old in there.items():
        new = incoming.get(lower)
        if mode == "sync_all_columns" and new is None:
            if users := before.users_of(old["name"]):
                raise InvalidConfig(f"column {old['name']} cannot go: {' and '.join(users)} needs it")
            continue
        kept_field = dict(old)
        if mode == "sync_all_columns" and new is not None and new["type"] != old["type"]:
            kept_field["type"] = new["type"]
        now.append(kept_field)
        columns[old["name"]] = old["name"]
    for lower, new in incoming.items():
        if lower not in there:
            refuse_names([new["name"]])
            now.append({**new, "nullable": True})
            columns[new["name"]] = None
    return DuckLakeAlteration(before, replace(before, fields=tuple(now)), columns)


# -- DDL


def created_sql(table: str, made: DuckLakeDefinition) -> Iterator[str]:
    """The statements that make a table."""
    columns = ", ".join(_column(f) for f in made.fields)
    yield f"CREATE TABLE {table} ({columns})"
    yield from _layout(table, None, made)
    yield from _comments(table, None, made)


def changed_sql(
    table: str,
    before: DuckLakeDefinition,
    after: DuckLakeDefinition,
    renames: Sequence[tuple[str, str]] = (),
    *,
    empty: bool = False,
) -> Iterator[str]:
    """The statements that make one definition the other. A column whose type does not widen to its new one goes and comes again without its
    values; of an ``empty`` table so do those that would else stand in another order.
    """
    for was, now in renames:
        yield f"ALTER TABLE {table} RENAME COLUMN {quote_identifier(was)} TO {quote_identifier(now)}"
    named = dict(renames)
    were = {named.get(f["name"], f["name"]): f for f in before.fields}
    gone = [name for name in were if name not in after.names]
    doomed = _anew(were, after, empty)
    moved = bool(gone or doomed)
    lost = {*gone, *doomed}
    keys = {key.column for key in before.partition_by}
    if keys and moved and (before.partition_by != after.partition_by or keys & lost):
        yield f"ALTER TABLE {table} RESET PARTITIONED BY"
        before = replace(before, partition_by=())
    if before.sort_by and moved and (before.sort_by != after.sort_by or not lost.isdisjoint(before.sort_by)):
        yield f"ALTER TABLE {table} RESET SORTED BY"
        before = replace(before, properties={k: v for k, v in before.properties.items() if k != SORT_BY})
    for name in doomed:
        yield f"ALTER TABLE {table} RENAME COLUMN {quote_identifier(name)} TO {quote_identifier(_GONE + name)}"
    fresh = [f for f in after.fields if f["name"] not in were or f["name"] in doomed]
    for f in fresh:
        yield f"ALTER TABLE {table} ADD COLUMN {_column(f, not_null=False)}"
    for name in (*gone, *(_GONE + name for name in doomed)):
        yield f"ALTER TABLE {table} DROP COLUMN {quote_identifier(name)}"
    for f in after.fields:
        old = were.get(f["name"])
        if old is not None and f["name"] not in doomed:
            yield from _changed_column(f"ALTER TABLE {table} ALTER COLUMN {quote_identifier(f['name'])}", old, f)
    for f in fresh:
        if not f["nullable"]:
            yield f"ALTER TABLE {table} ALTER COLUMN {quote_identifier(f['name'])} SET NOT NULL"
    yield from _layout(table, before, after, anew=moved)
    yield from _comments(table, before, after, {*doomed})


_GONE = "__duckrun_gone_"


def _anew(were: Mapping[str, Mapping[str, Any]], after: DuckLakeDefinition, empty: bool) -> list[str]:
    """The columns that go and come again under their names, in their new order."""
    kept = [
        f["name"]
        for f in after.fields
        if f["name"] in were
        and (f["type"] == were[f["name"]]["type"] or (not empty and widens(were[f["name"]]["type"], f["type"])))
    ]
    if empty:
        stays = [name for name in were if name in kept]
        ahead = 0
        while ahead < min(len(stays), len(after.fields)) and stays[ahead] == after.fields[ahead]["name"]:
            ahead += 1
        kept = stays[:ahead]
    return [f["name"] for f in after.fields if f["name"] in were and f["name"] not in kept]


def requires_added(before: DuckLakeDefinition, after: DuckLakeDefinition) -> bool:
    """True if a column is NOT NULL that an empty table of one definition gets on its way to the other."""
    were = {f["name"]: f for f in before.fields}
    anew = _anew(were, after, True)
    return any(not f["nullable"] and (f["name"] not in were or f["name"] in anew) for f in after.fields)


def one_part(table: object, made: DuckLakeDefinition) -> Partition:
    """A partitioning with one part. Raises UnsupportedFeature where no column has a type that DuckLake puts into buckets."""
    for f in made.fields:
        if re.match(r"(U?(TINY|SMALL|BIG)?INT(EGER)?|DECIMAL|DATE|VARCHAR|TIMESTAMP|UUID|BLOB)", f["type"]):
            return Partition(f["name"], "bucket", 1)
    raise UnsupportedFeature(
        f"table {table} cannot lose its partitions in one commit with its rows: partition it otherwise, or create it anew"
    )


def _changed_column(start: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if new["type"] != old["type"]:
        yield f"{start} SET DATA TYPE {new['type']}"
    if new["nullable"] != old["nullable"]:
        yield f"{start} {'DROP' if new['nullable'] else 'SET'} NOT NULL"
    default = new.get("default")
    if default != old.get("default"):
        yield f"{start} {'DROP DEFAULT' if default is None else f'SET DEFAULT {default}'}"


def _column(f: Mapping[str, Any], *, not_null: bool = True) -> str:
    default = "" if f.get("default") is None else f" DEFAULT {f['default']}"
    return f"{quote_identifier(f['name'])} {f['type']}{default}{' NOT NULL' if not_null and not f['nullable'] else ''}"


def _layout(
    table: str, before: DuckLakeDefinition | None, after: DuckLakeDefinition, *, anew: bool = False
) -> Iterator[str]:
    was = () if before is None else before.partition_by
    if was != after.partition_by:
        if after.partition_by:
            yield f"ALTER TABLE {table} SET PARTITIONED BY ({', '.join(key.sql for key in after.partition_by)})"
        elif not anew:
            yield f"ALTER TABLE {table} RESET PARTITIONED BY"
    order = () if before is None else before.sort_by
    if order != after.sort_by:
        if after.sort_by:
            yield f"ALTER TABLE {table} SET SORTED BY ({', '.join(f'{quote_identifier(c)} ASC' for c in after.sort_by)})"
        elif not anew:
            yield f"ALTER TABLE {table} RESET SORTED BY"


def _comments(
    table: str, before: DuckLakeDefinition | None, after: DuckLakeDefinition, anew: Iterable[str] = ()
) -> Iterator[str]:
    if (None if before is None else before.description) != after.description:
        yield f"COMMENT ON TABLE {table} IS {'NULL' if after.description is None else quote_literal(after.description)}"
    were = (
        {}
        if before is None
        else {f["name"]: f["metadata"].get("comment") for f in before.fields if f["name"] not in anew}
    )
    for f in after.fields:
        comment = f["metadata"].get("comment")
        if were.get(f["name"]) != comment:
            said = "NULL" if comment is None else quote_literal(comment)
            yield f"COMMENT ON COLUMN {table}.{quote_identifier(f['name'])} IS {said}"


def options_of(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """DuckLake's options of the table that change: name -> value."""
    changed = {name: after[name] for name in _OPTIONS if name in after and before.get(name) != after[name]}
    return {_OPTIONS[name]: value for name, value in changed.items()}


def properties_of(options: Mapping[str, str]) -> dict[str, str]:
    """The table properties that options stand for."""
    return {name: options[option] for name, option in _OPTIONS.items() if option in options}
