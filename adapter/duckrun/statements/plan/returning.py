"""RETURNING lists in the SQL of the writing engine."""

from __future__ import annotations

from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import text_in, tree_in
from duckrun.statements.plan.rows import Asked
from duckrun.statements.reading import Reading
from duckrun.statements.values import Returned
from duckrun.values.rows import Returning
from duckrun.values.snapshot import TableRef


def returning(returned: Returned, ref: TableRef, reading: Reading, options: Asked) -> Returning:
    """Return the RETURNING list in the engine's SQL.

    Raises:
        UnsupportedFeature: with ``app``: if the write was already made, it has no rows to return.
    """
    if options.app is not None:
        raise UnsupportedFeature(
            f"RETURNING of table {ref}: what app has written once has no rows to give back a second time; read them "
            "by a SELECT."
        )
    columns, engine = returned.columns, reading.engine.name
    if returned.dialect != engine:
        columns = text_in(tree_in(f"SELECT {columns}", returned.dialect), engine).removeprefix("SELECT ")
    return Returning(columns, returned.alias)
