"""Tokens of one statement, read one after the other: for statements that sqlglot has no syntax tree for.

Its Parser is not subclassed, since the compiled build of sqlglot forbids that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import Token, exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig
from duckrun.sql.abridged import abridged
from duckrun.sql.dialects import statements_in, tokens_in, tree_of
from duckrun.sql.names import plain_error
from duckrun.sql.written import unread

_HEAD = 8
_PACKED = ("OPTIMIZE", "VACUUM", "EXPLAIN", "SHOW", "PREPARE", "EXECUTE", "CALL")
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING)
_STEPS = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END), -1),
}


@dataclass(frozen=True)
class StatementText:
    """The text of a statement (which may be part of a longer one), its dialect and its tokens. ``is_unpacked``: the text begins
    behind the first token. ``abridge``: its tokens and trees leave out long runs of constants, which stay in the text alone; so no
    other dialect's text can be made of them. ``left_out`` is where these begin.
    """

    text: str
    dialect: str
    tokens: tuple[Token, ...]
    is_unpacked: bool = False
    abridge: bool = False
    left_out: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, dialect: str, *, abridge: bool = False) -> StatementText:
        """A text that is one statement, or a part of one. Raises InvalidConfig for an open quote or comment."""
        short, left_out = abridged(text, dialect) if abridge else (text, ())
        return cls(text, dialect, tuple(tokens_of(short, dialect)), abridge=abridge, left_out=left_out)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The tokens in capitals, for keywords; quoted names and strings are none. Computed once."""
        return tuple(map(word_of, self.tokens))

    @cached_property
    def head(self) -> tuple[str, ...]:
        """The first words, which say what kind of statement this is; the words of a long query are seldom of use."""
        return tuple(map(word_of, self.tokens[:_HEAD]))

    def with_(self, tokens: Sequence[Token]) -> StatementText:
        return replace(self, tokens=tuple(tokens))

    def between(self, start: int, end: int | None = None) -> StatementText:
        """The part from one token to another, whose words are not computed again."""
        part = self.with_(self.tokens[start:end])
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[start:end]
        return part

    def says(self, words: tuple[str, ...], at: int = 0) -> bool:
        """True if these words stand at a token. Of a long text no others are computed for it."""
        return tuple(map(word_of, self.tokens[at : at + len(words)])) == words

    @property
    def written(self) -> str:
        """The text of these tokens, as it stands there."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def parse(self) -> exp.Expr:
        """The syntax tree of the statement, which knows its text. Raises InvalidConfig for what is no SQL."""
        if not self.tokens:
            raise InvalidConfig(f"Cannot read this as {self.dialect} SQL: an expression is missing.")
        try:
            tree = tree_of(self.tokens, self.text, self.dialect)
        except SqlglotError as error:
            raise InvalidConfig(f"Cannot read this as {self.dialect} SQL: {plain_error(error)}") from error
        if any(self.tokens[0].start < place <= self.tokens[-1].end for place in self.left_out):
            unread(tree, "its tree leaves out constants; give the text in the dialect of the engine that runs it.")
        return tree


def split(text: str, dialect: str, *, abridge: bool = False) -> list[StatementText]:
    """The statements of a text."""
    whole = StatementText.of(text, dialect, abridge=abridge)
    return [_whole(whole.with_(each)) for each in statements_in(whole.tokens)]


def tokens_of(text: str, dialect: str) -> list[Token]:
    """The tokens of a text. Raises InvalidConfig for an open quote or comment."""
    try:
        return tokens_in(text, dialect)
    except SqlglotError as error:
        raise InvalidConfig(f"Cannot read this as {dialect} SQL: {plain_error(error)}") from error


def _whole(source: StatementText) -> StatementText:
    """The tokens that sqlglot makes one string of after OPTIMIZE, VACUUM, EXPLAIN, SHOW and the like, one by one."""
    first = source.tokens[0]
    packed = len(source.tokens) == 2 and source.tokens[1].token_type == TokenType.STRING
    if not packed or word_of(first) not in _PACKED:
        return source
    rest = StatementText.of(source.tokens[1].text, source.dialect, abridge=source.abridge)
    return replace(rest, tokens=(first, *rest.tokens), is_unpacked=True)


def word_of(token: Token) -> str:
    """A token as a keyword, in capitals; "" for what is quoted."""
    if token.token_type in _QUOTED:
        return ""
    return token.text.upper()


class TokenReader:
    """A place in a statement's tokens. Every method raises InvalidConfig that says what was expected there."""

    def __init__(self, source: StatementText) -> None:
        self.source = source
        self.at = 0

    @property
    def left(self) -> tuple[Token, ...]:
        """The tokens that are not read yet. A copy: a loop over a long text uses ``next``."""
        return self.source.tokens[self.at :]

    @property
    def next(self) -> Token | None:
        """The next token; None at the end."""
        return self.source.tokens[self.at] if self.at < len(self.source.tokens) else None

    def accept(self, *words: str) -> bool:
        """Step over these keywords, if they are next."""
        if not self.source.says(words, self.at):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.error(" ".join(words))

    def end(self) -> None:
        """Nothing may follow."""
        if self.left:
            raise self.error("the end of the statement")

    def error(self, expected: str) -> InvalidConfig:
        where = f"at {self.left[0].text!r}" if self.left else "at the end"
        return InvalidConfig(f"Cannot read this {' '.join(self.source.head[:2])}: expected {expected} {where}.")

    def name(self) -> tuple[str, ...]:
        """A name of one part or more."""
        parts = [self.identifier()]
        while self.next is not None and self.next.token_type == TokenType.DOT:
            self.at += 1
            parts.append(self.identifier())
        return tuple(parts)

    def identifier(self) -> str:
        """One part of a name."""
        if self.next is not None and self.next.text == "`":  # no quote in DuckDB's dialect, but paths are written so
            close = next((i for i, token in enumerate(self.left[1:], 1) if token.text == "`"), None)
            if close is not None:
                text = self.source.text[self.next.end + 1 : self.left[close].start]
                self.at += close + 1
                return text
        if self.next is not None and (self.next.token_type == TokenType.IDENTIFIER or _is_word(self.next)):
            self.at += 1
            return self.source.tokens[self.at - 1].text
        raise self.error("a name")

    def number(self) -> str:
        return self._literal(TokenType.NUMBER, "a number")

    def string(self) -> str:
        return self._literal(TokenType.STRING, "a text in quotes")

    def _literal(self, kind: TokenType, what: str) -> str:
        if self.next is None or self.next.token_type != kind:
            raise self.error(what)
        self.at += 1
        return self.source.tokens[self.at - 1].text

    def names_in_brackets(self) -> tuple[str, ...]:
        """``(a, b)``; names in quotes of either kind."""
        found: list[str] = []
        for part in self.brackets():
            inside = TokenReader(self.source.with_(part))
            is_text = bool(part) and part[0].token_type == TokenType.STRING
            found.append(inside.string() if is_text else ".".join(inside.name()))
            inside.end()
        return tuple(found)

    def brackets(self) -> list[tuple[Token, ...]]:
        """The tokens between brackets, parted by commas."""
        if self.next is None or self.next.token_type != TokenType.L_PAREN:
            raise self.error("(")
        depth, start, parts = 0, self.at + 1, []
        while (token := self.next) is not None:
            depth += step_of(token)
            if depth == 0 or (depth == 1 and token.token_type == TokenType.COMMA):
                parts.append(self.source.tokens[start : self.at])
                start = self.at + 1
            self.at += 1
            if depth == 0:
                return parts
        raise self.error(")")

    def until(self, *words: str) -> StatementText:
        """What comes before a keyword that stands outside of all brackets and of CASE … END, or before the end."""
        start, depth = self.at, 0
        for token in self.source.tokens[start:]:
            if depth == 0 and word_of(token) in words and not self._in_distinct_from():
                break
            depth += step_of(token)
            self.at += 1
        if start == self.at:
            raise self.error("an expression")
        return self.source.between(start, self.at)

    def _in_distinct_from(self) -> bool:
        """True at the FROM of ``a IS NOT DISTINCT FROM b``."""
        return self.source.says(("DISTINCT", "FROM"), max(self.at - 1, 0))


def step_of(token: Token) -> int:
    """What a token adds to the depth of brackets and of CASE … END."""
    return _STEPS.get(token.token_type, 0)


def parted(source: StatementText, *words: str) -> list[StatementText]:
    """The parts of a text between keywords or signs that stand outside of all brackets and of CASE … END; some may be empty."""
    parts: list[StatementText] = []
    depth = start = 0
    for at, token in enumerate(source.tokens):
        if depth == 0 and word_of(token) in words:
            parts.append(source.between(start, at))
            start = at + 1
        else:
            depth += step_of(token)
    return [*parts, source.between(start)]


def parted_at(text: StatementText, *words: str) -> tuple[StatementText, StatementText | None]:
    """What comes before some keywords outside of all brackets, and from them on; None where they are not there."""
    found = text.words
    if words[0] not in found:
        return text, None
    depth = 0
    for at, token in enumerate(text.tokens):
        if depth == 0 and at and found[at] == words[0] and found[at : at + len(words)] == words:
            return text.between(0, at), text.between(at)
        depth += step_of(token)
    return text, None


def _is_word(token: Token) -> bool:
    return token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text.isidentifier()
