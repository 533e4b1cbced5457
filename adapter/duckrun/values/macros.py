"""Macros of a lake's catalog: named, parameterized expressions and queries, in DuckDB's SQL."""

from __future__ import annotations

from duckrun.values.frozen import frozen


@frozen
class MacroForm:
    """Definition of a macro for one number of arguments."""

    parameters: tuple[tuple[str, str | None], ...]
    """Names with their default values, as SQL."""
    sql: str
    """An expression, or a query if ``is_table``."""
    is_table: bool = False


@frozen
class Macro:
    """A macro of a schema, with one form per number of arguments."""

    schema: str
    name: str
    forms: tuple[MacroForm, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def kind(self) -> str:
        return "table macro" if self.forms[0].is_table else "macro"
