"""Errors of ours that rows raise inside an engine, by SQL, and how they are known again on the way out."""

from __future__ import annotations

import re

from sqlglot import exp

from duckrun import errors
from duckrun.errors import DuckrunError
from duckrun.sql.names import quote_literal

MARK = "duckrun!"
"""What the text of such an error begins with, and SQL that may raise one has in it."""
_RAISED = re.compile(rf"{MARK}(\w+)!(.*?)!duckrun", re.DOTALL)


def raising(kind: type[DuckrunError], message: str) -> str:
    """SQL (DuckDB's dialect) that fails with one of our errors when it is evaluated. ``message`` is SQL of a string."""
    return f"error({text_of(kind, message)})"


def text_of(kind: type[DuckrunError], message: str) -> str:
    """SQL (DuckDB's dialect) of the text by which one of our errors is known again in that of an engine's. ``message`` is SQL of a string."""
    return f"{quote_literal(f'{MARK}{kind.__name__}!')} || {message} || '!duckrun'"


def raising_tree(kind: type[DuckrunError], message: exp.Expr, engine: str) -> exp.Expr:
    """The same as a syntax tree, for an engine by its name."""
    before, after = exp.Literal.string(f"{MARK}{kind.__name__}!"), exp.Literal.string("!duckrun")
    text = exp.DPipe(this=exp.DPipe(this=before, expression=message), expression=after)
    return exp.Anonymous(this="raise_error" if engine == "spark" else "error", expressions=[text])


def marked(error: DuckrunError) -> str:
    """The text by which an error of ours is known again that Python raises while an engine reads from it."""
    return f"{MARK}{type(error).__name__}!{error}!duckrun"


def raised(text: str, what: str) -> DuckrunError | None:
    """The error that a row raised, from the text of an engine's; ``what`` begins its message."""
    found = _RAISED.search(text)
    return None if found is None else getattr(errors, found[1])(f"{what}: {found[2]}")


def panicked(error: BaseException) -> bool:
    """True for the panic of a library in Rust. Its exception is no Exception, so that ``except Exception`` lets it pass."""
    return type(error).__name__ == "PanicException"
