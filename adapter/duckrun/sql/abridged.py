"""SQL texts shortened by their long runs of constants.

The engine receives the whole text; only the syntax tree goes without the constants. sqlglot takes
some microseconds for each constant, as a token and as a node, where DuckDB takes a fraction of one.
"""

from __future__ import annotations

import re

_LONG = 400
"""Minimum length of a run, in characters, to be left out."""
# Blanks and digits match possessively: a run that is too short causes no backtracking.
_CONSTANT = (
    r"(?:(?:-\s*+)?(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?(?![\w.])"
    r"|'[^']*+(?:''[^']*+)*+'|(?i:NULL|TRUE|FALSE)\b)"
)
_AND = r"\s*+,\s*+"
_TYPE = r"(?i:TEXT|VARCHAR|STRING|BOOLEAN|BOOL)"
_CELL = rf"(?:{_CONSTANT}|(?i:CAST)\s*+\(\s*+{_CONSTANT}\s*+(?i:AS)\s++{_TYPE}\s*+\))"
"""A value of a row: a constant, or its cast to text or boolean, as dbt packages write them."""
_ROW = rf"\(\s*+{_CELL}(?:{_AND}{_CELL})*+\s*+\)"
# Bounded pieces of a run: an unbounded repetition would remember each of its items.
_ROWS, _ITEMS = (re.compile(rf"({_AND}{each}){{1,64}}+") for each in (_ROW, _CONSTANT))
_FIRST_ROW, _FIRST_ITEM = (re.compile(rf"\s*+{each}") for each in (_ROW, _CONSTANT))
_CLOSING = re.compile(r"\s*[)\]]")
_MANY_ROWS = re.compile(rf"\){_AND}{_ROW}(?:{_AND}{_ROW}){{15}}+")
_MANY_ITEMS = re.compile(rf",\s*+{_CONSTANT}(?:{_AND}{_CONSTANT}){{30}}+")
_NEXT = re.compile(
    r"""'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|`[^`]*`|--[^\n]*|(?P<end>;)"""
    r"|(?P<rows>\bVALUES\s*(?=\())|(?P<items>\bIN\s*\(|\[)",
    re.IGNORECASE,
)
"""Tokens that the search skips (quoted texts, names, comments), ends of statements, and starts of
possible runs.
"""
_NAME = r"""(?:[^()'";]|(?>"[^"]*(?:""[^"]*)*"))"""
_HEAD = re.compile(
    rf"""(?:\s|--[^\n]*\n)*(?:CREATE\b{_NAME}*?(?:\([^()'"]*\){_NAME}*?)*?\bAS\b"""
    r"|(?=\()|(?=(?:SELECT|WITH|FROM|VALUES|INSERT|UPDATE|DELETE|MERGE)\b))",
    re.IGNORECASE,
)
"""Start of a statement whose constants may be left out. Constants before the AS of a CREATE stay:
they define a table.
"""
_OTHER_QUOTES = {"duckdb": re.compile(r"/\*|\$\w*\$|\b[eE]'"), "spark": re.compile(r"/\*|\\")}
"""Quotes and comments that this module does not parse. A text with one is not shortened."""


def abridged(text: str, dialect: str, *, is_statement: bool = True) -> tuple[str, tuple[int, ...]]:
    """Return a text with blanks for its long runs of constants, and the offsets of these runs.

    A run is a long ``IN (…)`` or ``[…]`` of constants, or the rows of a long VALUES. Its first and
    last item stay, so that the text still ends with its last token. Everything else keeps its
    offset.

    Args:
        text: one or more statements, or one expression.
        dialect: the dialect of the text.
        is_statement: False if the text is one expression.

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
    while (match := _NEXT.search(text, at)) is not None:
        at = match.end()
        if match["end"]:
            head = _HEAD.match(text, at)
            may_begin, at = head is not None, at if head is None else head.end()
        elif may_begin and (match["rows"] or match["items"]):
            start, end = _run(text, at, is_rows=bool(match["rows"]))
            if end - start >= _LONG:
                blanks = "\n".join(" " * len(line) for line in text[start:end].split("\n"))
                pieces += [text[copied:start], blanks]
                places.append(start)
                copied = at = end
    return "".join([*pieces, text[copied:]]), tuple(places)


def _run(text: str, at: int, *, is_rows: bool) -> tuple[int, int]:
    """Return the span between the first and the last item of a list or of rows."""
    first = (_FIRST_ROW if is_rows else _FIRST_ITEM).match(text, at)
    if first is None:
        return at, at
    start = last = end = first.end()
    while (more := (_ROWS if is_rows else _ITEMS).match(text, end)) is not None:
        last, end = more.start(1), more.end()
    return (start, last) if is_rows or _CLOSING.match(text, end) is not None else (at, at)
