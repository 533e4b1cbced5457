"""The lakes' macros: lookup, expansion, CREATE and DROP; and the names in stored SQL."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from duckrun.errors import InvalidConfig, TableNotFound
from duckrun.lake.lake import Lake
from duckrun.lake.lakes import OWN_CATALOGS, Lakes
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.duckdb_itself import COMMON, is_of_duckdb
from duckrun.sql.names import Readable, parse_query, replace_tables
from duckrun.sql.scopes import Names
from duckrun.statements.parse.expanding import FoundMacro, expanded
from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, split
from duckrun.statements.values import CreateMacro, DropMacro, Parts, Statement, Use
from duckrun.values.macros import Macro, MacroForm
from duckrun.values.nearest import did_you_mean
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
            # An earlier statement creates the schema, or the statement's own check fails.
            self.lakes = self.lakes.after_use(statement.target, must_exist=False)
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
            with Readable(f"Macro {macro} cannot be read"):
                tree = parse_query(form.sql, "duckdb") if form.is_table else tree_in(form.sql, "duckdb")
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


# -- CREATE MACRO and DROP MACRO


def check(lakes: Lakes, statement: CreateMacro | DropMacro) -> None:
    """Check a statement before anything runs.

    Raises:
        UnsupportedFeature: for a lake whose format has no macros.
        ReadOnlyLake: for a read-only lake.
        InvalidConfig: for the name of a DuckDB function.
    """
    what = "CREATE MACRO" if isinstance(statement, CreateMacro) else "DROP MACRO"
    lake, schema, name = place(lakes, statement.target)
    if not lake.has_catalog:
        raise unsupported(f"{what} on a lake of format {lake.format.name}")
    lake.check_name(schema, name)
    lake.ensure_writable(lake.schema_ref(schema))
    if isinstance(statement, CreateMacro) and is_of_duckdb(name):
        raise InvalidConfig(f"{name}() is a function of DuckDB's own; choose another name for the macro.")


def create(lakes: Lakes, statement: CreateMacro, sql: str) -> tuple[str, str]:
    """Store a macro.

    Args:
        lakes: the lakes of the session.
        statement: the CREATE MACRO.
        sql: the macro's text with qualified names.

    Returns:
        The macro's name, and the reason if nothing was stored, else "".

    Raises:
        InvalidConfig: if the macro exists, and the statement replaces none.
    """
    lake, schema, name = place(lakes, statement.target)
    before = _like(lake, schema, name)
    if before is not None and statement.if_exists == "ignore":
        return str(before), "the macro exists already"
    if before is not None and statement.if_exists == "error":
        raise InvalidConfig(f"Macro {before} exists already; CREATE OR REPLACE MACRO puts this one in its place.")
    macro = Macro(
        schema, name if before is None else before.name, (MacroForm(statement.parameters, sql, statement.is_table),)
    )
    if before is not None and before == macro:
        return str(macro), "the macro is so already"
    lake.put_macro(macro)
    return str(macro), ""


def drop(lakes: Lakes, statement: DropMacro) -> tuple[str, str]:
    """Drop a macro.

    Returns:
        The macro's name, and the reason if nothing was dropped, else "".

    Raises:
        TableNotFound: for an unknown macro, with the nearest names.
    """
    lake, schema, name = place(lakes, statement.target)
    existing = _like(lake, schema, name)
    if existing is None:
        if statement.if_exists:
            return f"{schema}.{name}", "there is no such macro"
        known = [str(macro) for macro in lake.macros().values()]
        raise TableNotFound(f"There is no macro {schema}.{name} to drop.{did_you_mean(f'{schema}.{name}', known)}")
    lake.drop_macro(lake.schema_ref(existing.schema), existing.name)
    return str(existing), ""


def _like(lake: Lake, schema: str, name: str) -> Macro | None:
    return next(
        (m for (s, n), m in lake.macros().items() if (s.lower(), n.lower()) == (schema.lower(), name.lower())), None
    )


# -- stored SQL


def qualified_view(tree: exp.Expr, view: TableRef, lake_name: str | None) -> exp.Expr:
    """Qualify the table names of a view's query by its own lake and schema.

    Args:
        tree: the query.
        view: the view.
        lake_name: the catalog name that the query itself uses for its lake.
    """

    def qualify(table: exp.Table) -> exp.Expr | None:
        if table.catalog and table.catalog not in (lake_name, *OWN_CATALOGS):
            return None
        named = exp.table_(table.name, db=table.db or view.schema, catalog=view.catalog or OWN_CATALOGS[0], quoted=True)
        for clause in ("when", "version"):
            named.set(clause, table.args.get(clause))
        return named

    return replace_tables(tree, qualify, Names.of_lake(lake_name, view.catalog, *OWN_CATALOGS))
