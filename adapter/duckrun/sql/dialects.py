"""SQL text to syntax trees and back, keeping the meaning of the source dialect.

sqlglot does most of the work. This module corrects what sqlglot reads differently from the engines.
``for_spark`` and ``for_duckdb`` handle what one engine means differently from the other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from datetime import datetime
from functools import lru_cache

import duckdb
from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig
from duckrun.libraries import collector_paused
from duckrun.sql.edits import edited
from duckrun.sql.for_duckdb import for_duckdb, keep_patterns
from duckrun.sql.for_spark import for_spark
from duckrun.sql.lost import generated, refuse_lost
from duckrun.sql.pieces import dialect_of, is_piece, mark, read_from, why_unread
from duckrun.sql.written import give_back, text_of, written, written_of_names

_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
# Our own error names what sqlglot cannot read; sqlglot's warning would repeat it.
logging.getLogger("sqlglot").addFilter(lambda record: not _SILENT.get())


def tokens_in(text: str, dialect: str) -> list[Token]:
    """Return the tokens of a text.

    Raises:
        SqlglotError: for an open quote or comment.

    >>> [token.text for token in tokens_in("'it''s' 'two'", "spark")]
    ["it's", 'two']
    >>> [token.text for token in tokens_in("$1,$2 = ?::int", "duckdb")]
    ['$1', ',', '$2', '=', '?', '::', 'int']
    """
    tokenizer = Dialect.get_or_raise(dialect)
    if dialect == "spark":
        tokens = _with_doubled_quotes(_with_plain_casts(tokenizer.tokenize(text)), text)
    else:
        marks = marks_in(text)
        tokens = _with_marks(tokenizer.tokenize(_without(text, marks)), text, marks)
        if _may_name(text) and _NAME_TOO.search(text):
            tokens = _with_columns_named_as_types(tokens)
    if _CASE_AS_NAME.search(text):
        tokens = _with_columns_named_as_case(tokens)
    if "@" in text:
        tokens = _with_versions(tokens, dialect)
    return _with_typed_literals(tokens) if "::" in text else tokens


_CASE_AS_NAME = re.compile(r"\.\s*(?:case|end)\b", re.IGNORECASE)


def _with_columns_named_as_case(tokens: list[Token]) -> list[Token]:
    """Turn the last word of ``t.case`` and ``t.end`` into a name: it opens and closes nothing."""
    return tokens[:1] + [
        Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
        if before.token_type == TokenType.DOT and token.token_type in (TokenType.CASE, TokenType.END)
        else token
        for before, token in zip(tokens, tokens[1:], strict=False)
    ]


def _with_columns_named_as_types(tokens: list[Token]) -> list[Token]:
    """Turn ``range < 2`` into a comparison with a column.

    sqlglot reads a type there, but DuckDB writes no type with ``<``.
    """
    return [
        Token(TokenType.IDENTIFIER, token.text, token.line, token.col, token.start, token.end)
        if token.text.upper() in _NAMES_TOO and token.token_type not in _QUOTED and after.token_type in _OPERATORS
        else token
        for token, after in zip(tokens, tokens[1:], strict=False)
    ] + tokens[-1:]


def _may_name(text: str) -> bool:
    """Return False if a text contains none of these words: faster than the regular expression."""
    lower = text.lower()
    return any(name in lower for name in _LOWER_NAMES_TOO)


_NAMES_TOO = ("RANGE", "MAP", "STRUCT", "LIST", "ARRAY", "ROW", "IF")
_LOWER_NAMES_TOO = tuple(name.lower() for name in _NAMES_TOO)
_NAME_TOO = re.compile(rf"\b({'|'.join(_NAMES_TOO)})\b", re.IGNORECASE)
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING)
_OPERATORS = (
    TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.EQ, TokenType.NEQ, TokenType.PLUS,
    TokenType.DASH, TokenType.STAR, TokenType.SLASH, TokenType.DIV, TokenType.MOD, TokenType.DPIPE, TokenType.IS,
    TokenType.IN,
)  # fmt: skip


def statements_in(tokens: Iterable[Token], text: str) -> list[list[Token]]:
    """Return the tokens of each statement of a text.

    A semicolon inside a literal, quoted name or comment separates nothing.
    """
    whole = list(tokens)
    if ";" not in text:
        return [whole] if whole else []
    ends = [at for at, token in enumerate(whole) if token.token_type == TokenType.SEMICOLON]
    parts = (whole[start:end] for start, end in zip([0, *(at + 1 for at in ends)], [*ends, len(whole)], strict=True))
    return [part for part in parts if part]


def trees_in(text: str, dialect: str) -> list[exp.Expr]:
    """Return one tree per statement of a text; each knows its own part of the text.

    Raises:
        SqlglotError: if sqlglot cannot parse the text.
    """
    return [tree_of(tokens, text, dialect) for tokens in statements_in(tokens_in(text, dialect), text)]


def tree_of(tokens: Sequence[Token], text: str, dialect: str) -> exp.Expr:
    """Return the tree of one expression or statement.

    Args:
        tokens: the tokens of the expression or statement.
        text: the whole text that the tokens were read from.
        dialect: the dialect of the text.

    Raises:
        SqlglotError: if sqlglot cannot parse it, or if it is not exactly one.
    """
    silent = _SILENT.set(True)
    try:
        with collector_paused() if len(tokens) > _LONG else nullcontext():
            trees = Dialect.get_or_raise(dialect).parser().parse(list(tokens), text)
    finally:
        _SILENT.reset(silent)
    if len(trees) != 1 or trees[0] is None:
        raise ParseError(f"this text holds {len(trees)} expressions, and one is asked for")
    texts = [token.text for token in tokens if token.token_type == TokenType.STRING] if dialect == "spark" else []
    if texts:
        keep_patterns(trees[0], texts, _pattern_of_sqlglot)
    return read_from(trees[0], dialect, text, tokens)


_LONG = 1000
"""Minimum number of tokens of a long text."""


def _pattern_of_sqlglot(pattern: str) -> str | None:
    translated = Dialect.get_or_raise("spark").format_time(exp.Literal.string(pattern))
    return None if translated is None else translated.name


def tree_in(text: str, dialect: str) -> exp.Expr:
    """Return the tree of one expression or statement.

    Raises:
        SqlglotError: if sqlglot cannot parse it, or if it is not exactly one.
    """
    trees = trees_in(text, dialect)
    if len(trees) != 1:
        raise ParseError(f"this text holds {len(trees)} expressions, and one is asked for")
    return trees[0]


def marks_in(text: str) -> list[tuple[int, int]]:
    """Return first and last character of each parameter, as DuckDB's own tokenizer finds them.

    The text is in DuckDB's dialect.

    >>> text = "select '$1', $1+$name, ?::int"
    >>> [text[start : end + 1] for start, end in marks_in(text)]
    ['$1', '$name', '?']
    """
    if "?" not in text and "$" not in text:
        return []
    coded = text.encode()
    marks = (_MARK.match(coded, start) for start, kind in duckdb.tokenize(text) if kind == duckdb.token_type.operator)
    spans = [match.span() for match in marks if match is not None]
    if not text.isascii():  # DuckDB counts bytes
        spans = [(len(coded[:start].decode()), len(coded[:end].decode())) for start, end in spans]
    return [(start, end - 1) for start, end in spans]


_MARK = re.compile(rb"\?\d*|\$(?:\d+|[A-Za-z_\x80-\xff][\w$\x80-\xff]*)")


def _without(text: str, marks: Sequence[tuple[int, int]]) -> str:
    """Replace the parameters by blanks.

    sqlglot reads ``$1,$`` as a quote, and ``?::`` as an operator.
    """
    return edited(text, ((start, end, " " * (end + 1 - start)) for start, end in marks))


def _with_marks(tokens: Sequence[Token], text: str, marks: Sequence[tuple[int, int]]) -> list[Token]:
    """Insert one token per parameter into the tokens of the text without them."""
    if not marks:
        return list(tokens)
    merged: list[Token] = []
    waiting = [Token(TokenType.PLACEHOLDER, text[start : end + 1], start=start, end=end) for start, end in marks[::-1]]
    for at, token in enumerate(tokens):
        if at and token.token_type == TokenType.STRING and tokens[at - 1].token_type in _COMMANDS:
            # sqlglot makes one string of all that follows such a word, parameters included.
            start = tokens[at - 1].end + 1
            end = tokens[at + 1].start if at + 1 < len(tokens) else len(text)
            token = Token(token.token_type, text[start:end].strip(), token.line, token.col, token.start, token.end)
            while waiting and waiting[-1].start < end:
                waiting.pop()
        while waiting and waiting[-1].start < token.start:
            merged.append(waiting.pop())
        merged.append(token)
    return [*merged, *reversed(waiting)]


_COMMANDS = (TokenType.COMMAND, TokenType.EXECUTE)


def _with_plain_casts(tokens: list[Token]) -> list[Token]:
    """Split ``?::int`` into a parameter and its cast.

    sqlglot reads one operator that Spark lacks.
    """
    plain: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.QDCOLON:
            plain.append(Token(TokenType.PLACEHOLDER, "?", token.line, token.col, token.start, token.start))
            token = Token(TokenType.DCOLON, "::", token.line, token.col, token.start + 1, token.end)
        plain.append(token)
    return plain


def _with_doubled_quotes(tokens: list[Token], text: str) -> list[Token]:
    """Join two adjacent literals into one with the quote between them.

    Since Spark 4.0 a doubled quote stands for itself. sqlglot reads two literals, and would write
    them as one without the quote.
    """
    joined: list[Token] = []
    for token in tokens:
        last = joined[-1] if joined else token
        are_texts = last.token_type == token.token_type == TokenType.STRING
        if are_texts and token.start == last.end + 1 and text[token.start] == text[last.end]:
            both = last.text + text[token.start] + token.text
            token = Token(TokenType.STRING, both, last.line, last.col, last.start, token.end)
            joined.pop()
        joined.append(token)
    return joined


def _with_versions(tokens: list[Token], dialect: str) -> list[Token]:
    """Turn ``orders@v3`` into ``orders AT (VERSION => 3)``.

    A time of 17 digits becomes ``AT (TIMESTAMP => …)``. Delta's own readers know this form; sqlglot
    takes it for an alias.

    Raises:
        ParseError: for another word there in Spark's dialect, which has no other use of ``@``.
            DuckDB reports the error itself.
    """
    plain: list[Token] = []
    for at, token in enumerate(tokens):
        sign = tokens[at - 1] if at else None
        if sign is None or sign.token_type != TokenType.PARAMETER or sign.text != "@":
            plain.append(token)
            continue
        beside = at > 1 and tokens[at - 2].end + 1 == sign.start and sign.end + 1 == token.start
        clause = _travel(token, dialect) if beside else None
        if clause is not None:
            parts = Dialect.get_or_raise(dialect).tokenize(clause)
            plain[-1:] = [Token(t.token_type, t.text, sign.line, sign.col, sign.start, token.end) for t in parts]
        elif dialect == "spark":
            raise ParseError(
                "behind @ stands a version, as orders@v3, or a time of 17 digits, as orders@20260131120000000, "
                "without blanks; "
                f"{token.text!r} is neither"
            )
        else:
            plain.append(token)
    return plain


def _travel(token: Token, dialect: str) -> str | None:
    """Return the time travel clause for ``v3`` or ``20260131120000000``; None for another token."""
    text = token.text
    if token.token_type not in (TokenType.VAR, TokenType.NUMBER):
        return None
    if re.fullmatch(r"[vV]\d+", text):
        return _AT_VERSION[dialect].format(text[1:])
    if re.fullmatch(r"\d{17}", text):
        try:
            moment = datetime.strptime(text[:14], "%Y%m%d%H%M%S").replace(microsecond=int(text[14:]) * 1000)
        except ValueError:
            return None
        return _AT_TIMESTAMP[dialect].format(moment.isoformat(" ", "milliseconds"))
    return None


_AT_VERSION = {"duckdb": "AT (VERSION => {})", "spark": "VERSION AS OF {}"}
_AT_TIMESTAMP = {"duckdb": "AT (TIMESTAMP => '{}')", "spark": "TIMESTAMP AS OF '{}'"}


def _with_typed_literals(tokens: list[Token]) -> list[Token]:
    """Put brackets around the literal of ``timestamp '2008-01-01 10:00'::date``.

    sqlglot would cast the text first.
    """
    bracketed = tokens[:1]
    for kind, token, after in zip(tokens, tokens[1:], [*tokens[2:], None], strict=False):
        bracketed.append(token)
        is_cast = after is not None and after.token_type == TokenType.DCOLON
        if is_cast and token.token_type == TokenType.STRING and kind.token_type.name.startswith(_LITERAL_TYPES):
            opening = Token(TokenType.L_PAREN, "(", kind.line, kind.col, kind.start, kind.start - 1)
            closing = Token(TokenType.R_PAREN, ")", token.line, token.col, token.end + 1, token.end)
            bracketed[-2:] = [opening, kind, token, closing]
    return bracketed


_LITERAL_TYPES = ("DATE", "TIME", "INTERVAL")


def text_in(tree: exp.Expr, dialect: str, *, is_definition: bool = False) -> str:
    """Return a tree as SQL text; a tree that was read in this dialect gives its original text.

    Args:
        tree: The tree.
        dialect: Dialect of the text.
        is_definition: See for_spark().

    Raises:
        UnsupportedFeature: for a part that the dialect would lose, or silently read differently.
        InvalidConfig: for a text that holds more than sqlglot could parse.
    """
    if is_piece(tree, dialect):
        return text_of(tree, text_in)
    root = exp.Paren(this=tree.copy())
    give_back(root, dialect, text_in)
    mark(root)
    translated = [(node, text) for node in root.walk() if (text := written(node)) is not None]
    for node, _ in translated:
        why = why_unread(node)
        if why is not None:
            raise InvalidConfig(f"This text cannot be translated to {dialect} SQL: {why}")
    originals = [(_whole(node, written_of_names(node)), str(dialect_of(node))) for node, _ in translated]
    if dialect == "spark":
        for_spark(root, is_definition=is_definition)
    else:
        for_duckdb(root)
    # The root has a parent on purpose: sqlglot moves the WITH of inner queries to a root statement,
    # where two unrelated names may collide. Engines read each WITH at its place.
    text = generated(root, dialect)[1:-1]
    for original, source_dialect in originals:
        refuse_lost(
            tokens_in(original, source_dialect),
            _written_anew(original, source_dialect),
            tokens_in(text, dialect),
            original,
        )
    return text


def _whole(piece: exp.Expr, text: str) -> str:
    """Return the text of a piece as a text that can be parsed alone."""
    if isinstance(piece, exp.With):
        return f"{text} SELECT 1"
    named = isinstance(piece, exp.Table | exp.Subquery) or (isinstance(piece, exp.Values) and bool(piece.alias))
    return f"SELECT * FROM {text}" if named else text


@lru_cache(maxsize=256)
def _written_anew(text: str, dialect: str) -> tuple[Token, ...]:
    """Return the tokens of a text after a round trip through its tree, in its own dialect."""
    return tuple(tokens_in(generated(tree_in(text, dialect), dialect), dialect))
