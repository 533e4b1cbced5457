"""Lookup and expansion of the lakes' macros."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot.errors import SqlglotError

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import Lakes
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.duckdb_itself import COMMON
from duckrun.sql.names import parse_query, plain_error
from duckrun.statements.parse.expanding import FoundMacro, expanded
from duckrun.statements.parse.tokens import StatementText, split
from duckrun.statements.qualified import qualified_view
from duckrun.statements.values import CreateMacro, DropMacro, Parts, Statement, Use
from duckrun.values.macros import Macro, MacroForm
from duckrun.values.snapshot import TableRef


@dataclass
class Macros:
    """The macros that statements may call.

    Those of the lakes, and those that earlier statements create.
    """

    lakes: Lakes
    _listed: dict[int, dict[tuple[str, str], Macro]] = field(default_factory=dict)
    """Macros by schema and name in lower case, per lake; each lake is read once."""

    def expand(self, source: StatementText) -> StatementText:
        """Replace the macro calls of a statement by the macros' text.

        Raises:
            InvalidConfig: for arguments that a macro does not take.
        """
        if source.dialect != "duckdb" or not any(lake.has_catalog for lake in self.lakes):
            return source
        return expanded(source, self.find)

    def read(self, statement: Statement) -> None:
        """Apply a USE, CREATE MACRO or DROP MACRO for the statements behind it."""
        if isinstance(statement, Use):
            try:
                self.lakes = self.lakes.using(*self.lakes.place(statement.target))
            except TableNotFound:  # an earlier statement creates it, or the statement's own check fails
                self.lakes = self.lakes.using(*self.lakes.schema_of(statement.target))
        elif isinstance(statement, CreateMacro | DropMacro):
            lake, schema, name = place(self.lakes, statement.target)
            known = self._of(lake)
            key = schema.lower(), name.lower()
            if isinstance(statement, DropMacro):
                known.pop(key, None)
            elif statement.if_exists != "ignore" or key not in known:
                text = text_in(statement.body, "duckdb")
                known[key] = Macro(schema, name, (MacroForm(statement.parameters, text, statement.is_table),))

    def find(self, parts: Parts) -> FoundMacro | None:
        if len(parts) > 3 or (len(parts) == 1 and parts[0].lower() in COMMON):
            return None
        try:
            lake, schema = _lake_of(self.lakes, parts)
        except TableNotFound:  # not a lake but a column: column.function()
            return None
        macro = self._of(lake).get((schema.lower(), parts[-1].lower()))
        if macro is None:
            return None
        ref = TableRef(macro.schema, macro.name, "", catalog=lake.name)

        def qualified(form: MacroForm) -> str:
            try:
                tree = parse_query(form.sql, "duckdb") if form.is_table else tree_in(form.sql, "duckdb")
            except SqlglotError as error:
                raise InvalidConfig(f"Macro {macro} cannot be read: {plain_error(error)}") from error
            return text_in(qualified_view(tree, ref, None), "duckdb")

        return FoundMacro(macro, Macros(self.lakes.using(lake, macro.schema), self._listed).find, qualified)

    def _of(self, lake: Lake) -> dict[tuple[str, str], Macro]:
        if id(lake) not in self._listed:
            self._listed[id(lake)] = {(s.lower(), n.lower()): macro for (s, n), macro in lake.macros().items()}
        return self._listed[id(lake)]


def query_of_view(lakes: Lakes, lake: Lake, schema: str, sql: str) -> str:
    """Return the query of a DuckDB view, with calls of its lake's macros expanded."""
    if not lake.has_catalog:
        return sql
    [source] = split(sql, "duckdb")
    expanded_query = Macros(lakes.using(lake, schema)).expand(source)
    return sql if expanded_query is source else expanded_query.text


def place(lakes: Lakes, parts: Parts) -> tuple[Lake, str, str]:
    """Return the lake, the schema and the name of a macro.

    Raises:
        TableNotFound: for a lake that is not attached.
        InvalidConfig: for a name of more than three parts.
    """
    if len(parts) > 3:
        raise InvalidConfig(f"{'.'.join(parts)} is no macro's name; write name, schema.name or lake.schema.name.")
    lake, schema = _lake_of(lakes, parts)
    spelled = lake.schema_named(schema) if lake.has_catalog else None
    return lake, spelled or schema, parts[-1]


def _lake_of(lakes: Lakes, parts: Parts) -> tuple[Lake, str]:
    """Return the lake and the schema of a macro's name."""
    return (lakes.lake, lakes.schema) if len(parts) == 1 else lakes.schema_of(parts[:-1])
