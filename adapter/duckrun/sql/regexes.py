r"""DuckDB's regular expressions (RE2) in Spark's SQL (Java).

Java's ``$`` also matches before a last line break, its dot stops at more line breaks, and its
``(?i)`` knows only ASCII letters. A class in brackets has operators there.
"""

from __future__ import annotations

import re
from typing import Any

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.building import call, untranslated

_PARTS = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[:\^?\w+:\]|\[\^?\]?|\]|\(\?P<|\(\?[a-zA-Z-]+[:)]|&&|.", re.DOTALL)
_CLASSES = {
    name: f"\\p{{{name.title()}}}"
    for name in ("alpha", "digit", "alnum", "upper", "lower", "punct", "space", "blank", "cntrl", "graph", "print")
} | {"xdigit": "\\p{XDigit}", "word": "\\w"}


def java(pattern: str, flags: str = "") -> str:
    r"""Return an RE2 pattern as Java's.

    >>> java("^a.$")
    '(?d)^a.\\z'
    >>> java("[[:alpha:][]", "i")
    '(?iu)[\\p{Alpha}\\[]'
    """
    parts: list[str] = []
    is_class = is_multiline = False
    for part in _PARTS.findall(pattern):
        if part.startswith("[:") and is_class:
            name = part[2:-2]
            if name not in _CLASSES:
                raise untranslated(f"the class {part} of a regular expression")
            part = _CLASSES[name]
        elif part.startswith("["):
            part = "\\" + part if is_class else part
            is_class = True
        elif part == "]":
            is_class = False
        elif part == "&&" and is_class:
            part = "&\\&"
        elif part == "(?P<":
            part = "(?<"
        elif part.startswith("(?") and part[-1] in ":)" and len(part) > 3:
            is_multiline |= "m" in part.partition("-")[0]
            part = part.replace("i", "iu", 1) if "i" in part.partition("-")[0] else part
        elif part == "$" and not is_class and not is_multiline:
            part = "\\z"
        parts.append(part)
    text = "".join(parts)
    flags = "".join(sorted(set(flags) & set("is"))).replace("i", "iu") + ("d" if "." in text or "$" in text else "")
    return f"(?{flags}){text}" if flags else text


def translated(pattern: exp.Expr, flags: str = "", wrap: str = "{}") -> exp.Expr:
    """Return the pattern of a function; one that is computed is the same in both engines, or wrong.

    Args:
        pattern: The pattern.
        flags: Options of the function.
        wrap: Text around the pattern.
    """
    if isinstance(pattern, exp.Literal):
        return exp.Literal.string(wrap.format(java(pattern.name, flags)))
    before, after = wrap.split("{}")
    start = exp.Literal.string(before + (f"(?{flags.replace('i', 'iu')})" if flags else ""))
    if not start.name and not after:
        return pattern
    return call("concat", start, pattern, exp.Literal.string(after))


def matches(node: Any) -> exp.Expr:
    """Translate ``regexp_matches``, ``regexp_full_match`` and SIMILAR TO, and their options."""
    flags = node.args.get("flag") or node.args.get("options")
    if flags is not None and (not isinstance(flags, exp.Literal) or set(flags.name) - set("isc")):
        raise untranslated(f"regexp_matches with the options {flags.sql()}")
    wrap = "{}" if isinstance(node, exp.RegexpLike) else "\\A(?:{})\\z"
    pattern = translated(node.expression, "" if flags is None else flags.name.replace("c", ""), wrap)
    return exp.RegexpLike(this=node.this, expression=pattern)


def extract(node: Any) -> exp.Expr:
    """Translate ``regexp_extract`` and ``regexp_extract_all``."""
    node.set("expression", translated(node.expression))
    return node


def split(text: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """Translate ``string_split_regex``.

    Raises:
        UnsupportedFeature: for a pattern that fits an empty text, which Java counts otherwise.
    """
    if not isinstance(pattern, exp.Literal) or _fits_nothing(pattern.name):
        raise untranslated("string_split_regex by a pattern that is computed, or fits an empty text,")
    return call("split", text, translated(pattern))


def _fits_nothing(pattern: str) -> bool:
    try:
        return re.match(pattern, "") is not None
    except re.error:
        return True


def replace(node: Any) -> exp.Expr:
    r"""Translate the options and groups of ``regexp_replace``.

    DuckDB replaces the first match unless the options have ``'g'``, and refers to groups by
    ``\\1``. Spark replaces all matches, and refers to groups by ``$1``.
    """
    flags = node.args.get("modifiers")
    if flags is None or "g" not in flags.name:
        raise UnsupportedFeature(
            "regexp_replace without the option 'g' replaces the first match only, which Spark's does not do; "
            "add 'g', or run this with engine: duckdb."
        )
    replacement = node.args.get("replacement")
    if isinstance(replacement, exp.Literal):
        text = replacement.name.replace("$", "\\$")
        for digit in "0123456789":
            text = text.replace(f"\\{digit}", f"${digit}")
        replacement = exp.Literal.string(text)
    pattern = translated(node.expression, flags.name.replace("g", ""))
    return call("regexp_replace", node.this, pattern, replacement or exp.Literal.string(""))
