"""Tokens of a statement, and a reader for statements that sqlglot cannot parse.

sqlglot's Parser is not subclassed, because its compiled build forbids that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sqlglot import Token, exp
from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig
from duckrun.sql.abridged import abridged
from duckrun.sql.dialects import statements_in
from duckrun.sql.names import read_tokens, read_tree
from duckrun.sql.pieces import unread

_HEAD = 8
_PACKED = ("OPTIMIZE", "VACUUM", "EXPLAIN", "SHOW", "CALL")
_QUOTED = (TokenType.IDENTIFIER, TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.RAW_STRING)
_STEPS = {
    **dict.fromkeys((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE), 1),
    **dict.fromkeys((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END), -1),
}


@dataclass(frozen=True)
class StatementText:
    """A statement, or a part of a longer text, with its dialect and its tokens.

    ``is_unpacked``: the text begins behind the first token. ``abridge``: tokens and trees omit long
    runs of constants, which only the text contains. No other dialect's text can be generated from
    such trees. ``left_out`` holds the offsets of these runs.
    """

    text: str
    dialect: str
    tokens: tuple[Token, ...]
    is_unpacked: bool = False
    abridge: bool = False
    left_out: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str, dialect: str, *, abridge: bool = False) -> StatementText:
        """Return a text with its tokens.

        Raises:
            InvalidConfig: for an open quote or comment.
        """
        short, left_out = abridged(text, dialect) if abridge else (text, ())
        return cls(text, dialect, tuple(read_tokens(short, dialect)), abridge=abridge, left_out=left_out)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The tokens in capitals, for keywords; "" for quoted names and strings."""
        return tuple(map(word_of, self.tokens))

    @cached_property
    def head(self) -> tuple[str, ...]:
        """The first words, which tell the kind of the statement."""
        # Not ``words``: computing all words of a long query is rarely worth it.
        return tuple(map(word_of, self.tokens[:_HEAD]))

    @cached_property
    def _outer(self) -> tuple[_OuterWords, int]:
        """The outer words of the text, and the place of this part's first token in it."""
        return _OuterWords(self.tokens), 0

    def next_outer(self, start: int, *words: str) -> int | None:
        """Return the next place of one of these words outside of all brackets and CASE … END.

        The FROM of ``a IS NOT DISTINCT FROM b`` is skipped.

        Args:
            start: the first place to look at; it is outside of all brackets too.
            words: the words.
        """
        outer, first = self._outer
        place = outer.next(first + start, first + len(self.tokens), words)
        if place is None:
            return None
        at = place - first
        return self.next_outer(at + 1, *words) if self.says(("DISTINCT", "FROM"), max(at - 1, 0)) else at

    def with_(self, tokens: Sequence[Token]) -> StatementText:
        return replace(self, tokens=tuple(tokens))

    def between(self, start: int, end: int | None = None) -> StatementText:
        """Return the part from one token to another, both outside of all brackets.

        It shares the words already computed.
        """
        part = self.with_(self.tokens[start:end])
        if "words" in self.__dict__:
            part.__dict__["words"] = self.words[start:end]
        outer, first = self._outer
        part.__dict__["_outer"] = outer, first + start
        return part

    def says(self, words: tuple[str, ...], at: int = 0) -> bool:
        """Return True if these words stand at a token; no other words are computed."""
        return tuple(map(word_of, self.tokens[at : at + len(words)])) == words

    @property
    def written(self) -> str:
        """The text of these tokens, unchanged."""
        return self.text[self.tokens[0].start : self.tokens[-1].end + 1]

    def parse(self) -> exp.Expr:
        """Return the syntax tree of the statement, which knows its text.

        Raises:
            InvalidConfig: for a text that cannot be parsed.
        """
        tree = read_tree(self.tokens, self.text, self.dialect)
        if any(self.tokens[0].start < place <= self.tokens[-1].end for place in self.left_out):
            unread(tree, "its tree leaves out constants; give the text in the dialect of the engine that runs it.")
        return tree


class _OuterWords:
    """Places of the words outside of all brackets and of CASE … END, found as far as needed."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._places = defaultdict[str, list[int]](list)
        self._seen = self._depth = 0

    def next(self, start: int, stop: int, words: tuple[str, ...]) -> int | None:
        """Return the first place of one of the words from ``start`` on, before ``stop``."""
        known = ((places := self._places[word], bisect_left(places, start)) for word in words)
        first = min((places[at] for places, at in known if at < len(places)), default=None)
        if first is None:
            first = self._search(start, stop, words)
        return first if first is not None and first < stop else None

    def _search(self, start: int, stop: int, words: tuple[str, ...]) -> int | None:
        depth = self._depth
        for at in range(self._seen, stop):
            token = self._tokens[at]
            word = "" if depth or token.token_type == TokenType.NUMBER else word_of(token)
            depth += _STEPS.get(token.token_type, 0)
            if word:
                self._places[word].append(at)
                if word in words and at >= start:
                    self._seen, self._depth = at + 1, depth
                    return at
        self._seen, self._depth = max(self._seen, stop), depth
        return None


def split(text: str, dialect: str, *, abridge: bool = False) -> list[StatementText]:
    """Return the statements of a text."""
    whole = StatementText.of(text, dialect, abridge=abridge)
    return [_whole(whole.with_(each)) for each in statements_in(whole.tokens, text)]


def _whole(source: StatementText) -> StatementText:
    """Split the single string that sqlglot makes behind a command word such as OPTIMIZE or SHOW."""
    first = source.tokens[0]
    packed = len(source.tokens) == 2 and source.tokens[1].token_type == TokenType.STRING
    if not packed or word_of(first) not in _PACKED:
        return source
    rest = StatementText.of(source.tokens[1].text, source.dialect, abridge=source.abridge)
    return replace(rest, tokens=(first, *rest.tokens), is_unpacked=True)


def word_of(token: Token) -> str:
    """Return a token as a keyword, in capitals; "" for a quoted one."""
    if token.token_type in _QUOTED:
        return ""
    return token.text.upper()


class TokenReader:
    """A position in a statement's tokens.

    Every method raises InvalidConfig with the expected words.
    """

    def __init__(self, source: StatementText, at: int = 0) -> None:
        self.source = source
        self.at = at

    @property
    def left(self) -> tuple[Token, ...]:
        """The remaining tokens. A copy: a loop over a long text uses ``next``."""
        return self.source.tokens[self.at :]

    @property
    def next(self) -> Token | None:
        """The next token; None at the end."""
        return self.source.tokens[self.at] if self.at < len(self.source.tokens) else None

    @property
    def is_at_brackets(self) -> bool:
        """True if brackets are next."""
        return self.next is not None and self.next.token_type == TokenType.L_PAREN

    def accept(self, *words: str) -> bool:
        """Skip these keywords, if they are next; return True if they were."""
        if not self.source.says(words, self.at):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.error(" ".join(words))

    def end(self) -> None:
        """Raise InvalidConfig unless the reader is at the end."""
        if self.left:
            raise self.error("the end of the statement")

    def error(self, expected: str) -> InvalidConfig:
        where = f"at {self.left[0].text!r}" if self.left else "at the end"
        return InvalidConfig(f"Cannot read this {' '.join(self.source.head[:2])}: expected {expected} {where}.")

    def name(self) -> tuple[str, ...]:
        """Read a name of one or more parts."""
        parts = [self.identifier()]
        while self.next is not None and self.next.token_type == TokenType.DOT:
            self.at += 1
            parts.append(self.identifier())
        return tuple(parts)

    def identifier(self) -> str:
        """Read one part of a name."""
        if self.next is not None and self.next.text == "`":  # no quote in DuckDB, but used around paths
            close = next((i for i, token in enumerate(self.left[1:], 1) if token.text == "`"), None)
            if close is not None:
                text = self.source.text[self.next.end + 1 : self.left[close].start]
                self.at += close + 1
                return text
        if self.next is not None and is_name(self.next):
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
        """Read ``(a, b)``, with names in quotes of either kind."""
        names: list[str] = []
        for inside in self.parts():
            is_text = inside.next is not None and inside.next.token_type == TokenType.STRING
            names.append(inside.string() if is_text else ".".join(inside.name()))
            inside.end()
        return tuple(names)

    def parts(self) -> list[TokenReader]:
        """Read the parts between brackets, separated by commas, as readers."""
        return [TokenReader(self.source.with_(part)) for part in self.brackets()]

    def brackets(self) -> list[tuple[Token, ...]]:
        """Read the tokens between brackets, separated by commas."""
        if not self.is_at_brackets:
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
        """Read up to a keyword outside of all brackets and of CASE … END, or to the end."""
        start, end = self.at, self.source.next_outer(self.at, *words)
        self.at = len(self.source.tokens) if end is None else end
        if start == self.at:
            raise self.error("an expression")
        return self.source.between(start, self.at)


def step_of(token: Token) -> int:
    """Return the change of the depth of brackets and CASE … END at a token."""
    return _STEPS.get(token.token_type, 0)


def parted(source: StatementText, *words: str) -> list[StatementText]:
    """Split a text at keywords or signs outside of all brackets and CASE … END.

    Parts may be empty.
    """
    parts: list[StatementText] = []
    start = 0
    while (end := source.next_outer(start, *words)) is not None:
        parts.append(source.between(start, end))
        start = end + 1
    return [*parts, source.between(start)]


def parted_at(text: StatementText, *words: str) -> tuple[StatementText, StatementText | None]:
    """Split a text before keywords outside of all brackets.

    The second part is None without them.
    """
    at = text.next_outer(1, words[0])
    while at is not None and not text.says(words, at):
        at = text.next_outer(at + 1, words[0])
    return (text, None) if at is None else (text.between(0, at), text.between(at))


def in_brackets(source: StatementText, *words: str) -> Iterator[str]:
    """Yield the texts in brackets behind these words, as written: ``a > 0`` of CHECK (a > 0)."""
    reader = TokenReader(source)
    while reader.next is not None:
        if not source.says((*words, "("), reader.at):
            reader.at += 1
            continue
        reader.at += len(words)
        start = reader.at + 1
        reader.brackets()
        yield source.with_(source.tokens[start : reader.at - 1]).written


def is_name(token: Token) -> bool:
    """Return True for a token that may be a part of a name."""
    is_word = token.token_type not in (TokenType.STRING, TokenType.NUMBER) and token.text.isidentifier()
    return is_word or token.token_type == TokenType.IDENTIFIER
