"""The macros of a DuckLake, which lie in its catalog. Source: the DuckLake specification 1.0, ducklake_macro."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from duckrun.formats.ducklake.work import Work
from duckrun.sql.names import quote_identifier, quote_literal
from duckrun.sql.spelled import with_plain_lambdas
from duckrun.values.macros import Macro, MacroForm

if TYPE_CHECKING:
    from duckrun.formats.ducklake.ducklake import DuckLakeFormat

Names = dict[tuple[str, str], Macro]
"""Macros by their schema and their name."""


class Macros:
    """The macros of one lake."""

    def __init__(self, form: DuckLakeFormat) -> None:
        self._form = form
        self._changed: tuple[Work, dict[tuple[str, str], Macro | None]] | None = None
        """A transaction over several tables, and the macros that it has made (None: dropped)."""

    def all(self) -> Names:
        """The macros now, as an open transaction over several tables sees them."""
        work = self._form.together
        if work is None:
            return self._listed(None)
        found: dict[tuple[str, str], Macro | None] = {**self._listed(work.base), **self._of(work)}
        return {name: macro for name, macro in found.items() if macro is not None}

    def at(self, snapshot: int) -> Names:
        """The macros at a snapshot."""
        return self._listed(snapshot)

    def put(self, macro: Macro) -> None:
        """Make a macro; one of its name goes. Raises InvalidConfig where DuckDB does not take it."""
        name, is_table = f"{{lake}}.{quote_identifier(macro.schema, macro.name)}", macro.forms[0].is_table
        before = self.all().get((macro.schema, macro.name))
        other = before is not None and before.forms[0].is_table != is_table  # DuckLake would keep both, of one name
        self._form.run_alone(
            f"CREATE SCHEMA IF NOT EXISTS {{lake}}.{quote_identifier(macro.schema)}",
            *([f"DROP MACRO {'' if is_table else 'TABLE '}{name}"] if other else []),
            f"CREATE OR REPLACE MACRO {name}{', '.join(map(_form, macro.forms))}",
        )
        self._note(macro.schema, macro.name, macro)

    def drop(self, schema: str, name: str) -> None:
        """Remove a macro that is there."""
        kind = "TABLE " if self.all()[schema, name].forms[0].is_table else ""
        self._form.run_alone(f"DROP MACRO {kind}{{lake}}.{quote_identifier(schema, name)}")
        self._note(schema, name, None)

    def _note(self, schema: str, name: str, macro: Macro | None) -> None:
        if self._form.together is not None:
            self._of(self._form.together)[schema, name] = macro

    def _of(self, work: Work) -> dict[tuple[str, str], Macro | None]:
        if self._changed is None or self._changed[0] is not work:
            self._changed = (work, {})
        return self._changed[1]

    def _listed(self, snapshot: int | None) -> Names:
        meta = self._form.catalog.meta

        def there(entry: str) -> str:
            ended = f"{entry}.end_snapshot IS NULL"
            return (
                ended
                if snapshot is None
                else f"{entry}.begin_snapshot <= {snapshot} AND (({ended}) OR {entry}.end_snapshot > {snapshot})"
            )

        rows = self._form.catalog.ask(
            f"SELECT s.schema_name, m.macro_name, i.impl_id, i.sql, i.type, p.parameter_name, p.default_value, p.default_value_type FROM {meta('ducklake_macro')} AS m "
            f"JOIN {meta('ducklake_schema')} AS s USING (schema_id) JOIN {meta('ducklake_macro_impl')} AS i ON i.macro_id = m.macro_id "
            f"LEFT JOIN {meta('ducklake_macro_parameters')} AS p ON p.macro_id = i.macro_id AND p.impl_id = i.impl_id "
            f"WHERE {there('m')} AND {there('s')} AND i.dialect = 'duckdb' ORDER BY m.macro_id, i.impl_id, p.column_id"
        )
        forms: dict[tuple[str, str], dict[int, MacroForm]] = {}
        for schema, name, number, sql, kind, parameter, default, of in rows:
            own = forms.setdefault((schema, name), {})
            before = own.get(
                number, MacroForm((), with_plain_lambdas(sql.replace("{DUCKLAKE_CATALOG}.", "")), kind == "table")
            )
            said = () if parameter is None else ((parameter, _default(default, of)),)
            own[number] = MacroForm((*before.parameters, *said), before.sql, before.is_table)
        return {(schema, name): Macro(schema, name, tuple(own.values())) for (schema, name), own in forms.items()}


def _form(form: MacroForm) -> str:
    """A form of a macro in DuckDB's SQL."""
    listed = ", ".join(
        quote_identifier(n) + ("" if default is None else f" := {default}") for n, default in form.parameters
    )
    return f"({listed}) AS {'TABLE ' if form.is_table else ''}{form.sql}"


def _default(value: str | None, kind: str | None) -> str | None:
    """A default in SQL; None where there is none."""
    if value is None or kind in (None, "unknown"):
        return None
    plain = kind != "varchar" and re.fullmatch(r"-?[\d.]+(e-?\d+)?|true|false", value, re.IGNORECASE)
    return value if plain else quote_literal(value)
