"""File pruning: data files that can match a predicate, by partition values and column bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckrun.libraries import pa
from duckrun.sql.char_types import is_padded
from duckrun.sql.dialects import tree_in
from duckrun.sql.names import transpile
from duckrun.sql.quoting import quote_identifier
from duckrun.values.frozen import frozen
from duckrun.values.rows import ReadSpec, ScanFile
from duckrun.values.snapshot import Snapshot

Bounds = Callable[[str], "pa.Table | None"]
"""Function from a column name to its bounds per file: ``name``, ``low`` and ``high``.

Unknown bounds are NULL. The result is None for a column without bounds.
"""

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "{low} <= {value} AND {high} >= {value}",
    exp.LT: "{low} < {value}",
    exp.LTE: "{low} <= {value}",
    exp.GT: "{high} > {value}",
    exp.GTE: "{high} >= {value}",
}
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE}
_PLAIN: tuple[type, ...] = (
    exp.And, exp.Or, exp.Not, exp.Paren, exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Neg,
    exp.In, exp.Between, exp.Is, exp.NEQ, *_COMPARISONS,
)  # fmt: skip
"""Expression types with the same meaning in every engine."""


@frozen
class Matching:
    """Files that may match a predicate."""

    files: tuple[ScanFile, ...]
    residual: str | None
    """Part of the predicate that must still filter the rows; None if all rows match."""


def matching(snapshot: Snapshot, files: Sequence[ScanFile], spec: ReadSpec, bounds: Bounds) -> Matching:
    """Return the files of a snapshot that may match the predicate of a spec.

    Opens no data file.
    """
    if spec.predicate is None:
        return Matching(tuple(files), None)
    if spec.dialect != "duckdb":
        # The translation only prunes files. The engine evaluates the original predicate.
        in_duckdb = replace(spec, predicate=transpile(spec.predicate, spec.dialect, "duckdb"), dialect="duckdb")
        return Matching(matching(snapshot, files, in_duckdb, bounds).files, spec.predicate)
    predicate = spec.predicate
    try:
        tree = tree_in(predicate, "duckdb")
    except (SqlglotError, RecursionError):
        # sqlglot cannot parse everything that DuckDB can: read all files.
        return Matching(tuple(files), predicate)
    pruner = _Pruner(snapshot, files, bounds)
    parts = list(conjuncts(tree))
    tests = [(part, pruner.exact(part), pruner.possible(part)) for part in parts]
    decided = {id(part) for part, exact, _ in tests if exact is not None}
    conditions = [possible for _, _, possible in tests if possible is not None]
    matches = pruner.files_where(conditions) if conditions else tuple(files)
    if matches is None:
        return Matching(tuple(files), predicate)
    left = [part for part in parts if id(part) not in decided]
    if len(left) == len(parts):
        return Matching(matches, predicate)
    return Matching(matches, " AND ".join(f"({part.sql(dialect='duckdb')})" for part in left) or None)


def conjuncts(tree: exp.Expr) -> Sequence[exp.Expr]:
    """Return the conditions that a condition joins by AND."""
    parts, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Paren):
            waiting.append(node.this)
        elif isinstance(node, exp.And):
            waiting += [node.expression, node.this]
        else:
            parts.append(node)
    return parts


def column_first(comparison: exp.Expr) -> tuple[type[exp.Expr], Any, Any]:
    """Return the type and the sides of a comparison, exchanged if the right side is a column."""
    kind, left, right = type(comparison), comparison.this, comparison.args.get("expression")
    return (_FLIPPED.get(kind, kind), right, left) if isinstance(right, exp.Column) else (kind, left, right)


@dataclass
class _Pruner:
    """SQL conditions over one row per file, whose columns are partition values and bounds."""

    snapshot: Snapshot
    files: Sequence[ScanFile]
    bounds: Bounds
    columns: dict[str, pa.Array] = field(default_factory=dict)
    _known: dict[str, bool] = field(default_factory=dict)

    def exact(self, node: exp.Expr) -> str | None:
        """SQL for files whose rows all match; None if partition values do not decide."""
        names = {column.name for column in node.find_all(exp.Column)}
        if not names or not all(isinstance(part, _PLAIN) for part in node.walk()):
            return None
        if any(column.table for column in node.find_all(exp.Column)) or not all(map(self._partition, names)):
            return None
        renamed = node.transform(
            lambda each: exp.column(f"p {each.name.lower()}", quoted=True) if isinstance(each, exp.Column) else each
        )
        # A predicate that is NULL does not match.
        return f"coalesce(({renamed.sql(dialect='duckdb')}), false)"

    def possible(self, node: exp.Expr) -> str | None:
        """SQL for files that may have a matching row; None if every file may."""
        if (exact := self.exact(node)) is not None:
            return exact
        if isinstance(node, exp.Paren):
            return self.possible(node.this)
        if isinstance(node, exp.And | exp.Or):
            sides = [self.possible(side) for side in (node.this, node.expression)]
            if isinstance(node, exp.Or):
                return None if None in sides else f"({sides[0]} OR {sides[1]})"
            return " AND ".join(f"({side})" for side in sides if side is not None) or None
        if isinstance(node, exp.In) and not node.args.get("query") and node.expressions:
            tests = [self._test(exp.EQ, node.this, value) for value in node.expressions]
            return None if None in tests else " OR ".join(f"({test})" for test in tests)
        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = (self._test(exp.GTE, node.this, node.args["low"]), self._test(exp.LTE, node.this, node.args["high"]))
            return None if None in ends else f"({ends[0]}) AND ({ends[1]})"
        if type(node) in _COMPARISONS:
            return self._test(*column_first(node))
        return None

    def files_where(self, conditions: Sequence[str]) -> tuple[ScanFile, ...] | None:
        """Return the files that meet all conditions; None if the conditions fail to evaluate."""
        rows = pa.table({"file": pa.array(range(len(self.files)), pa.int64()), **self.columns})
        name = quote_identifier("duckrun files")
        with _instance().cursor() as cursor:
            cursor.register("duckrun files", rows)
            try:
                predicate = " AND ".join(f"({condition})" for condition in conditions)
                numbers = cursor.execute(f"SELECT file FROM {name} WHERE {predicate} ORDER BY file").fetchall()
            except duckdb.Error:
                # A literal does not fit the column's type. The read itself reports it.
                return None
            finally:
                cursor.unregister("duckrun files")
        return tuple(self.files[number] for (number,) in numbers)

    def _test(self, kind: type[exp.Expr], column: exp.Expr, value: exp.Expr) -> str | None:
        """SQL that is false for files whose bounds exclude every match of a comparison."""
        if not isinstance(column, exp.Column) or column.table or not self._bounded(column.name):
            return None
        field = self._field(column.name)
        if field is None or not self._comparable(field.type, value):
            return None
        low, high = (quote_identifier(f"{end} {column.name.lower()}") for end in ("low", "high"))
        test = _COMPARISONS[kind].format(low=low, high=high, value=f"({value.sql(dialect='duckdb')})")
        return f"{low} IS NULL OR {high} IS NULL OR ({test})"

    def _field(self, name: str) -> pa.Field | None:
        return next((f for f in self.snapshot.stored_schema if f.name.lower() == name.lower()), None)

    @staticmethod
    def _comparable(kind: pa.DataType, value: exp.Expr) -> bool:
        """True for a literal that compares in the order of the column's type."""
        number = value.this if isinstance(value, exp.Neg) else value
        if not isinstance(number, exp.Literal):
            return False
        if pa.types.is_integer(kind):
            return not number.is_string
        return number.is_string and (pa.types.is_date(kind) or pa.types.is_string(kind))

    def _partition(self, name: str) -> bool:
        """True for a partition column with a value in every file.

        Adds the values to ``columns``.
        """
        key = f"p {name.lower()}"
        if key in self._known:
            return self._known[key]
        self._known[key] = False
        field, of = self._field(name), pa.types
        if field is None or field.name not in self.snapshot.partition_columns:
            return False
        # The log has CHAR(n) values without the padding that they are read with.
        plain = not is_padded(field) and any(
            fits(field.type) for fits in (of.is_integer, of.is_string, of.is_date, of.is_boolean)
        )
        if plain and all(field.name in file.partition_values for file in self.files):
            texts = pa.array([file.partition_values[field.name] for file in self.files], pa.string())
            with suppress(pa.ArrowInvalid):  # Another writer spells the values differently.
                self.columns[key] = texts.cast(field.type)
                self._known[key] = True
        return self._known[key]

    def _bounded(self, name: str) -> bool:
        """True for a column with bounds. Adds the bounds to ``columns``."""
        key = f"low {name.lower()}"
        if key in self._known:
            return self._known[key]
        field = self._field(name)
        bounds = None if field is None or field.name in self.snapshot.partition_columns else self.bounds(field.name)
        self._known[key] = bounds is not None
        if bounds is not None:
            places = {name: place for place, name in enumerate(bounds.column("name").to_pylist())}
            at = pa.array([places.get(str(file.spelled)) for file in self.files], pa.int64())
            for end in ("low", "high"):
                self.columns[f"{end} {name.lower()}"] = bounds.column(end).combine_chunks().take(at)
        return self._known[key]


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def without_bounds(snapshot: Snapshot, spec: ReadSpec) -> Matching:
    """Match files by partition values alone, for a format without bounds of its own."""
    beside: Sequence[ScanFile] = () if snapshot.list_beside is None else snapshot.list_beside(snapshot)
    matches = matching(snapshot, snapshot.files(), spec, lambda column: None)
    # Rows outside of the data files may belong to any partition.
    return Matching((*matches.files, *beside), spec.predicate if beside else matches.residual)
