"""RETURNING, as the engine that writes is asked for it."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import text_in, tree_in
from duckrun.statements.plan.rows import Asked
from duckrun.statements.reading import Reading
from duckrun.statements.values import Returned
from duckrun.values.rows import Returning
from duckrun.values.snapshot import TableRef


def returning(returned: Returned, ref: TableRef, reading: Reading, asked: Asked) -> Returning:
    """The list in the engine's SQL. Raises UnsupportedFeature where the write may have been made before, and has no rows to give."""
    if asked.app is not None:
        raise UnsupportedFeature(
            f"RETURNING of table {ref}: what app has written once has no rows to give back a second time; read them by a SELECT."
        )
    columns, engine = returned.columns, reading.engine.name
    if returned.dialect != engine:
        columns = text_in(tree_in(f"SELECT {columns}", returned.dialect), engine).removeprefix("SELECT ")
    return Returning(columns, returned.alias)
