"""Checks of statements before any of them runs.

Read-only lakes, and features that the engine lacks.
"""

from __future__ import annotations

from duckrun.engines.engine import Engine
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.lake.lakes import Lakes, Located
from duckrun.run.transactions import transactions_on
from duckrun.statements import macros, upkeep
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.reading import locate
from duckrun.statements.temporary import is_change, is_temporary
from duckrun.statements.values import (
    CreateMacro,
    CreateSchema,
    CreateTemporary,
    Delete,
    Drop,
    DropMacro,
    DropSchema,
    Insert,
    OfLake,
    Reads,
    Statement,
    Transact,
    Update,
    Use,
)


class Checks:
    """Checks of the statements of a text, in order.

    Each sees the names that earlier ones will create.
    """

    def __init__(self, lakes: Lakes, engine: Engine, temporary: set[str], in_transaction: bool = False) -> None:
        self.lakes, self.engine = lakes, engine
        self.in_transaction = in_transaction
        self.temporary = temporary
        self.is_first = True

    def look_at(self, statement: Statement) -> Located | None:
        """Check a statement, and return the lake and table that it writes; None if it writes none.

        Raises:
            ReadOnlyLake: for a write to a read-only lake.
            UnsupportedFeature: for a statement that the engine or the format lacks.
            InvalidConfig: for a statement that cannot succeed, such as COMMIT without BEGIN.
        """
        self.is_first = self.is_first and isinstance(statement, Reads)
        if isinstance(statement, Use):
            # Unless it is the first one, an earlier statement may create the schema.
            self.lakes = self.lakes.after_use(statement.target, must_exist=self.is_first)
        elif isinstance(statement, Transact):
            self._transact(statement)
        elif isinstance(statement, CreateTemporary):
            if statement.kind == "table" and not self.engine.temp_tables:
                raise UnsupportedFeature(
                    f"CREATE TEMP TABLE {statement.name}: {self.engine.name} has no temporary tables. CREATE TEMP "
                    "VIEW, or "
                    "connect with engine: duckdb."
                )
            self.temporary.add(statement.name.lower())
        elif isinstance(statement, OfLake):
            upkeep.check(self.lakes, statement)
        elif isinstance(statement, CreateMacro | DropMacro):
            macros.check(self.lakes, statement)
        elif isinstance(statement, CreateSchema | DropSchema):
            lake, schema = self.lakes.schema_of(statement.target)
            lake.ensure_writable(lake.schema_ref(schema))
        elif isinstance(statement, Drop) and is_temporary(self.engine, self.temporary, statement.target):
            self.temporary.discard(statement.target[0].lower())
        elif not isinstance(statement, Reads) and not is_change(self.engine, self.temporary, statement):
            if isinstance(statement, Insert | Update | Delete) and statement.returning and not self.engine.returns_rows:
                raise UnsupportedFeature(
                    f"RETURNING of table {'.'.join(statement.target)}: {self.engine.name} gives no rows of what it "
                    "writes. Read them by a "
                    "SELECT after it, or by table.changes(), or connect with engine: duckdb."
                )
            located = locate(self.lakes, statement.target)
            located.lake.ensure_writable(located.ref)
            return located
        return None

    def _transact(self, statement: Transact) -> None:
        if self.lakes.lake.format.transactions is None and not self.in_transaction:
            raise unsupported(f"{statement.what} on a lake of format {self.lakes.lake.format.name}")
        if statement.what == "BEGIN":
            transactions_on(self.lakes.lake, self.engine.name)
            if self.in_transaction:
                raise InvalidConfig("BEGIN in a transaction: one is open already. COMMIT or ROLLBACK it first.")
        elif not self.in_transaction:
            raise InvalidConfig(f"{statement.what} without BEGIN: no transaction is open in this session.")
        self.in_transaction = statement.what == "BEGIN"
