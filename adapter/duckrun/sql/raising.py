"""duckrun errors that rows raise inside an engine, and their recovery from the engine's message."""

from __future__ import annotations

import re

from duckrun import errors
from duckrun.errors import DuckrunError
from duckrun.libraries import exp
from duckrun.sql.quoting import quote_literal

MARK = "duckrun!"
"""Start of the text of such an error; SQL that may raise one contains it."""
_RAISED = re.compile(rf"{MARK}(\w+)!(.*?)!duckrun", re.DOTALL)


def raising(kind: type[DuckrunError], message: str) -> str:
    """Return DuckDB SQL that fails with a duckrun error when it is evaluated.

    Args:
        kind: the class of the error.
        message: SQL of a string.
    """
    return f"error({text_of(kind, message)})"


def text_of(kind: type[DuckrunError], message: str) -> str:
    """Return DuckDB SQL of a marked error text, which ``raised`` finds in an engine's message.

    Args:
        kind: the class of the error.
        message: SQL of a string.
    """
    return f"{quote_literal(f'{MARK}{kind.__name__}!')} || {message} || '!duckrun'"


def raising_tree(kind: type[DuckrunError], message: exp.Expr, engine: str) -> exp.Expr:
    """Return the tree of an expression that fails with a duckrun error in an engine."""
    before, after = exp.Literal.string(f"{MARK}{kind.__name__}!"), exp.Literal.string("!duckrun")
    text = exp.DPipe(this=exp.DPipe(this=before, expression=message), expression=after)
    return exp.Anonymous(this="raise_error" if engine == "spark" else "error", expressions=[text])


def marked(error: DuckrunError) -> str:
    """Return the marked text of an error that Python raises while an engine reads from it."""
    return f"{MARK}{type(error).__name__}!{error}!duckrun"


def raised(text: str, what: str) -> DuckrunError | None:
    """Return the error that a row raised; None if the engine's message contains none.

    Args:
        text: the engine's message.
        what: start of the new message.
    """
    match = _RAISED.search(text)
    return None if match is None else getattr(errors, match[1])(f"{what}: {match[2]}")


def panicked(error: BaseException) -> bool:
    """Return True for a panic of a Rust library, which ``except Exception`` does not catch."""
    return type(error).__name__ == "PanicException"
