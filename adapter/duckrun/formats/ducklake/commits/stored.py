"""Views and macros of a DuckLake, which its catalog stores.

Source: the DuckLake specification 1.0, ducklake_view, ducklake_macro.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlglot
from sqlglot import Token, TokenType

from duckrun.errors import StorageError
from duckrun.formats.ducklake.catalog.catalog import there
from duckrun.formats.ducklake.commits.transactor import Transactor
from duckrun.formats.ducklake.commits.work import Work
from duckrun.sql.dialects import tokens_in
from duckrun.sql.edits import closing, edited
from duckrun.sql.quoting import quote_identifier, quote_literal
from duckrun.values.macros import Macro, MacroForm
from duckrun.values.snapshot import TableRef


class Views:
    """Views of one lake."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor

    def put(self, ref: TableRef, sql: str, comment: str | None) -> None:
        """Create or replace a view, and drop a table of its name.

        Raises:
            InvalidConfig: DuckDB rejects the view.
        """
        view = f"{{lake}}.{quote_identifier(ref.schema, ref.name)}"
        self._transactor.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(ref.schema)}",
            *([f"DROP TABLE {view}"] if self._transactor.exists(ref) else []),
            f"CREATE OR REPLACE VIEW {view} AS {sql}",
            *([f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []),
        )

    def find(self, schema: str, name: str) -> tuple[str, str | None] | None:
        """Return the SQL and the comment of a view; None if there is none of that name.

        An open multi-table transaction sees its own changes.
        """
        work = self._transactor.together
        if work is None:
            views = self.at(None, "s.schema_name = ? AND v.view_name = ?", [schema, name])
            return views.get((schema, name))
        listed = "SELECT sql, comment FROM duckdb_views() WHERE database_name = ? AND schema_name = ? AND view_name = ?"
        rows = work.ask(listed, [work.alias, schema, name])
        return (_with_plain_lambdas(_query_of(rows[0][0])), rows[0][1]) if rows else None

    def is_as(self, ref: TableRef, sql: str, comment: str | None) -> bool:
        """True if the catalog's view has equivalent SQL and this comment."""
        view = self.find(ref.schema, ref.name)
        return view is not None and view[1] == comment and self._is_same(view[0], sql)

    def rename(self, ref: TableRef, new: TableRef, sql: str, comment: str | None) -> None:
        """Rename a view within its schema."""
        old, view = (f"{{lake}}.{quote_identifier(each.schema, each.name)}" for each in (ref, new))
        comments = [f"COMMENT ON VIEW {view} IS {quote_literal(comment)}"] if comment is not None else []
        self._transactor.run_alone(f"DROP VIEW {old}", f"CREATE VIEW {view} AS {sql}", *comments)

    def drop(self, ref: TableRef) -> None:
        self._transactor.run_alone(f"DROP VIEW IF EXISTS {{lake}}.{quote_identifier(ref.schema, ref.name)}")

    def at(
        self, snapshot: int | None, where: str = "true", values: Sequence[str] = ()
    ) -> dict[tuple[str, str], tuple[str, str | None]]:
        """Return the views at a snapshot, or now: (schema, name) -> (SQL, comment)."""
        meta = self._transactor.catalog.meta
        rows = self._transactor.catalog.ask(
            f"SELECT s.schema_name, v.view_name, v.sql, t.value FROM {meta('ducklake_view')} AS v "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) "
            f"LEFT JOIN (SELECT * FROM {meta('ducklake_tag')} AS g WHERE {there('g', snapshot)} AND key = 'comment') "
            "AS t ON t.object_id = v.view_id "
            f"WHERE {there('v', snapshot)} AND {there('s', snapshot)} AND {where}",
            values,
        )
        return {
            # DuckLake stores a placeholder for the catalog's name.
            (s, n): (_with_plain_lambdas(sql.replace("{DUCKLAKE_CATALOG}.", "")), comment)
            for s, n, sql, comment in rows
        }

    def _is_same(self, sql: str, other: str) -> bool:
        """True for two queries that differ only in spelling."""
        try:
            # DuckDB's serialization removes differences of spelling.
            plain = self._transactor.catalog.ask(
                "SELECT json_deserialize_sql(json_serialize_sql(?)), json_deserialize_sql(json_serialize_sql(?))",
                [sql, other],
            )
        except StorageError:  # DuckDB cannot serialize one of them: treat them as different.
            return False
        return bool(plain) and plain[0][0] == plain[0][1]


def _query_of(statement: str) -> str:
    """Return the query inside the CREATE VIEW statement that DuckDB shows for a view."""
    depth = 0
    for token in sqlglot.tokenize(statement, read="duckdb"):
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if not depth and token.token_type == TokenType.ALIAS:
            return statement[token.end + 1 :].strip().rstrip(";")
    return statement


def _with_plain_lambdas(sql: str) -> str:
    """Return DuckDB's text with ``lambda x: …`` for ``(lambda x: …)``.

    DuckDB writes the brackets around an argument; sqlglot cannot parse them.

    >>> _with_plain_lambdas("list_transform(l, (lambda x: (x + 1)))")
    'list_transform(l, lambda x: (x + 1))'
    """
    tokens = tokens_in(sql, "duckdb")
    brackets: list[Token] = []
    for at, (before, token, after) in enumerate(zip(tokens, tokens[1:], tokens[2:], strict=False), 1):
        if token.token_type == TokenType.L_PAREN and after.text.lower() == "lambda" and before.text in ("(", ","):
            brackets += [token, tokens[closing(tokens, at)]]
    return edited(sql, sorted((bracket.start, bracket.end, "") for bracket in brackets))


Names = dict[tuple[str, str], Macro]
"""Macros by schema and name."""


class Macros:
    """Macros of one lake."""

    def __init__(self, transactor: Transactor) -> None:
        self._transactor = transactor
        self._changed: tuple[Work, dict[tuple[str, str], Macro | None]] | None = None
        """The open multi-table transaction, and the macros that it created (None: dropped)."""

    def all(self) -> Names:
        """Return the current macros, as an open multi-table transaction sees them."""
        work = self._transactor.together
        if work is None:
            return self.at(None)
        macros: dict[tuple[str, str], Macro | None] = {**self.at(work.base), **self._of(work)}
        return {name: macro for name, macro in macros.items() if macro is not None}

    def put(self, macro: Macro) -> None:
        """Create a macro, or replace the one of its name.

        Raises:
            InvalidConfig: DuckDB rejects the macro.
        """
        name, is_table = f"{{lake}}.{quote_identifier(macro.schema, macro.name)}", macro.forms[0].is_table
        before = self.all().get((macro.schema, macro.name))
        # DuckLake would keep a scalar and a table macro of one name.
        other = before is not None and before.forms[0].is_table != is_table
        self._transactor.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(macro.schema)}",
            *([f"DROP MACRO {'' if is_table else 'TABLE '}{name}"] if other else []),
            f"CREATE OR REPLACE MACRO {name}{', '.join(map(_form, macro.forms))}",
        )
        self._note(macro.schema, macro.name, macro)

    def drop(self, schema: str, name: str) -> None:
        """Drop an existing macro."""
        kind = "TABLE " if self.all()[schema, name].forms[0].is_table else ""
        self._transactor.run_alone(f"DROP MACRO {kind}{{lake}}.{quote_identifier(schema, name)}")
        self._note(schema, name, None)

    def _note(self, schema: str, name: str, macro: Macro | None) -> None:
        if self._transactor.together is not None:
            self._of(self._transactor.together)[schema, name] = macro

    def _of(self, work: Work) -> dict[tuple[str, str], Macro | None]:
        if self._changed is None or self._changed[0] is not work:
            self._changed = (work, {})
        return self._changed[1]

    def at(self, snapshot: int | None) -> Names:
        """Return the macros at a snapshot, or now."""
        meta = self._transactor.catalog.meta
        rows = self._transactor.catalog.ask(
            "SELECT s.schema_name, m.macro_name, i.impl_id, i.sql, i.type, p.parameter_name, p.default_value, "
            f"p.default_value_type FROM {meta('ducklake_macro')} AS m JOIN {meta('ducklake_schema')} AS s "
            f"USING (schema_id) JOIN {meta('ducklake_macro_impl')} AS i ON i.macro_id = m.macro_id "
            f"LEFT JOIN {meta('ducklake_macro_parameters')} AS p ON p.macro_id = i.macro_id AND p.impl_id = i.impl_id "
            f"WHERE {there('m', snapshot)} AND {there('s', snapshot)} AND i.dialect = 'duckdb' "
            "ORDER BY m.macro_id, i.impl_id, p.column_id"
        )
        forms: dict[tuple[str, str], dict[int, MacroForm]] = {}
        for schema, name, number, sql, kind, parameter, default, of in rows:
            of_macro = forms.setdefault((schema, name), {})
            before = of_macro.get(
                # DuckLake stores a placeholder for the catalog's name.
                number,
                MacroForm((), _with_plain_lambdas(sql.replace("{DUCKLAKE_CATALOG}.", "")), kind == "table"),
            )
            parameters = () if parameter is None else ((parameter, _default(default, of)),)
            of_macro[number] = MacroForm((*before.parameters, *parameters), before.sql, before.is_table)
        return {
            (schema, name): Macro(schema, name, tuple(of_macro.values())) for (schema, name), of_macro in forms.items()
        }


def _form(form: MacroForm) -> str:
    """Return one form of a macro in DuckDB SQL."""
    listed = ", ".join(
        quote_identifier(n) + ("" if default is None else f" := {default}") for n, default in form.parameters
    )
    return f"({listed}) AS {'TABLE ' if form.is_table else ''}{form.sql}"


def _default(value: str | None, kind: str | None) -> str | None:
    """Return a parameter's default in SQL; None if it has none."""
    if value is None or kind in (None, "unknown"):
        return None
    plain = kind != "varchar" and re.fullmatch(r"-?[\d.]+(e-?\d+)?|true|false", value, re.IGNORECASE)
    return value if plain else quote_literal(value)
