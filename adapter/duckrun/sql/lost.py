"""Detection of words that the parser drops, which would change the query in the other dialect.

A translation goes through the tree, and words without a place in the tree disappear silently. So
the tree is first written in its own dialect. Each literal, name and keyword of the text must be in
the result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sqlglot import ErrorLevel, Token, UnsupportedError, exp
from sqlglot.tokens import TokenType

from duckrun.errors import UnsupportedFeature
from duckrun.sql.regexes import java

# Words that do not change a query, or that a dialect may spell differently.
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
    """Raise an error for a word that a translation loses.

    Args:
        tokens: the tokens of the source text.
        again: the tokens of its tree, written in the same dialect.
        result: the tokens of the translation.
        text: the source text, for the message.

    Raises:
        UnsupportedFeature: for a word in neither ``again`` nor ``result``, or a literal missing in
            ``result``. Literals have no other spelling.
    """
    surviving = Counter(_forms([*again, *result]))
    strings = Counter(form for token in again if token.token_type in _STRINGS for form in _pieces(token.text))
    words = Counter(_forms(again))
    literals = set(_forms(result))
    for i, token in enumerate(tokens):
        if token.token_type in _STRINGS:
            if not _is_consumed(token.text) and not _is_in(token.text.lower(), literals):
                raise _lost(repr(token.text), text)
        elif token.token_type == TokenType.NUMBER:
            if not (surviving[_number(token.text)] or surviving[token.text.lower()] or _is_length_of_text(tokens, i)):
                raise _lost(token.text, text)
        elif token.text in ("~", "!~") and i and (tokens[i - 1].token_type in _OPERANDS or tokens[i - 1].text == "!"):
            raise _lost(f"the operator {token.text}, which matches the whole text,", text)
        elif _is_word(token) and not _has_other_names(tokens, i):
            for word in _pieces(token.text):
                if word.upper() not in _NOISE and not surviving[word]:
                    raise _lost(token.text, text)
                if words[word] and words[word] == strings[word] and token.token_type in _NAMES:
                    raise _lost(f"the column {token.text}, which is read as a word,", text)


def generated(tree: exp.Expr, dialect: str) -> str:
    """Return a tree as text; hints and accuracies are advice, and may be lost.

    Raises:
        UnsupportedFeature: for a part that the dialect cannot express.
    """
    try:
        return tree.sql(dialect=dialect, unsupported_level=ErrorLevel.RAISE, max_unsupported=100)
    except UnsupportedError as error:
        lost = [line for line in str(error).splitlines() if line and not any(word in line for word in _ADVICE)]
        if lost:
            raise UnsupportedFeature(f"This is not translated to {dialect} SQL: {lost[0]}.") from error
    return tree.sql(dialect=dialect, unsupported_level=ErrorLevel.IGNORE)


_ADVICE = ("Hints", "'accuracy'")


def _is_consumed(text: str) -> bool:
    """Return True for time formats and for the options that our own rules translate.

    Each dialect spells time formats differently.
    """
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


def _is_in(text: str, words: set[str]) -> bool:
    is_there = text in words or f"$.{text}" in words or all(piece in words for piece in _pieces(text))
    return is_there or not words.isdisjoint((f"$[*].{text}", f"$[*]{text[1:]}")) or _is_pattern_of(text, words)


def _is_pattern_of(text: str, words: set[str]) -> bool:
    """Return True for a regular expression that a word spells as Java does, perhaps with flags."""
    body = java(text).lower()
    return not {body, _bare(body)}.isdisjoint(map(_bare, words))


def _bare(pattern: str) -> str:
    return re.sub(r"\(\?[disu]+\)|\\a\(\?:|\)\\z$", "", pattern)


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
    """Return True for functions, types, date parts and struct fields: sqlglot may rename them."""
    after = tokens[i + 1].text if i + 1 < len(tokens) else ""
    is_part = i > 1 and tokens[i - 1].token_type == TokenType.L_PAREN and tokens[i - 2].text.upper() == "EXTRACT"
    return after in ("(", ":=") or tokens[i].token_type in _TYPES or is_part


def _is_length_of_text(tokens: Sequence[Token], i: int) -> bool:
    """Return True for the 5 of ``varchar(5)``, which neither engine enforces."""
    return i > 1 and tokens[i - 1].token_type == TokenType.L_PAREN and tokens[i - 2].token_type in _TEXT_TYPES


_TEXT_TYPES = (TokenType.VARCHAR, TokenType.NVARCHAR, TokenType.CHAR, TokenType.NCHAR, TokenType.BPCHAR, TokenType.TEXT)
_OPERANDS = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_TYPES = frozenset(kind for kind in TokenType if kind.name in exp.DType.__members__)


def _lost(what: str, text: str) -> UnsupportedFeature:
    shown = text if len(text) < 200 else f"{text[:200]} …"
    return UnsupportedFeature(
        f"The translation to the other engine's SQL would lose {what} of this text, and be another query: {shown}. "
        "Write it in the engine's own dialect, in other words, or run it on the engine that it is written for."
    )
