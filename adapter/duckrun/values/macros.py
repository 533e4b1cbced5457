"""Macros of a lake's catalog: expressions and queries with parameters, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MacroForm:
    """What a macro stands for with so many arguments. ``parameters`` are names with their defaults, as SQL; ``sql`` is an expression, or a query
    of an ``is_table`` one. All is DuckDB's SQL.
    """

    parameters: tuple[tuple[str, str | None], ...]
    sql: str
    is_table: bool = False


@dataclass(frozen=True)
class Macro:
    """A macro of a schema; a form for each number of arguments."""

    schema: str
    name: str
    forms: tuple[MacroForm, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def kind(self) -> str:
        return "table macro" if self.forms[0].is_table else "macro"
