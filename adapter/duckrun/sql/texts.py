"""DuckDB's string functions in Spark's SQL."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from duckrun.sql.building import call, spark_rule, spark_sql, untranslated
from duckrun.sql.duckdb_functions import to_text

# %d alone or inside text. C and Java format all other numbers differently.
_PRINTF = re.compile(r"(?:[^%]|%%|%[-+0,]*\d*d|%s)*", re.DOTALL)


def printf(arguments: Sequence[exp.Expr]) -> exp.Expr:
    """Translate ``printf(format, …)``.

    NULL if an argument is NULL, which Spark writes as a text.
    """
    pattern, *values = arguments
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and _PRINTF.fullmatch(pattern.name)):
        raise untranslated("printf with a format other than %d, %s and text")
    kinds = re.findall(r"%[-+0,]*\d*([ds])", pattern.name.replace("%%", ""))
    texts = [to_text(exp.cast(x, "text")) if kind == "s" else x for kind, x in zip(kinds, values, strict=False)]
    written: exp.Expr = call("printf", pattern, *texts, *values[len(texts) :])
    for value in values:
        written = spark_sql("if(x IS NULL, NULL, written)", x=value, written=written)
    return written


def end_of_text(node: Any) -> exp.Expr:
    """Translate ``left`` and ``right``.

    A negative number drops so many letters; Spark then returns none.
    """
    count = node.expression
    if _is_count(count):
        return node
    node.set("expression", spark_sql("if(n < 0, greatest(length(x) + n, 0), n)", x=node.this, n=count))
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
    from_zero = spark_sql("substring(x, 1, greatest(n - 1, 0))", x=node.this, n=length)
    if isinstance(start, exp.Literal):
        return from_zero
    return spark_sql("if(start = 0, from_zero, node)", start=start, from_zero=from_zero, node=node)


def split_text(node: Any) -> exp.Expr:
    """Refuse ``string_split(s, '')``, which gives the letters.

    Spark adds an empty text behind them. ``string_split(s, NULL)`` gives the whole text.
    """
    by = node.expression
    if isinstance(by, exp.Literal):
        if not by.name:
            raise untranslated("string_split by an empty text")
        return node
    return spark_sql(
        "CASE WHEN by = '' THEN raise_error('string_split() by an empty text on Spark') "
        "WHEN by IS NULL AND x IS NOT NULL THEN array(x) ELSE node END",
        x=node.this,
        by=by,
        node=node.copy(),
    )


def levenshtein(node: Any) -> exp.Expr:
    """Turn each byte into one letter: DuckDB counts bytes, Spark letters."""
    letters = (spark_sql("decode(encode(x, 'UTF-8'), 'ISO-8859-1')", x=side) for side in (node.this, node.expression))
    return call("levenshtein", *letters)


_SPACES = "".join(map(chr, (0x20, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000)))
"""Unicode's separators of the kind Zs."""


def trimmed(node: Any) -> exp.Expr:
    """Name the blanks of ``trim(s)``: Spark drops the plain blank only."""
    if node.expression is None:
        node.set("expression", exp.Literal.string(_SPACES))
    return node


reversed_text = spark_rule(
    "if(x RLIKE '[\\\\p{M}\\\\x{200D}\\\\x{1F1E6}-\\\\x{1F1FF}]', "
    "raise_error('reverse() of letters of several signs on Spark'), node)"
)
"""Raise an error for a text with letters of several signs, whose order DuckDB keeps."""


unicode = spark_rule("if(x = '', -1, node)")
"""Return -1 for an empty text; Spark returns 0."""


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
