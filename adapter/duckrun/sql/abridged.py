"""Texts without long runs of constants, which no syntax tree needs: they stay in the text that the engine is given.

sqlglot takes some microseconds for each constant, as a token and as a node, where DuckDB takes a fraction of one.
"""

from __future__ import annotations

import re

_LONG = 400
"""Characters of constants from which on a run is left out."""
# Blanks and digits are matched in one way only (possessive): where a run is too short, nothing is tried again.
_CONSTANT = r"""(?:(?:-\s*+)?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])|'[^']*+(?:''[^']*+)*+'|(?i:NULL|TRUE|FALSE)\b)"""
_AND = r"\s*+,\s*+"
_ROW = rf"\(\s*+{_CONSTANT}(?:{_AND}{_CONSTANT})*+\s*+\)"
# Pieces of a run: a repetition without a bound would remember each of its items.
_ROWS, _ITEMS = (re.compile(rf"({_AND}{each}){{1,64}}+") for each in (_ROW, _CONSTANT))
_FIRST_ROW, _FIRST_ITEM = (re.compile(rf"\s*+{each}") for each in (_ROW, _CONSTANT))
_CLOSING = re.compile(r"\s*[)\]]")
_MANY_ROWS = re.compile(rf"\){_AND}{_ROW}(?:{_AND}{_ROW}){{15}}+")
_MANY_ITEMS = re.compile(rf",\s*+{_CONSTANT}(?:{_AND}{_CONSTANT}){{30}}+")
_NEXT = re.compile(
    r"""'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|`[^`]*`|--[^\n]*|(?P<end>;)|(?P<rows>\bVALUES\s*(?=\())|(?P<items>\bIN\s*\(|\[)""",
    re.IGNORECASE,
)
"""What stands for itself, such as a text in quotes; the end of a statement; and where constants may begin."""
_NAME = r"""(?:[^()'";]|(?>"[^"]*(?:""[^"]*)*"))"""
_HEAD = re.compile(
    rf"""(?:\s|--[^\n]*\n)*(?:CREATE\b{_NAME}*?(?:\([^()'"]*\){_NAME}*?)*?\bAS\b|(?=\()|(?=(?:SELECT|WITH|FROM|VALUES|INSERT|UPDATE|DELETE|MERGE)\b))""",
    re.IGNORECASE,
)
"""The begin of a statement of which constants may be left out. Those before the AS of a CREATE stay: they define a table."""
_OTHER_QUOTES = {"duckdb": re.compile(r"/\*|\$\w*\$|\b[eE]'"), "spark": re.compile(r"/\*|\\")}
"""Quotes and comments that are not read here: a text with them is taken whole."""


def abridged(text: str, dialect: str, *, is_statement: bool = True) -> tuple[str, tuple[int, ...]]:
    """A text with blanks in the place of constants that a tree does not need, and the places where they begin.

    Of a long ``IN (…)`` or ``[…]`` of constants the first and the last stay, and so do those of the rows of a long VALUES: a text
    ends where its last token does. All else stays in its place. Without ``is_statement`` the text is one expression.

    >>> short, places = abridged("SELECT 1 IN (" + "1, " * 200 + "2) AS x", "duckdb")
    >>> " ".join(short.split()), len(short), places
    ('SELECT 1 IN (1 , 2) AS x', 620, (14,))
    """
    if (_MANY_ROWS.search(text) or _MANY_ITEMS.search(text)) is None or _OTHER_QUOTES[dialect].search(text) is not None:
        return text, ()
    pieces: list[str] = []
    places: list[int] = []
    copied = at = 0
    head = _HEAD.match(text)
    may_begin, at = (head is not None, head.end() if head is not None else 0) if is_statement else (True, 0)
    while (found := _NEXT.search(text, at)) is not None:
        at = found.end()
        if found["end"]:
            head = _HEAD.match(text, at)
            may_begin, at = head is not None, at if head is None else head.end()
        elif may_begin and (found["rows"] or found["items"]):
            start, end = _run(text, at, is_rows=bool(found["rows"]))
            if end - start >= _LONG:
                pieces += [text[copied:start], _blanks(text[start:end])]
                places.append(start)
                copied = at = end
    return "".join([*pieces, text[copied:]]), tuple(places)


def _run(text: str, at: int, *, is_rows: bool) -> tuple[int, int]:
    """Where the constants that can be left out begin and end, of a list or of rows that begin at a place: those between the first
    and the last.
    """
    first = (_FIRST_ROW if is_rows else _FIRST_ITEM).match(text, at)
    if first is None:
        return at, at
    start = last = end = first.end()
    while (more := (_ROWS if is_rows else _ITEMS).match(text, end)) is not None:
        last, end = more.start(1), more.end()
    return (start, last) if is_rows or _CLOSING.match(text, end) is not None else (at, at)


def _blanks(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))
