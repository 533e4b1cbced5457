"""Changes of table definitions: those of an ALTER, and those that the written rows imply.

Both formats share them. A format supplies its types and its rules for names, layout and properties.
No engine is used here. The engine gets the conditions that rows must meet, and which old column
fills each new one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from duckrun.errors import InvalidConfig, SchemaMismatch
from duckrun.formats import nested
from duckrun.formats.definitions import TableDefinition, refuse_known
from duckrun.formats.nested import Field, Types
from duckrun.values.choices import SchemaMode
from duckrun.values.frozen import frozen
from duckrun.values.tables import (
    AddCheck,
    AddColumn,
    Change,
    ChangeType,
    ClusterBy,
    DropCheck,
    DropColumn,
    DropNotNull,
    InStruct,
    PartitionBy,
    RenameColumn,
    SetComment,
    SetDefault,
    SetNotNull,
    SetProperties,
    UnsetProperties,
)

D = TypeVar("D", bound=TableDefinition)
A = TypeVar("A")
Make = Callable[[D, D, dict[str, str | None], frozenset[str]], A]
"""Class of a format's Alteration, by its fields."""
Path = Sequence[str]
"""A column, then the parts inside it, as the table spells them."""


@frozen
class Rules(ABC, Generic[D]):
    """The part of a change that differs by format."""

    dialect: str = "duckdb"
    """SQL dialect of types and expressions in the changes."""
    types: ClassVar[Types]

    # -- columns and fields

    @abstractmethod
    def type_of(self, text: str, where: str) -> Any:
        """Return the type that a text in the dialect names."""

    @abstractmethod
    def new_field(self, column: Any, path: Path) -> Field:
        """Return a new column, or a new field of the struct at a path.

        Raises:
            SchemaMismatch, UnsupportedFeature: The format cannot add it to existing rows.
        """

    @abstractmethod
    def widens(self, old: Any, new: Any) -> bool:
        """True if a column can change from one type to another, which holds all its values."""

    @abstractmethod
    def why_narrower(self, old: Any) -> str:
        """Return the reason why a type cannot change to one that it does not widen to."""

    def retyped(self, now: D, path: Path, field: Field, kind: Any) -> Field:
        """Return a field at a path with a wider type."""
        return {**field, "type": kind}

    def opened(self, field: Field) -> Field:
        """Return a column with all that its type says in ``type``, for a change of it."""
        return field

    def closed(self, field: Field) -> Field:
        """Return a changed column as the definition has it."""
        return field

    def refuse_name(self, name: str) -> None:
        """Raise SchemaMismatch for a column name that the format reserves."""

    def refuse_inside(self, now: D, path: Path, change: Change) -> None:
        """Raise an error if a field of the struct at a path cannot change so."""

    def fills(self, column: Field) -> bool:
        """True if rows may come without a value for a column, which then stays."""
        return False

    @abstractmethod
    def refuse_last(self, now: D, name: str) -> None:
        """Raise an error if the table cannot be without a column."""

    @abstractmethod
    def followers(self, now: D) -> set[str]:
        """Return the uses of a column, by ``users_of()``, that follow it to another name."""

    @abstractmethod
    def following(self, now: D, path: Path, to: str | None) -> D:
        """Return the layout after a column or field got another name, or is dropped (None)."""

    def finished(self, now: D) -> D:
        """Return a definition with the names and numbers that the format assigns to new columns."""
        return now

    # -- the other parts of a definition

    @abstractmethod
    def with_default(self, now: D, column: Field, default: str | None) -> D:
        """Return a definition with another default of a column."""

    @abstractmethod
    def with_check(self, now: D, change: AddCheck | DropCheck) -> D:
        """Return a definition with a CHECK constraint more or less."""

    @abstractmethod
    def clustered(self, now: D, columns: Sequence[str]) -> D:
        """Return a definition with other clustering columns."""

    @abstractmethod
    def partitioned(self, now: D, keys: Sequence[str]) -> D:
        """Return a definition with another partitioning of new rows."""

    @abstractmethod
    def with_properties(self, now: D, properties: Mapping[str, str]) -> D:
        """Return a definition with further properties."""

    def refuse_unset(self, now: D, name: str) -> None:
        """Raise an error if a present property cannot be removed."""


def apply(now: D, change: Change, rules: Rules[D]) -> D:
    """Return a definition after one change.

    Raises:
        SchemaMismatch: A column is missing, or its type cannot change so.
        InvalidConfig: A change is invalid, or a column is in use.
        UnsupportedFeature: A change needs a feature that is not supported.
    """
    match change:
        case InStruct():
            return _inside(now, change, rules)
        case AddColumn(column):
            rules.refuse_name(column.name)
            return replace(now, fields=tuple(_changed(now, (), list(now.fields), change, rules)))
        case DropColumn(name):
            return _dropped(now, name, rules)
        case RenameColumn(name, to):
            rules.refuse_name(to)
            fields = tuple(_changed(now, (), list(now.fields), change, rules))
            return rules.following(replace(now, fields=fields), (now.column(name)["name"],), to)
        case ChangeType(name, _):
            return _edited(now, name, lambda field: _changed(now, (), [field], change, rules)[0], rules)
        case SetNotNull(name):
            return now.with_column(name, nullable=False)
        case DropNotNull(name):
            return now.with_column(name, nullable=True)
        case SetDefault(name, default):
            return rules.with_default(now, now.column(name), default)
        case SetComment(comment, column_name):
            if column_name is None:
                return replace(now, description=comment)
            metadata = {key: value for key, value in now.column(column_name)["metadata"].items() if key != "comment"}
            return now.with_column(column_name, metadata=metadata | ({"comment": comment} if comment else {}))
        case AddCheck() | DropCheck():
            return rules.with_check(now, change)
        case ClusterBy(columns):
            return rules.clustered(now, columns)
        case PartitionBy(keys):
            return rules.partitioned(now, keys)
        case SetProperties(properties):
            return rules.with_properties(now, properties)
        case UnsetProperties(names, if_exists):
            for name in now.properties.keys() & set(names):
                rules.refuse_unset(now, name)
            missing = [name for name in names if name not in now.properties]
            if missing and not if_exists:
                raise InvalidConfig(f"there is no table property {', '.join(missing)}")
            return replace(now, properties={name: text for name, text in now.properties.items() if name not in names})


def altered(before: D, changes: Sequence[Change], rules: Rules[D], make: Make[D, A]) -> A:
    """Apply some changes in their order.

    Args:
        make: Makes the result of the definitions before and after; the old name of each column,
            None for a new one; the columns with an added, dropped or renamed field.
    """
    now, columns, grown = before, _unchanged(before), set[str]()
    for change in changes:
        after = rules.finished(apply(now, change, rules))
        match change:
            case AddColumn(column):
                columns[column.name] = None
            case DropColumn(name):
                del columns[now.column(name)["name"]]
            case RenameColumn(name, to):
                old = now.column(name)["name"]
                columns = {(to if new == old else new): source for new, source in columns.items()}
                grown = {to if name == old else name for name in grown}
            case InStruct(path) if not isinstance(change.change, ChangeType):
                grown.add(now.column(path[0])["name"])
        now = after
    return make(before, now, columns, frozenset(grown & {*now.names}))


def evolved(before: D, source: Sequence[Field], mode: SchemaMode, rules: Rules[D], make: Make[D, A]) -> A:
    """Return a definition that accepts the columns of a source, in the form of ``altered()``.

    ``append_new_columns`` adds new columns and new fields of structs. ``sync_all_columns`` also
    drops columns that the source lacks, unless they compute their values. It widens columns to
    larger types of the source.

    Args:
        source: Columns in the form of the definition's fields.

    Raises:
        SchemaMismatch: A type cannot change so, or a new name is reserved.
        InvalidConfig: A column that would be dropped is in use.
    """
    after, columns, grown = before, _unchanged(before), set[str]()
    if mode == "fail":
        return make(before, before, columns, frozenset())
    # New columns come first: a table always has one.
    for field in source:
        if nested.part_of(before.fields, field["name"]) is None:
            rules.refuse_name(field["name"])
            after = replace(after, fields=(*after.fields, {**field, "nullable": True, "metadata": {}}))
            columns[field["name"]] = None
    for column in before.fields:
        name, same = column["name"], nested.part_of(source, column["name"])
        if same is None:
            if mode == "sync_all_columns" and not rules.fills(column):
                after = _dropped(after, name, rules)
                del columns[name]
            continue
        kind = same["type"]
        if mode == "sync_all_columns" and rules.widens(column["type"], kind):
            after = after.with_column(name, **rules.retyped(after, (name,), column, kind))

        def with_fields(field: Field, kind: Any = kind) -> Field:
            return {**field, "type": nested.with_new_fields(rules.types, field["type"], kind)}

        larger = _edited(after, name, with_fields, rules)
        if larger is not after:
            grown.add(name)
            after = larger
    return make(before, before if after == before else rules.finished(after), columns, frozenset(grown))


def _unchanged(before: TableDefinition) -> dict[str, str | None]:
    return {name: name for name in before.names}


def _edited(now: D, name: str, edit: Callable[[Field], Field], rules: Rules[D]) -> D:
    """Return a definition after an edit of one column; the same object if it stays equal."""
    column = now.column(name)
    opened = rules.opened(column)
    edited = edit(opened)
    return now if edited == opened else now.with_column(name, **rules.closed(edited))


def _inside(now: D, target: InStruct, rules: Rules[D]) -> D:
    """Return a definition after a change of a field of a struct."""
    column, change = now.column(target.path[0]), target.change
    path = nested.spelled_path(rules.types, column, target.path[1:])
    rules.refuse_inside(now, path, change)

    def changed(parts: list[Field]) -> list[Field]:
        return _changed(now, path, parts, change, rules)

    def edit(field: Field) -> Field:
        return {**field, "type": nested.changed_at(rules.types, field["type"], path[1:], changed)}

    after = _edited(now, column["name"], edit, rules)
    if isinstance(change, RenameColumn | DropColumn):
        return rules.following(after, (*path, change.name), change.to if isinstance(change, RenameColumn) else None)
    return after


def _changed(now: D, path: Path, fields: list[Field], change: Change, rules: Rules[D]) -> list[Field]:
    """Return columns, or the fields of the struct at a path, after one change."""
    names = [field["name"] for field in fields]
    if isinstance(change, AddColumn):
        refuse_known(change.column.name, names)
        field = rules.new_field(change.column, path)
        return [*fields, field if path else rules.closed(field)]
    assert isinstance(change, DropColumn | RenameColumn | ChangeType)
    where = ".".join((*path, change.name))
    old = nested.part_of(fields, change.name)
    if old is None:
        raise nested.no_field(fields, change.name, ".".join(path)) if path else now.no_column(change.name)
    if isinstance(change, DropColumn):
        _refuse_used(now, (*path, old["name"]), "dropped", set())
        # If DuckLake drops the only field, no table of the lake can be read (duckdb 1.5.5).
        if path and len(fields) == 1:
            raise InvalidConfig(
                f"field {where} is the last field of its struct: drop the column, or add another field first"
            )
        return [field for field in fields if field is not old]
    if isinstance(change, RenameColumn):
        _refuse_used(now, (*path, old["name"]), "renamed", rules.followers(now))
        refuse_known(change.to, [name for name in names if name != old["name"]])
        return [{**field, "name": change.to} if field is old else field for field in fields]
    kind = rules.type_of(change.type, where)
    if kind == old["type"]:
        return fields
    if not rules.widens(old["type"], kind):
        raise SchemaMismatch(
            f"column {where} cannot become {rules.types.spelled(kind)}: {rules.why_narrower(old['type'])}"
        )
    return [rules.retyped(now, (*path, old["name"]), field, kind) if field is old else field for field in fields]


def _dropped(now: D, name: str, rules: Rules[D]) -> D:
    column = now.column(name)
    fields = tuple(_changed(now, (), list(now.fields), DropColumn(column["name"]), rules))
    rules.refuse_last(now, column["name"])
    return rules.following(replace(now, fields=fields), (column["name"],), None)


def _refuse_used(now: TableDefinition, path: Path, done: str, followers: set[str]) -> None:
    users = [user for user in now.users_of(path) if user not in followers]
    if users:
        raise InvalidConfig(f"column {'.'.join(path)!r} cannot be {done}: it is used by {' and by '.join(users)}")
