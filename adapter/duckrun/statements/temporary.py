"""Changes of temporary tables, which the engine executes itself.

These are INSERT, UPDATE, DELETE and TRUNCATE. The tables that they read are pinned at one version
each.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig
from duckrun.run.pins import NOTHING
from duckrun.sql.quoting import quote_identifier
from duckrun.statements.parse.from_tokens import whole_tree
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.reading import Reading
from duckrun.statements.values import Delete, Insert, Merge, OnTable, Parts, Statement, Update
from duckrun.values.rows import DeleteSpec

Changes = Insert | Update | Delete | Merge | OnTable
"""Statements that change a temporary table, if that has the target's name."""


def is_temporary(engine: Engine, temp_views: Collection[str], target: Parts) -> bool:
    """Return True for the name of a view or table that only the session has."""
    return len(target) == 1 and (target[0].lower() in temp_views or engine.has_name(target[0]))


def is_change(engine: Engine, temp_views: Collection[str], statement: Statement) -> bool:
    """Return True for a statement that would change rows of a session's own view or table."""
    if not isinstance(statement, Changes) or len(statement.target) != 1:
        return False
    name = statement.target[0]
    return name.lower() in temp_views or name in engine.temp_names


def change(reading: Reading, statement: Changes) -> tuple[str, pa.Table]:
    """Execute a change of a temporary table.

    Returns:
        The name of the statement, and the rows of its RETURNING, or else the number of changed
        rows.

    Raises:
        InvalidConfig: for a view or a registered value.
        UnsupportedFeature: for a statement that temporary tables do not support.
    """
    name, engine = statement.target[0], reading.engine
    what = type(statement).__name__.upper()
    if isinstance(statement, OnTable) and isinstance(statement.spec, DeleteSpec):
        what = "TRUNCATE"
    elif isinstance(statement, Merge | OnTable):
        raise unsupported(
            f"{name} is temporary: {'MERGE' if isinstance(statement, Merge) else 'ALTER, and upkeep,'} of it"
        )
    if not engine.is_kept(name):
        raise InvalidConfig(
            f"{what} of {name}: it is a temporary view, or a value that was registered, and takes no rows; make it a "
            "table, such as "
            f"CREATE TABLE … AS SELECT * FROM {name}."
        )
    if isinstance(statement, OnTable):
        return what, engine.change_kept(name, f"DELETE FROM {quote_identifier(name)}", NOTHING)
    assert statement.whole is not None, "a text says it"
    text = reading.text(whole_tree(statement.whole))
    return what, engine.change_kept(name, text, reading.reads)
