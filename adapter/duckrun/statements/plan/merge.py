"""MERGE as a MergeSpec, from SQL or from Spark's builder.

It consists of the keys of the condition, the clauses, and a source that has the keys under the
table's column names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from duckrun.engines.frame import LazyRows
from duckrun.errors import InvalidConfig, SchemaMismatch, UnsupportedFeature
from duckrun.sql.pieces import read_in
from duckrun.sql.quoting import fresh_name
from duckrun.sql.raising import raising_tree
from duckrun.sql.scopes import Source
from duckrun.sql.sides import SOURCE, TARGET, Item, all_of, column_of, has_subquery, named, names_side
from duckrun.statements.parse.parts import with_ctes
from duckrun.statements.plan.assigned import Assigned
from duckrun.statements.plan.conditions import conjuncts, equality
from duckrun.statements.plan.defaults import is_default, with_defaults
from duckrun.statements.plan.rows import Asked, Work, sides_of, source_items
from duckrun.statements.plan.spliced import under
from duckrun.statements.reading import Reading
from duckrun.statements.values import Given, Merge, When
from duckrun.values.rows import MergeClause, MergeSpec
from duckrun.values.snapshot import Snapshot, TableRef

_COPY = "__duckrun_source_"


def merge(statement: Merge, ref: TableRef, reading: Reading, options: Asked) -> Work:
    """Return the merge with its keys, clauses and source."""
    return _Merge(statement, reading.snapshot(ref), reading, options).work()


class _Merge:
    def __init__(self, statement: Merge, snapshot: Snapshot, reading: Reading, options: Asked) -> None:
        self.statement, self.snapshot, self.reading, self.asked = _under_with(statement), snapshot, reading, options
        if statement.evolve and options.schema_mode == "fail":
            self.asked = replace(options, schema_mode="append_new_columns")
        self.what = f"MERGE into table {snapshot.ref}"
        self.given = statement.source if isinstance(statement.source, Given) else None
        self.items = (
            source_items([statement.source], statement.with_, reading)
            if isinstance(statement.source, exp.Expr)
            else [_given_item(statement.source)]
        )
        self.names = {name.lower(): name for name in self.items[0].columns}
        self.sides = sides_of(snapshot, statement.alias, reading, self.items)
        self.spelled = {name.lower(): name for name in snapshot.schema.names}
        self.casts = Assigned(snapshot, reading)
        self.keys: dict[str, exp.Expr] = {}
        self.compared: dict[str, exp.Expr] = {}
        self.on: list[exp.Expr] = []
        self._find_keys()
        whens = [self._error(when) for when in _without_nothing(self.statement.whens)]
        self.whens = self._with_lists(whens) or [When("matched_delete", exp.false())]
        # In-memory rows are used unchanged, under their own column names.
        self.whole = self.given is not None or any(_takes_all(when) for when in self.whens)
        self.projected: dict[str, exp.Expr] = dict(self.keys)

    def work(self) -> Work:
        """Return the spec and the source."""
        # Clauses come first: they add the columns that the source needs.
        clauses = tuple(self._clause(when) for when in self.whens)
        on = None if not self.on else self._text(all_of(self.on))
        source = self._queried() if self.given is None else self._renamed(self.given)
        spec = MergeSpec(
            keys=tuple(self.keys),
            clauses=clauses,
            on=on,
            schema_mode=self.asked.schema_mode,
            app=self.asked.app,
            dialect=self.reading.engine.name,
            existing=True,
            compared={name: self._text(tree) for name, tree in self.compared.items()},
            casts=True,
            only_if_changed=self.asked.only_if_changed,
        )
        return Work(spec, source)

    # -- the source

    def _queried(self) -> LazyRows:
        """Return the source's query with the keys and the values that the clauses use."""
        assert isinstance(self.statement.source, exp.Expr)
        columns = [named(tree, name) for name, tree in self.projected.items()]
        if self.whole:
            present = {name.lower() for name in self.projected}
            columns += [
                exp.alias_(column_of(SOURCE, name), name, quoted=True)
                for name in self.items[0].columns
                if name.lower() not in present
            ]
        rows = exp.select("*").from_(self.statement.source.copy())
        query = exp.select(*columns).from_(rows.subquery(SOURCE, copy=False))
        return self.reading.frame(with_ctes(query, self.statement.with_))

    def _renamed(self, source: Given) -> Any:
        """Return in-memory rows with their keys under the table's names too.

        Raises:
            InvalidConfig: for rows that are no Frame, and for a column with a key's name.
        """
        renamed = [(_path(value), key) for key, value in self.keys.items() if not self._is_same(key, value)]
        if not renamed:
            return source.rows
        pairs = ", ".join(f"{'.'.join(old)} AS {new}" for old, new in renamed)
        if not isinstance(source.rows, LazyRows):
            raise InvalidConfig(
                f"{self.what}: its keys have other names in the source; give a Frame, or rename them ({pairs})."
            )
        taken = [new for _, new in renamed if new.lower() in self.names]
        if taken:
            raise InvalidConfig(
                f"{self.what}: the source has a column {', '.join(taken)} that is not the key; rename it, and the "
                f"key ({pairs})."
            )
        return source.rows.renamed([*(((column,), column) for column in source.columns), *renamed])

    # -- ON

    def _find_keys(self) -> None:
        for name in self.statement.using:
            if name.lower() not in self.spelled or name.lower() not in self.names:
                raise InvalidConfig(f"MERGE … USING ({name}): both sides must have that column.")
            self.keys[self.spelled[name.lower()]] = column_of(SOURCE, self.names[name.lower()])
        rest = [condition for condition in conjuncts(self.statement.on) if not self._is_key(condition)]
        if not self.keys:
            rest = [condition for condition in rest if not self._is_key(condition, by_expression=True)]
        self.on = [self.sides.rewritten(condition) for condition in rest]
        if not self.keys:
            raise InvalidConfig(
                f"{self.what} has no key: its condition needs at least one equality of a column of "
                f"{self.statement.alias} with the source (AND-ed with whatever else), such as target.id = source.id."
            )

    def _is_key(self, condition: exp.Expr, *, by_expression: bool = False) -> bool:
        """Return True, and add the key, for an equality of the table with the source alone.

        Args:
            condition: a part of ON.
            by_expression: True if the table's side may be any expression of it, such as lower(t.k),
                and not only a column or a field.
        """
        operands = equality(condition)
        if operands is None or has_subquery(condition):
            return False
        left, right = (self.sides.rewritten(side) for side in operands)
        for side, value in ((left, right), (right, left)):
            is_of_source = names_side(value, SOURCE) and not names_side(value, TARGET)
            is_available = self.given is None or _path(value) != ()  # in-memory rows have columns and fields only
            if not is_of_source or not is_available or not names_side(side, TARGET) or names_side(side, SOURCE):
                continue
            if isinstance(side, exp.Column) and side.name not in self.keys:
                self.keys[side.name] = value
                return True
            if by_expression or (isinstance(side, exp.Dot) and _path(side)):
                # A key that is no column of the table has the name that messages use.
                wanted = ".".join(_path(side)) or side.sql(dialect="duckdb")
                name = fresh_name(wanted, [*self.spelled, *self.names, *self.keys])
                self.keys[name], self.compared[name] = value, side
                return True
        return False

    # -- clauses

    def _with_lists(self, whens: Sequence[When]) -> list[When]:
        """Add column lists to ``*`` and VALUES, if the source gets more than its own columns."""
        changed = [k for k, value in self.keys.items() if k not in self.compared and not self._is_same(k, value)]
        completed: list[When] = []
        for when in whens:
            if when.positional is not None:
                names = self.snapshot.schema.names
                if len(names) != len(when.positional):
                    raise InvalidConfig(
                        f"MERGE … INSERT VALUES gives {len(when.positional)} values for the {len(names)} columns of "
                        "table "
                        f"{self.snapshot.ref} ({', '.join(names)})."
                    )
                when = replace(when, assigned=tuple(zip(names, when.positional, strict=True)), positional=None)
            elif _takes_all(when) and when.by == "position":
                when = replace(when, assigned=self._all_by_position())
            elif _takes_all(when) and self._names_columns(when):
                when = replace(when, assigned=self._by_name(when))
            elif _takes_all(when) and changed and self.given is None:
                if self.asked.schema_mode != "fail":
                    raise UnsupportedFeature(
                        f"{self.what}: with schema_mode {self.asked.schema_mode} the source calls its "
                        f"keys what the table does; rename {', '.join(changed)} in a subquery."
                    )
                when = replace(when, assigned=self._by_name(when))
            if when.assigned is not None and any(is_default(value) for _, value in when.assigned):
                values = with_defaults(when.assigned, self.snapshot, inserts=when.kind.endswith("insert"))
                when = replace(when, assigned=tuple(values))
            completed.append(when)
        return completed

    def _names_columns(self, when: When) -> bool:
        """Return True if a clause for all columns becomes one that sets each."""
        is_cast = bool(self.casts) and self.given is None
        return self.asked.schema_mode == "fail" and (when.by == "name" or is_cast)

    def _by_name(self, when: When) -> tuple[tuple[str, exp.Expr], ...]:
        new = [name for lower, name in self.names.items() if lower not in self.spelled]
        missing = [name for lower, name in self.spelled.items() if lower not in self.names]
        if when.by == "all" and (new or missing):
            raise SchemaMismatch(
                f"{self.what}: * takes every column by its name; missing in the source: "
                f"{', '.join(missing) or 'none'}; not in the table: {', '.join(new) or 'none'}."
            )
        if new:
            raise SchemaMismatch(
                f"{self.what}: BY NAME takes every column of the source, and the table has no {', '.join(new)}. "
                "MERGE WITH SCHEMA EVOLUTION would add what is new."
            )
        return tuple((self.spelled[lower], self._of_source(name)) for lower, name in self.names.items())

    def _all_by_position(self) -> tuple[tuple[str, exp.Expr], ...]:
        names, columns = self.snapshot.schema.names, list(self.items[0].columns)
        if len(names) != len(columns):
            raise SchemaMismatch(
                f"{self.what}: UPDATE and INSERT take the source's columns by position, and it has {len(columns)} "
                f"({', '.join(columns)}) for the table's {len(names)} ({', '.join(names)}). BY NAME takes those that "
                "it has."
            )
        return tuple((name, self._of_source(column)) for name, column in zip(names, columns, strict=True))

    def _of_source(self, name: str) -> exp.Expr:
        return exp.column(name, table=self.items[0].alias, quoted=True)

    def _error(self, when: When) -> When:
        """Turn THEN ERROR into a clause that writes a row and fails on its value."""
        kind, _, action = when.kind.rpartition("_")
        if action != "error":
            return when
        text: exp.Expr = exp.Literal.string(f"a row met WHEN {kind.upper().replace('_', ' ')} THEN ERROR")
        if when.message is not None:
            message = exp.func("COALESCE", exp.cast(exp.paren(when.message.copy()), "text"), exp.Literal.string("NULL"))
            text = exp.DPipe(this=exp.DPipe(this=text, expression=exp.Literal.string(": ")), expression=message)
        done = "insert" if kind == "not_matched" else "update"
        engine = self.reading.engine.name
        assigned = ((self.snapshot.schema.names[0], read_in(raising_tree(SchemaMismatch, text, engine), engine)),)
        return When(f"{kind}_{done}", when.condition, assigned)  # type: ignore[arg-type]

    def _is_same(self, key: str, value: exp.Expr) -> bool:
        return isinstance(value, exp.Column) and value.name.lower() == key.lower()

    def _clause(self, when: When) -> MergeClause:
        visible = {"not_matched_insert": SOURCE}.get(when.kind, TARGET if "by_source" in when.kind else when.bare)
        condition = None
        if when.condition is not None:
            condition = self._text(self.sides.rewritten(when.condition, visible))
        if when.assigned is None:
            return MergeClause(when.kind, condition)  # type: ignore[arg-type]
        values = dict(self._cast(name, value, visible) for name, value in when.assigned)
        if len(values) < len(when.assigned):
            raise InvalidConfig(f"{self.what} sets a column twice.")
        side = TARGET if when.kind == "not_matched_insert" else SOURCE if "by_source" in when.kind else None
        if side is not None and any(names_side(value, side) for value in values.values()):
            raise InvalidConfig(
                f"{self.what}: WHEN {when.kind.rpartition('_')[0].upper().replace('_', ' ')} has no row of the {side}."
            )
        for name in values:
            if name.lower() not in self.spelled:
                self.projected.setdefault(name, column_of(SOURCE, name))
        if all(self._is_plain(name, value) for name, value in values.items()):
            for name, value in values.items():
                self.projected.setdefault(name, value)
            return MergeClause(when.kind, condition, columns=tuple(values))  # type: ignore[arg-type]
        texts = {name: self._text(value) for name, value in values.items()}
        return MergeClause(when.kind, condition, set=texts)  # type: ignore[arg-type]

    def _cast(self, name: str, value: exp.Expr, visible: str | None) -> tuple[str, exp.Expr]:
        """Return the column to set and its value. A key keeps the type of the source."""
        column, rewritten = self._assigned(name), self.sides.rewritten(value, visible)
        is_key = column in self.keys and self._is_plain(column, rewritten)
        return column, rewritten if is_key else self.casts.cast(rewritten, column)

    def _assigned(self, name: str) -> str:
        """Return the column to set.

        One of the table, or a new one with the source column's type.
        """
        bare = name.lower().removeprefix(f"{self.statement.alias.lower()}.")
        evolves = self.asked.schema_mode != "fail"
        return (
            self.names[bare]
            if evolves and bare in self.names and bare not in self.spelled
            else self.sides.assigned(name)
        )

    def _is_plain(self, name: str, value: exp.Expr) -> bool:
        """Return True for a source column assigned to the column of the same name."""
        if not isinstance(value, exp.Column) or value.table != SOURCE or value.name.lower() != name.lower():
            return False
        return name not in self.keys or self._is_same(name, self.keys[name])

    def _text(self, tree: exp.Expr) -> str:
        """Return an expression of the spec as SQL, and add its source columns to the projection."""
        if has_subquery(tree) and not self.reading.engine.subqueries_in_changes:
            raise UnsupportedFeature(
                f"{self.what}: a subquery in a condition or value is not supported on "
                f"{self.reading.engine.name}; put it into the source, or run this with engine: duckdb."
            )
        root = exp.Paren(this=tree.copy())
        for column in list(root.find_all(exp.Column)):
            if column.table != SOURCE or column.name.lower() not in self.names:
                continue
            name = column.name
            is_key = any(self._is_same(key, value) and key.lower() == name.lower() for key, value in self.keys.items())
            projected_name = name
            # A source column with the name of a table column would be cast to the table's type. So
            # it gets its own name, unless all columns are used by name anyway.
            if not (self.whole or is_key or name.lower() not in self.spelled):
                projected_name = fresh_name(f"{_COPY}{name}", [*self.spelled, *self.names])
            if not is_key:
                self.projected.setdefault(projected_name, column_of(SOURCE, name))
            column.set("this", exp.to_identifier(projected_name, quoted=True))
        return self.reading.text(root.this)


def _given_item(source: Given) -> Item:
    columns = list(source.columns)
    return Item(Source(exp.Placeholder(), source.alias, columns=lambda: columns), {name: name for name in columns})


def _under_with(statement: Merge) -> Merge:
    """Add the statement's WITH to the subqueries of its clauses."""
    with_ = statement.with_
    if with_ is None:
        return statement
    whens = tuple(
        replace(
            when,
            condition=under(with_, when.condition),
            assigned=when.assigned and tuple((name, under(with_, value)) for name, value in when.assigned),
            message=under(with_, when.message),
            positional=when.positional and tuple(under(with_, value) for value in when.positional),
        )
        for when in statement.whens
    )
    return replace(statement, on=under(with_, statement.on), whens=whens)


def _path(value: exp.Expr) -> tuple[str, ...]:
    """Return the names of a column, or of a field of one; empty for another expression."""
    if isinstance(value, exp.Dot):
        around = _path(value.this)
        return (*around, value.expression.name) if around and isinstance(value.expression, exp.Identifier) else ()
    return (value.name,) if isinstance(value, exp.Column) else ()


def _takes_all(when: When) -> bool:
    return when.assigned is None and when.positional is None and when.kind in ("matched_update", "not_matched_insert")


def _without_nothing(whens: Sequence[When]) -> list[When]:
    """Replace DO NOTHING by conditions on the clauses behind it, which it excludes rows from."""
    clauses: list[When] = []
    kept_from: dict[str, list[exp.Expr]] = {}
    closed: set[str] = set()
    for when in whens:
        kind, _, action = when.kind.rpartition("_")
        if kind in closed:
            continue
        if action == "nothing":
            if when.condition is None:
                closed.add(kind)
            else:
                kept_from.setdefault(kind, []).append(
                    exp.not_(exp.func("COALESCE", when.condition.copy(), exp.false()))
                )
            continue
        conditions = [*kept_from.get(kind, []), *([when.condition] if when.condition is not None else [])]
        condition = all_of([c.copy() for c in conditions]) if conditions else None
        clauses.append(replace(when, condition=condition))
    return clauses
