"""Casts of a statement's values to the columns that they fill."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from duckrun.sql.pieces import dialect_of, read_in
from duckrun.statements.plan.spliced import UNTYPED
from duckrun.statements.reading import Reading
from duckrun.values.snapshot import Snapshot

_BYTES = {exp.DType.BINARY, exp.DType.VARBINARY}
_CAST_DIFFERENTLY = exp.DataType.INTEGER_TYPES | exp.DataType.TEXT_TYPES | {exp.DType.ARRAY, exp.DType.LIST} | _BYTES


class Assigned:
    """Columns that the engine would fill in another way than the statement's dialect.

    DuckDB rounds 2.7 to an integer, Spark cuts it. They write some numbers as different texts, and
    DuckDB reads the escapes in the text of a BLOB.
    """

    def __init__(self, snapshot: Snapshot, reading: Reading) -> None:
        self._dialect, self._engine = reading.dialect, reading.engine.name
        types: Mapping[str, str] = {} if self._dialect == self._engine else reading.engine.column_types(snapshot)
        kinds = {n.lower(): exp.DataType.build(t, dialect=self._engine) for n, t in types.items() if t != UNTYPED}
        self._kinds = {
            name: exp.DataType(this=exp.DType.VARBINARY) if kind.this in _BYTES else kind
            for name, kind in kinds.items()
            if kind.this in _CAST_DIFFERENTLY
        }

    def __bool__(self) -> bool:
        return bool(self._kinds)

    def cast(self, value: exp.Expr, column: str) -> exp.Expr:
        """Return a value cast to a column's type as the statement's dialect does it.

        A value in the engine's own dialect, such as a default, does not change.
        """
        kind = self._kinds.get(column.lower())
        if kind is None or dialect_of(value) == self._engine:
            return value
        return read_in(exp.Cast(this=value.copy(), to=kind.copy()), self._dialect)
