"""What a parser drops: a text is refused that the other dialect would run as another query.

A translation goes by the tree, and words that the tree has no place for are gone from it without a sign. So the tree is written
in its own dialect first: each literal, name and keyword of the text has to be in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sqlglot import ErrorLevel, Token, UnsupportedError, exp
from sqlglot.tokens import TokenType

from duckrun.errors import UnsupportedFeature

# Words with which a query is the same as without, or that its dialect has another spelling for.
_NOISE = frozenset([
    "AS", "ASC", "INNER", "OUTER", "ALL", "ROW", "ROWS", "CAST", "TRY_CAST", "INTERVAL", "ARRAY", "INTO", "FIRST",
    "LAST", "NULLS", "TABLE", "FROM", "SELECT", "FOR", "BY", "NOT", "AND", "OR", "IN", "IS", "LIKE", "CASE", "END",
    "THEN", "WHEN", "ELSE", "DISTINCT", "CROSS", "JOIN", "RLIKE", "REGEXP", "DIV", "MOD", "ISNULL", "NOTNULL",
    "MATERIALIZED", "RECURSIVE", "DATE", "TIME", "TIMESTAMP", "ZONE", "USING", "SAMPLE", "TABLESAMPLE", "BERNOULLI",
    "SYSTEM", "RESERVOIR", "PERCENT", "TRUE", "FALSE", "MAP", "STRUCT", "LAMBDA", "WITHOUT", "OFFSET", "NEXT",
    "FETCH", "ONLY", "LIMIT", "WITH", "EXCEPT", "MINUS", "EXCLUDE", "WITHIN", "SET", "VALUES", "PRECEDING",
    "FOLLOWING", "UNBOUNDED", "CURRENT", "BETWEEN", "RANGE", "LATERAL", "VIEW", "EXPLODE", "POSEXPLODE",
])  # fmt: skip
_STRINGS = (
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.HEREDOC_STRING,
    TokenType.BYTE_STRING,
    TokenType.HEX_STRING,
    TokenType.NATIONAL_STRING,
)


def refuse_lost(tokens: Sequence[Token], again: Sequence[Token], result: Sequence[Token], text: str) -> None:
    """Raise UnsupportedFeature for a word of ``tokens`` that is neither in ``again``, the tokens of the same tree written in its
    own dialect, nor in ``result``, those in the other one; for literals, which have no other names, ``result`` decides.
    """
    kept = Counter(_forms([*again, *result]))
    strings = Counter(form for token in again if token.token_type in _STRINGS for form in _pieces(token.text))
    words = Counter(_forms(again))
    literals = set(_forms(result))
    for i, token in enumerate(tokens):
        if token.token_type in _STRINGS:
            if not _is_consumed(token.text) and not _is_in(token.text.lower(), literals):
                raise _lost(repr(token.text), text)
        elif token.token_type == TokenType.NUMBER:
            if not (kept[_number(token.text)] or kept[token.text.lower()] or _is_length_of_text(tokens, i)):
                raise _lost(token.text, text)
        elif token.text in ("~", "!~") and i and (tokens[i - 1].token_type in _OPERANDS or tokens[i - 1].text == "!"):
            raise _lost(f"the operator {token.text}, which matches the whole text,", text)
        elif _is_word(token) and not _has_other_names(tokens, i):
            for word in _pieces(token.text):
                if word.upper() not in _NOISE and not kept[word]:
                    raise _lost(token.text, text)
                if words[word] and words[word] == strings[word] and token.token_type in _NAMES:
                    raise _lost(f"the column {token.text}, which is read as a word,", text)


def generated(tree: exp.Expr, dialect: str) -> str:
    """A tree as text. Raises UnsupportedFeature for what the dialect has no words for; hints and accuracies are advice."""
    try:
        return tree.sql(dialect=dialect, unsupported_level=ErrorLevel.RAISE, max_unsupported=100)
    except UnsupportedError as error:
        lost = [line for line in str(error).splitlines() if line and not any(word in line for word in _ADVICE)]
        if lost:
            raise UnsupportedFeature(f"This is not translated to {dialect} SQL: {lost[0]}.") from error
    return tree.sql(dialect=dialect, unsupported_level=ErrorLevel.IGNORE)


_ADVICE = ("Hints", "'accuracy'")


def _is_consumed(text: str) -> bool:
    """True for formats of times, which every dialect spells otherwise, and for the options that our own rules translate."""
    by_rule = text.lower() in _WORDS_OF_RULES or re.fullmatch("[gimsc]+", text) is not None
    letters = re.fullmatch("[yMLdDHhmsSaEzZXx'./:,_ T-]+", text) is not None
    return (
        by_rule
        or "%" in text
        or "\\" in text
        or re.search(r"\$\d", text) is not None
        or (letters and re.search("yy|MM|dd|HH|mm|ss|EEE|DDD", text) is not None)
    )


_WORDS_OF_RULES = ("desc", "asc", "nulls last", "dow", "dayofweek", "weekday", "string_agg", "min", "max")


def _is_in(text: str, kept: set[str]) -> bool:
    return text in kept or f"$.{text}" in kept or all(piece in kept for piece in _pieces(text))


def _forms(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        if token.token_type == TokenType.NUMBER:
            yield _number(token.text)
        else:
            yield from {token.text.lower(), *_pieces(token.text)}


def _pieces(text: str) -> list[str]:
    return text.lower().split()


def _number(text: str) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return text.lower()


def _is_word(token: Token) -> bool:
    return token.token_type == TokenType.IDENTIFIER or (token.text[:1].isalpha() or token.text[:1] == "_")


def _has_other_names(tokens: Sequence[Token], i: int) -> bool:
    """True for functions, types, parts of a date and fields of a struct: sqlglot writes some by another name."""
    after = tokens[i + 1].text if i + 1 < len(tokens) else ""
    is_part = i > 1 and tokens[i - 1].token_type == TokenType.L_PAREN and tokens[i - 2].text.upper() == "EXTRACT"
    return after in ("(", ":=") or tokens[i].token_type in _TYPES or is_part


def _is_length_of_text(tokens: Sequence[Token], i: int) -> bool:
    """True for the 5 of ``varchar(5)``, which neither engine holds a text to."""
    return i > 1 and tokens[i - 1].token_type == TokenType.L_PAREN and tokens[i - 2].token_type in _TEXT_TYPES


_TEXT_TYPES = (TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR, TokenType.BPCHAR, TokenType.TEXT)
_OPERANDS = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_TYPES = frozenset(kind for kind in TokenType if kind.name in exp.DType.__members__)


def _lost(what: str, text: str) -> UnsupportedFeature:
    shown = text if len(text) < 200 else f"{text[:200]} …"
    return UnsupportedFeature(
        f"The translation to the other engine's SQL would lose {what} of this text, and be another query: {shown}. Write it in "
        "the engine's own dialect, in other words, or run it on the engine that it is written for."
    )
