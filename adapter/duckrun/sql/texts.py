"""DuckDB's string functions in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, number, untranslated

# %d alone or inside text. C and Java format all other numbers differently.
_PRINTF = re.compile(r"(?:[^%]|%%|%[-+0,]*\d*d|%s)*", re.DOTALL)


def printf(arguments: Sequence[exp.Expr]) -> exp.Expr:
    """Translate ``printf(format, …)``.

    NULL if an argument is NULL, which Spark writes as a text.
    """
    pattern, *values = arguments
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and _PRINTF.fullmatch(pattern.name)):
        raise untranslated("printf with a format other than %d, %s and text")
    written = call("printf", pattern, *values)
    if not values:
        return written
    return call("if", exp.or_(*(exp.Paren(this=each.copy()).is_(exp.null()) for each in values)), exp.null(), written)


def end_of_text(node: Any) -> exp.Expr:
    """Translate ``left`` and ``right``.

    A negative number drops so many letters; Spark then returns none.
    """
    count = node.expression
    if _is_count(count):
        return node
    remaining = call(
        "greatest", exp.Add(this=call("char_length", node.this.copy()), expression=exp.Paren(this=count)), number(0)
    )
    below = exp.LT(this=exp.Paren(this=count.copy()), expression=number(0))
    node.set("expression", call("if", below, remaining, count.copy()))
    return node


def part_of_text(node: Any) -> exp.Expr:
    """Translate ``substring``.

    Place 0 is before the first letter; Spark takes it for place 1. Spark has no negative length.
    """
    start, length = node.args.get("start"), node.args.get("length")
    if length is None or (_is_count(start) and int(start.name) > 0 and _is_count(length)):
        return node
    if not _is_count(length):
        raise untranslated("substring with a length that is computed or negative")
    shorter = call("greatest", exp.Sub(this=length.copy(), expression=number(1)), number(0))
    from_zero = exp.Substring(this=node.this.copy(), start=number(1), length=shorter)
    if isinstance(start, exp.Literal):
        return from_zero
    return call("if", exp.EQ(this=exp.Paren(this=start.copy()), expression=number(0)), from_zero, node.copy())


def split_text(node: Any) -> exp.Expr:
    """Refuse ``string_split(s, '')``, which gives the letters.

    Spark adds an empty text behind them.
    """
    by = node.expression
    if isinstance(by, exp.Literal) and not by.name:
        raise untranslated("string_split by an empty text")
    return node


def levenshtein(node: Any) -> exp.Expr:
    """Turn each byte into one letter: DuckDB counts bytes, Spark letters."""
    sides = (
        call("decode", call("encode", side, exp.Literal.string("UTF-8")), exp.Literal.string("ISO-8859-1"))
        for side in (node.this, node.expression)
    )
    return call("levenshtein", *sides)


def unicode(node: Any) -> exp.Expr:
    """Return -1 for an empty text; Spark returns 0."""
    empty = exp.EQ(this=node.this.copy(), expression=exp.Literal.string(""))
    return call("if", empty, number(-1), node.copy())


def like(node: Any) -> exp.Expr:
    """Double the backslashes of a pattern.

    A backslash is a letter in DuckDB. In Spark it escapes the next letter, unless ESCAPE names
    another.
    """
    if isinstance(node.parent, exp.Escape):
        return node
    pattern, backslash = node.expression, "\\"
    if isinstance(pattern, exp.Literal):
        node.set("expression", exp.Literal.string(pattern.name.replace(backslash, backslash * 2)))
    else:
        twice = call("replace", pattern, exp.Literal.string(backslash), exp.Literal.string(backslash * 2))
        node.set("expression", twice)
    return node


def _is_count(node: Any) -> bool:
    """Return True for a literal number that is not negative."""
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()
