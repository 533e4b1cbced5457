"""Words and names of statements, told by DuckDB's tokenizer without a syntax tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import duckdb

SIDES = ("target", "source")
"""Aliases of the table and of the rows in the expressions of a spec."""
# DuckDB's tokenizer tells the kind of a token too, but to compare it takes longer than this.
_NAME = re.compile(rb"""(?![bBeEnNxX]')(?:"(?:[^"]|"")*"|[A-Za-z_\x80-\xff][A-Za-z0-9_$\x80-\xff]*)""")
_DOT = ord(".")
_CONSTANT = re.compile(rb"""'|\d|\.\d|[bBeEnNxX]'|\$\w*\$""")


class Word(NamedTuple):
    """A name, a keyword or a sign of a statement."""

    text: str
    """The name without its quotes, the keyword, or the first character of a sign.

    Empty for a constant.
    """
    start: int
    end: int
    """Place in the statement; the end is exclusive."""
    is_name: bool
    """True for a name or a keyword."""


# Cached: a dbt node needs the names of its text several times.
@lru_cache(maxsize=16)
def dotted_names(sql: str) -> tuple[tuple[str, ...], ...]:
    """Return the dotted names in a statement: a superset of the tables that it uses.

    Each spelling appears once, in the order of the text.

    >>> dotted_names("select t.a from main.T as t")
    (('select',), ('t', 'a'), ('from',), ('main', 'T'), ('as',), ('t',))
    """
    return tuple(dict.fromkeys(_chains(sql)))


def _chains(sql: str) -> Iterator[tuple[str, ...]]:
    # Not by words_in(), which takes four times as long: a model may have thousands of tokens.
    text, match_name = sql.encode(), _NAME.match
    chain: list[str] = []
    expect_name = True
    for start, _ in duckdb.tokenize(sql):
        if chain and text[start] == _DOT:
            expect_name = True
            continue
        match = match_name(text, start)
        if chain and (match is None or not expect_name):
            yield tuple(chain)
            chain = []
        if match is not None:
            chain.append(_unquoted(match[0].decode()))
            expect_name = False
    if chain:
        yield tuple(chain)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name[0] == '"' else name


def words_in(sql: str) -> Iterator[Word]:
    """Yield the words of a statement.

    A text that DuckDB cannot split into tokens has one word at most: DuckDB cannot run it either.

    >>> [word.text for word in words_in('select "a""b" /* c.d */ from t')]
    ['select', 'a"b', 'from', 't']
    """
    text = sql.encode()
    last_byte, place = 0, 0
    for byte, _ in duckdb.tokenize(sql):
        match = _NAME.match(text, byte)
        word = text[byte : byte + 1 if match is None else match.end()].decode(errors="replace")
        place += len(text[last_byte:byte].decode(errors="replace"))  # DuckDB counts bytes
        last_byte = byte
        shown = "" if match is None and _CONSTANT.match(text, byte) else _unquoted(word)
        yield Word(shown, place, place + len(word), match is not None)
