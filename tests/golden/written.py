"""A table that another writer made, every way to write it, and a plain model in Python of the rows that each comes to."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from duckrun import (
    AddCheck,
    AddColumn,
    AlterSpec,
    ChangeType,
    CheckpointSpec,
    ClusterBy,
    ColumnSpec,
    DeleteInsertSpec,
    DeleteSpec,
    DropCheck,
    DropColumn,
    DropNotNull,
    DuckrunError,
    InStruct,
    MergeClause,
    MergeSpec,
    OptimizeSpec,
    PurgeSpec,
    RenameColumn,
    RestoreSpec,
    Session,
    SetComment,
    SetNotNull,
    SetProperties,
    UpdateSpec,
    WriteSpec,
)  # fmt: skip
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.snapshot import TableRef

Row = dict[str, Any]
ADDED = "added_since"
WIDER = {"TINYINT": "SMALLINT", "SMALLINT": "INTEGER", "INTEGER": "BIGINT", "FLOAT": "DOUBLE"}
ARROW = {"SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}


@dataclass(frozen=True)
class State:
    """What a version holds: its columns with their types in DuckDB, its rows, and what its files are parted by. ``key`` is the
    column that rows are found by.
    """

    schema: pa.Schema
    types: Mapping[str, str]
    rows: list[Row]
    partitions: tuple[str, ...]
    key: str
    clustered: bool = False

    def multiset(self) -> Counter[str]:
        """The rows as `multiset` has those of a reader."""
        return multiset(pa.Table.from_pylist(self.rows, self.schema))

    def adding(self, name: str, values: Any = None) -> State:
        """With one more BIGINT column, last."""
        return replace(
            self,
            schema=self.schema.append(pa.field(name, pa.int64())),
            types={**self.types, name: "BIGINT"},
            rows=[{**row, name: values} for row in self.rows],
        )

    def without(self, name: str) -> State:
        """With one column less."""
        schema = self.schema.remove(self.schema.get_field_index(name))
        return replace(self, schema=schema, rows=[{n: row[n] for n in schema.names} for row in self.rows])

    def renaming(self, old: str, new: str) -> State:
        """With another name of a column."""
        names = dict(zip(self.schema.names, self.schema.names, strict=True)) | {old: new}
        return replace(
            self,
            schema=pa.schema([f.with_name(names[f.name]) for f in self.schema]),
            types={names.get(name, name): kind for name, kind in self.types.items()},
            rows=[{names[name]: value for name, value in row.items()} for row in self.rows],
            partitions=tuple(names[name] for name in self.partitions),
            key=names[self.key],
        )

    def widening(self, name: str, kind: str) -> State:
        """With another type of a column, which holds all its values."""
        at = self.schema.get_field_index(name)
        schema = self.schema.set(at, pa.field(name, ARROW[kind]))
        return replace(self, schema=schema, types={**self.types, name: kind})


def multiset(rows: pa.Table) -> Counter[str]:
    """The rows of a table, each as text with instants in UTC, and how often each is there."""
    return Counter(repr([_plain(value) for value in row.values()]) for row in rows.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def state_of(rows: pa.Table, types: Mapping[str, str], partitions: tuple[str, ...]) -> State:
    """The first state of a table, found by the column that is fit best for it."""
    kinds = (
        lambda t: pa.types.is_int32(t) or pa.types.is_int64(t), pa.types.is_string, pa.types.is_decimal,
        pa.types.is_date, pa.types.is_timestamp, pa.types.is_integer, pa.types.is_list, pa.types.is_struct,
    )  # fmt: skip

    def unfit(column: pa.Field) -> tuple[bool, int]:
        return column.name in partitions, next((n for n, is_it in enumerate(kinds) if is_it(column.type)), len(kinds))

    return State(rows.schema, types, rows.to_pylist(), partitions, min(rows.schema, key=unfit).name)


@dataclass
class Written:
    """One table from its first step to its last. ``how`` are the fields that each spec of rows gets."""

    session: Session
    ref: TableRef
    rng: random.Random
    now: State
    how: Mapping[str, Any] = field(default_factory=dict)
    used: list[Any] = field(default_factory=list)
    history: dict[int, tuple[str, State]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.used.extend(row[self.now.key] for row in self.now.rows)
        self.history[self.version] = "as it was", self.now

    @property
    def version(self) -> int:
        return self.session.snapshot(self.ref).version

    def take(self, step: Callable[[Written], State]) -> None:
        """Carry out a step, and have its state as that of the version that it made."""
        before = self.now
        try:
            self.now = step(self)
        except DuckrunError:
            self.now = before
            raise
        self.history[self.version] = step.__name__, self.now

    # -- words of a statement

    def _some_key(self) -> Any:
        """A value that rows have; a new one where none has any."""
        keys = [row[self.now.key] for row in self.now.rows if row[self.now.key] is not None]
        return self.rng.choice(keys) if keys else self._new_key()

    def _new_key(self) -> Any:
        new = new_value(self.now.schema.field(self.now.key).type, self.used)
        self.used.append(new)
        return new

    def _is(self, column: str, value: Any, of: str = "") -> str:
        """SQL of the rows that have a value."""
        name = of + quote_identifier(column)
        return f"{name} IS NULL" if value is None else f"{name} = {self._literal(column, value)}"

    def _literal(self, column: str, value: Any) -> str:
        kind = self.now.types[column]
        if isinstance(value, list):
            return f"CAST([{', '.join('NULL' if v is None else quote_literal(str(v)) for v in value)}] AS {kind})"
        text = value.isoformat() if isinstance(value, (date, datetime)) else str(value)
        return f"CAST({quote_literal(text)} AS {kind})"

    def _like(self, key: Any) -> Row:
        """A row with the values of one that is there, but for its key."""
        rows = self.now.rows or [dict.fromkeys(self.now.schema.names)]
        return {**self.rng.choice(rows), self.now.key: key}

    def _new_rows(self, count: int) -> list[Row]:
        return [self._like(self._new_key()) for _ in range(count)]

    def _split(self, value: Any, column: str | None = None) -> tuple[list[Row], list[Row]]:
        """The rows that have a value, and the others."""
        name = column or self.now.key
        return [r for r in self.now.rows if r[name] == value], [r for r in self.now.rows if r[name] != value]

    def _others(self) -> list[str]:
        """The columns that are neither the key nor what the files are parted by."""
        return [name for name in self.now.schema.names if name not in (self.now.key, *self.now.partitions)]

    # -- writes

    def write(self, spec: Any, source: list[Row] | None = None, schema: pa.Schema | None = None) -> Any:
        table = None if source is None else pa.Table.from_pylist(source, schema or self.now.schema)
        return self.session.execute(self.ref, replace(spec, **self.how), table)

    def _left(self, rows: list[Row]) -> State:
        return replace(self.now, rows=rows)

    def append(self) -> State:
        new = self._new_rows(2)
        self.write(WriteSpec("append"), new)
        return self._left(self.now.rows + new)

    def safeappend(self) -> State:
        new = self._new_rows(1)
        self.write(WriteSpec("safeappend", read_version=self.version), new)
        return self._left(self.now.rows + new)

    def append_with_a_new_column(self) -> State:
        if ADDED in self.now.schema.names:
            return self.append()
        wider, new = self.now.adding(ADDED), [{**self._new_rows(1)[0], ADDED: 7}]
        self.write(WriteSpec("append", schema_mode="append_new_columns"), new, wider.schema)
        return replace(wider, rows=wider.rows + new)

    def ignore_and_error(self) -> State:
        """Nothing, since the table is there."""
        new, before = self._new_rows(1), self.version
        self.write(WriteSpec("ignore"), new)
        with pytest.raises(DuckrunError, match=self.ref.name):
            self.write(WriteSpec("error"), new)
        assert self.version == before
        return self.now

    def merge(self) -> State:
        changed, new = self._like(self._some_key()), self._like(self._new_key())
        self.write(MergeSpec((self.now.key,)), [changed, new])
        there, others = self._split(changed[self.now.key])
        return self._left(others + [changed] * max(1, len(there)) + [new])

    def merge_with_conditions(self) -> State:
        """Of the rows that match some are deleted and some changed; of two new ones one comes."""
        key = self.now.key
        gone, changed, absent, new = self._some_key(), self._some_key(), self._new_key(), self._new_key()
        source = {repr(each): self._like(each) for each in (gone, changed, absent, new)}
        clauses = (
            MergeClause("matched_delete", self._is(key, gone, "target.")),
            MergeClause("matched_update", f"source.{quote_identifier(key)} IS NOT NULL"),
            MergeClause("not_matched_insert", f"NOT ({self._is(key, absent, 'source.')})"),
        )
        self.write(MergeSpec((key,), clauses), list(source.values()))
        there = {repr(row[key]) for row in self.now.rows}
        rows = [source[repr(row[key])] if row[key] == changed else row for row in self.now.rows if row[key] != gone]
        came = {repr(each) for each in (gone, changed, new)} - there
        return self._left(rows + [source[each] for each in sorted(came)])

    def merge_by_source(self) -> State:
        """Of the rows that the source lacks some are deleted, and the others lose a value."""
        key, stays, gone, new = self.now.key, self._some_key(), self._some_key(), self._new_key()
        source, others = [self._like(stays), self._like(new)], self._others()
        clauses = [
            MergeClause("not_matched_insert"),
            MergeClause("not_matched_by_source_delete", self._is(key, gone, "target.")),
        ]
        there, absent = self._split(stays)
        absent = [row for row in absent if row[key] != gone]
        if others:
            name = self.rng.choice(others)
            clauses.append(MergeClause("matched_update", set={name: f"source.{quote_identifier(name)}"}))
            clauses.append(MergeClause("not_matched_by_source_update", set={name: "NULL"}))
            there = [{**row, name: source[0][name]} for row in there]
            absent = [{**row, name: None} for row in absent]
        self.write(MergeSpec((key,), tuple(clauses)), source)
        return self._left((there or source[:1]) + absent + source[1:])

    def update(self) -> State:
        key, old, new = self.now.key, self._some_key(), self._new_key()
        self.write(UpdateSpec({key: self._literal(key, new)}, self._is(key, old)))
        there, others = self._split(old)
        return self._left(others + [{**row, key: new} for row in there])

    def update_every_row(self) -> State:
        if not (others := [name for name in self.now.schema.names if name != self.now.key]):
            return self.update()
        name = self.rng.choice(others)
        self.write(UpdateSpec({name: "NULL"}))
        return self._left([{**row, name: None} for row in self.now.rows])

    def delete(self) -> State:
        old = self._some_key()
        self.write(DeleteSpec(self._is(self.now.key, old)))
        return self._left(self._split(old)[1])

    def delete_of_a_partition(self) -> State:
        if not (self.now.partitions and self.now.rows):
            return self.delete()
        part = self.now.partitions[-1]
        value = self.rng.choice(self.now.rows)[part]
        self.write(DeleteSpec(self._is(part, value)))
        return self._left(self._split(value, part)[1])

    def delete_of_every_row(self) -> State:
        self.write(DeleteSpec())
        return self._left([])

    def delete_insert(self) -> State:
        old = self._some_key()
        source = [self._like(old), self._like(old), *self._new_rows(1)]
        self.write(DeleteInsertSpec((self.now.key,)), source)
        return self._left(self._split(old)[1] + source)

    def replace_by_predicate(self) -> State:
        old = self._some_key()
        source = [self._like(old), self._like(old)]
        self.write(WriteSpec("replace", predicate=self._is(self.now.key, old)), source)
        return self._left(self._split(old)[1] + source)

    def replace_of_a_partition(self) -> State:
        if not self.now.partitions:
            return self.replace_by_predicate()
        part, source = self.now.partitions[0], self._new_rows(1)
        value = source[0][part]
        self.write(WriteSpec("replace", predicate=self._is(part, value)), source)
        return self._left(self._split(value, part)[1] + source)

    def replace_of_partitions(self) -> State:
        if not self.now.partitions:
            return self.replace_by_predicate()
        source = self._new_rows(2)
        self.write(WriteSpec("replace"), source)
        part_of = lambda row: [row[name] for name in self.now.partitions]  # noqa: E731
        parts = [part_of(row) for row in source]
        return self._left([row for row in self.now.rows if part_of(row) not in parts] + source)

    def overwrite(self) -> State:
        new = self._new_rows(3)
        self.write(WriteSpec("overwrite"), new)
        return self._left(new)

    def overwrite_with_other_columns(self) -> State:
        """One goes, and one comes."""
        new = self.now if ADDED in self.now.schema.names else self.now.adding(ADDED)
        if others := [name for name in self._others() if name != ADDED]:
            new = new.without(others[0])
        rows = [{name: {**row, ADDED: 2**40}[name] for name in new.schema.names} for row in self._new_rows(2)]
        self.write(WriteSpec("overwrite", schema_mode="sync_all_columns"), rows, new.schema)
        return replace(new, rows=rows)

    def overwrite_with_other_partitions(self) -> State:
        if self.now.clustered:
            return self.overwrite()
        rows, spec = self._new_rows(3), WriteSpec("overwrite", partition_by=())
        simple = (pa.types.is_integer, pa.types.is_string, pa.types.is_date)
        if (
            not self.now.partitions
            and self._others()
            and any(is_it(self.now.schema.field(self.now.key).type) for is_it in simple)
        ):
            spec = replace(spec, partition_by=(self.now.key,))
        self.write(spec, rows)
        return replace(self.now, rows=rows, partitions=spec.partition_by or ())

    # -- the table itself

    def _alter(self, *changes: Any) -> None:
        self.session.execute(self.ref, AlterSpec(changes))

    def add_column(self) -> State:
        if ADDED in self.now.schema.names:
            return self.drop_column()
        self._alter(AddColumn(ColumnSpec(ADDED, "BIGINT")))
        return self.now.adding(ADDED)

    def add_field(self) -> State:
        found = next((f for f in self.now.schema if pa.types.is_struct(f.type)), None)
        if found is None or any(field.name == ADDED for field in found.type):
            return self.append()
        self._alter(InStruct((found.name,), AddColumn(ColumnSpec(ADDED, "BIGINT"))))
        kind = pa.struct([*found.type, pa.field(ADDED, pa.int64())])
        schema = self.now.schema.set(self.now.schema.get_field_index(found.name), found.with_type(kind))
        rows = [
            {**row, found.name: None if row[found.name] is None else {**row[found.name], ADDED: None}}
            for row in self.now.rows
        ]
        return replace(self.now, schema=schema, rows=rows)

    def drop_column(self) -> State:
        others = self._others()
        if not others or len({self.now.key, *others, *self.now.partitions}) == len(self.now.partitions) + 1:
            return self.append()  # the last one that the files are not parted by stays
        self._alter(DropColumn(others[-1]))
        return self.now.without(others[-1])

    def rename_column(self) -> State:
        name = self.rng.choice(self.now.schema.names)
        new = f"{name}_renamed"
        self._alter(RenameColumn(name, to=new))
        return self.now.renaming(name, new)

    def change_type(self) -> State:
        found = [n for n in self.now.schema.names if self.now.types[n] in WIDER and n not in self.now.partitions]
        if not found:
            return self.append()
        name, wider = found[0], WIDER[self.now.types[found[0]]]
        self._alter(ChangeType(name, wider))
        return self.now.widening(name, wider)

    def hold_rows_to(self) -> State:
        """NOT NULL and a condition, which rows that break them show; then neither."""
        key = self.now.key
        if any(row[key] is None for row in self.now.rows):
            return self.now
        self._alter(SetNotNull(key), AddCheck("is_there", f"{quote_identifier(key)} IS NOT NULL"))
        before = self.version
        with pytest.raises(DuckrunError, match=self.ref.name):
            self.write(WriteSpec("append"), [self._like(None)])
        assert self.version == before
        self.history[before] = "hold_rows_to", self.now
        self._alter(DropNotNull(key), DropCheck("is_there"))
        return self.now

    def say_more(self) -> State:
        self._alter(
            SetComment("what others' writers left"), SetComment("a key", column=self.now.key),
            SetProperties({"delta.logRetentionDuration": "interval 60 days", "our.own": "it's"}),
        )  # fmt: skip
        return self.now

    def cluster(self) -> State:
        """By its key, and rows more in that order; a table with partitions is put in order only."""
        if self.now.partitions:
            return self.put_in_order()
        self._alter(ClusterBy((self.now.key,)))
        self.now = replace(self.now, clustered=True)
        self.history[self.version] = "cluster", self.now
        self.session.execute(self.ref, OptimizeSpec())
        self.history[self.version] = "optimize of clusters", self.now
        return self.append()

    def optimize(self) -> State:
        self.session.execute(self.ref, OptimizeSpec())
        return self.now

    def optimize_a_partition(self) -> State:
        if not (self.now.partitions and self.now.rows):
            return self.optimize()
        part = self.now.partitions[0]
        self.session.execute(self.ref, OptimizeSpec(self._is(part, self.now.rows[0][part])))
        return self.now

    def put_in_order(self) -> State:
        columns = [name for name in (self.now.key, *self._others()) if name not in self.now.partitions]
        if self.now.clustered:
            return self.optimize()
        self.session.execute(self.ref, OptimizeSpec(z_order_by=tuple(columns[:2])))
        return self.now

    def purge(self) -> State:
        self.session.execute(self.ref, PurgeSpec())
        return self.now

    def checkpoint(self) -> State:
        self.session.execute(self.ref, CheckpointSpec())
        return self.now

    def restore(self) -> State:
        version = self.rng.choice(sorted(self.history))
        self.session.execute(self.ref, RestoreSpec(version=version))
        return self.history[version][1]


STEPS: tuple[Callable[[Written], State], ...] = (
    Written.append, Written.safeappend, Written.append_with_a_new_column, Written.ignore_and_error, Written.merge,
    Written.merge_with_conditions, Written.merge_by_source, Written.update, Written.update_every_row, Written.delete,
    Written.delete_of_a_partition, Written.delete_of_every_row, Written.delete_insert, Written.replace_by_predicate,
    Written.replace_of_a_partition, Written.replace_of_partitions, Written.overwrite, Written.overwrite_with_other_columns,
    Written.overwrite_with_other_partitions, Written.add_column, Written.add_field, Written.drop_column, Written.rename_column,
    Written.change_type, Written.hold_rows_to, Written.say_more, Written.cluster, Written.optimize, Written.optimize_a_partition,
    Written.put_in_order, Written.purge, Written.checkpoint, Written.restore,
)  # fmt: skip
"""Every step but VACUUM, after which the versions before are gone."""


def new_value(kind: pa.DataType, used: list[Any]) -> Any:
    """A value of a type that is none of those used."""
    if pa.types.is_list(kind):
        return [new_value(kind.value_type, [each for value in used if value for each in value])]
    if pa.types.is_struct(kind):
        return {f.name: new_value(f.type, [value[f.name] for value in used if value]) for f in kind}
    count = len(used)
    while (value := _nth(kind, count)) in used:
        count += 1
    return value


def _nth(kind: pa.DataType, count: int) -> Any:
    if pa.types.is_integer(kind):
        return count % 120 if kind.bit_width == 8 else count + 1
    if pa.types.is_decimal(kind):
        return Decimal(count % 10**kind.precision).scaleb(-kind.scale)
    if pa.types.is_date(kind):
        return date(2031, 1, 1) + timedelta(days=count)
    if pa.types.is_timestamp(kind):
        return datetime(2031, 1, 1, tzinfo=UTC if kind.tz else None) + timedelta(microseconds=count * 999_999)
    assert pa.types.is_string(kind), kind
    return f"it's new {count}"
