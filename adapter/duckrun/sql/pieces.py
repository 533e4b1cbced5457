"""Pieces: syntax trees that remember the text that they were read from.

Generating text from a tree sometimes gives another query, since sqlglot merges forms that a dialect
tells apart. So a tree whose root was read from a text (a *piece*) keeps that text in its metadata.
``placing.py`` replaces names in a piece, and ``written.py`` returns its text. Call ``loose`` before
any other change to a piece.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

from duckrun.sql.edits import closing


class Key:
    """Keys of a node's metadata. Offsets are inclusive."""

    READ = "read"  # source dialect of a root; of every node once the tree is translated
    PIECE = "piece"  # text, start and end of a root
    PLACE = "place"  # offsets of a replaced name in its piece's text, and whether an alias follows
    CHANGES = "changes"  # edits of a piece or column: start, end, new text
    END = "end_of_name"  # last character of a table's name, including its time travel clause
    ROWS = "rows_of"  # of a table behind TABLE, DESCRIBE or SUMMARIZE: start of the query that replaces it
    BEHIND = "behind"  # offsets of the arguments or the version behind a table's name
    NAMES = "names"  # of a piece without a tree: original names by their replacements
    ALIASES = "aliases"  # of a piece without a tree: original names by aliases with a schema
    UNREAD = "unread"  # why a tree has only the names of its tables
    ORIGINAL = "original"  # the unchanged tree of a piece


AFTER = ("joins", "laterals", "pivots", "sample")
"""Arguments of a table node that follow its name, and stay unchanged in the text."""


class Original:
    """The original tree and its tokens.

    Copies of the tree share it: copying it each time would take longer than parsing.
    """

    def __init__(self, tree: exp.Expr, tokens: Sequence[Token]) -> None:
        self.tree, self.tokens = tree, tokens
        self._of: dict[tuple[type[exp.Expr], ...], list[exp.Expr]] = {}

    @cached_property
    def nodes(self) -> list[exp.Expr]:
        """The nodes of the tree, walked once.

        A walk takes ten times as long as a look at each node.
        """
        return list(self.tree.walk())

    @cached_property
    def _by_class(self) -> dict[type[exp.Expr], list[exp.Expr]]:
        """The nodes by their exact class."""
        nodes = defaultdict[type[exp.Expr], list[exp.Expr]](list)
        for node in self.nodes:
            nodes[type(node)].append(node)
        return dict(nodes)

    def of(self, kinds: tuple[type[exp.Expr], ...]) -> list[exp.Expr]:
        """Return the nodes of some classes, searched once."""
        if kinds not in self._of:
            exact = [kind for kind in self._by_class if issubclass(kind, kinds)]
            if len(exact) == 1:
                self._of[kinds] = self._by_class[exact[0]]
            else:
                self._of[kinds] = [node for node in self.nodes if type(node) in exact] if exact else []
        return self._of[kinds]

    def __deepcopy__(self, memo: dict[int, object]) -> Original:
        return self


Generate = Callable[[exp.Expr, str], str]
Node = TypeVar("Node", bound=exp.Expr)


def known(node: exp.Expr, key: str) -> Any:
    """Return a value from a node's metadata."""
    # The property ``meta`` would create a dict, which is then copied with every node.
    return None if node._meta is None else node._meta.get(key)


def all_in(tree: exp.Expr, *kinds: type[Node]) -> list[Node]:
    """Return the nodes of some classes, in the order of ``find_all()``."""
    original = known(tree, Key.ORIGINAL)
    if original is None or original.tree is not tree:
        return list(tree.find_all(*kinds))
    return list(original.of(kinds))


def has_any(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Return True if a tree has a node of one of these classes."""
    original = known(tree, Key.ORIGINAL)
    if original is None or original.tree is not tree:
        return tree.find(*kinds) is not None
    return bool(original.of(kinds))


def mark(root: exp.Expr) -> None:
    """Store on every node the dialect that it was read in.

    One name may mean two things, and a query may contain views in another dialect. Nodes that were
    built get none.
    """
    waiting: list[tuple[exp.Expr, str | None]] = [(root, None)]
    while waiting:
        node, around = waiting.pop()
        dialect = known(node, Key.READ) or around
        if dialect is not None:
            node.meta[Key.READ] = dialect
        was_put = known(node, Key.PLACE) is not None  # only what follows a replaced name was read from text
        for key, value in node.args.items():
            inherited = dialect if not was_put or key in AFTER else None
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, exp.Expr):
                    waiting.append((child, inherited))


def read_from(tree: exp.Expr, dialect: str, text: str, tokens: Sequence[Token]) -> exp.Expr:
    """Return the tree as a piece of a text.

    Args:
        tree: the tree that sqlglot has read.
        dialect: the dialect of the text.
        text: the whole text.
        tokens: the tokens of the tree.
    """
    tree.meta.update({Key.PIECE: (text, tokens[0].start, tokens[-1].end), Key.READ: dialect})
    tree.meta[Key.ORIGINAL] = Original(tree, tokens)
    for node in all_in(tree, exp.Table):
        if (span := span_of(node)) is not None and (last := _token_ending(tokens, span[1])) is not None:
            if isinstance(node.this, exp.Func):
                node.meta[Key.END] = tokens[closing(tokens, last + 1)].end
            else:
                node.meta[Key.END] = _end_of_travel(node, dialect, tokens, last)
            if node.meta[Key.END] > tokens[last].end:
                node.meta[Key.BEHIND] = (tokens[last].end + 1, node.meta[Key.END])
            first = next((i for i in range(last, -1, -1) if tokens[i].start == span[0]), 0)
            before = tokens[first - 1] if first else None
            if before is not None and before.token_type == TokenType.TABLE:
                node.meta[Key.ROWS] = before.start
            elif before is not None and before.text.upper() in ("DESCRIBE", "SUMMARIZE"):
                node.meta[Key.ROWS] = span[0]
    return tree


def _token_ending(tokens: Sequence[Token], end: int) -> int | None:
    """Return the index of the last token that ends at an offset; None without one."""
    at = bisect_right(tokens, end, key=attrgetter("end")) - 1
    if at >= 0 and tokens[at].end == end:
        return at
    # Words that the text lacks have no offset, so that the tokens are not sorted.
    return next((at for at in range(len(tokens) - 1, -1, -1) if tokens[at].end == end), None)


def dialect_of(node: exp.Expr) -> str | None:
    """Return the dialect that a tree, or a node of a translated tree, was read in.

    None if it was built.
    """
    return known(node, Key.READ)


def read_in(tree: exp.Expr, dialect: str) -> exp.Expr:
    """Return a built tree that means what its text would mean in a dialect."""
    tree.meta[Key.READ] = dialect
    return tree


def loose(tree: exp.Expr) -> exp.Expr:
    """Return a copy that is no piece: it may be changed, and sqlglot generates its text."""
    copy = tree.copy()
    copy.meta.pop(Key.PIECE, None)
    copy.meta.pop(Key.ORIGINAL, None)
    return copy


def unread(tree: exp.Expr, why: str) -> exp.Expr:
    """Mark a tree that has only the tables of its text, because the parser failed on it."""
    tree.meta[Key.UNREAD] = why
    return tree


def why_unread(tree: exp.Expr) -> str | None:
    return known(tree, Key.UNREAD)


def dialect_around(node: exp.Expr) -> str | None:
    """Return the dialect of the text around a node."""
    around: exp.Expr | None = node
    while around is not None and known(around, Key.READ) is None:
        around = around.parent
    return None if around is None else dialect_of(around)


def is_piece(node: exp.Expr, dialect: str) -> bool:
    """Return True for a tree that was read from a text in this dialect."""
    return known(node, Key.PIECE) is not None and known(node, Key.READ) == dialect


def span_of(node: Any) -> tuple[int, int] | None:
    """Return the offsets of a table's or column's name in the text."""
    span: tuple[int, int] | None = None
    for key in ("catalog", "db", "table", "this"):
        part = node.args.get(key)
        if isinstance(part, exp.Expr):
            meta = part._meta  # not known(): thousands of columns pass here
            if meta is None or "start" not in meta:
                return None
            start, end = meta["start"], meta["end"]
            span = (start, end) if span is None else (min(span[0], start), max(span[1], end))
    return span


def _end_of_travel(table: exp.Expr, dialect: str, tokens: Sequence[Token], last: int) -> int:
    """Return the offset of the end of a table's time travel clause, or of its name without one.

    The clause is ``AT (VERSION => n)`` or ``VERSION AS OF n``.
    """
    clause = table.args.get("when") or table.args.get("version")
    if clause is None:
        return tokens[last].end
    start = last + 1
    if tokens[start].text.upper() == "AT":
        return tokens[closing(tokens, start + 1)].end
    while tokens[start].text.upper() != "OF" and not tokens[start].text.upper().endswith(" OF"):
        start += 1
    for end in range(start + 2, len(tokens) + 1):  # the shortest text that parses to the expression
        try:
            trees = Dialect.get_or_raise(dialect).parser().parse(list(tokens[start + 1 : end]), "")
        except SqlglotError:
            continue
        if trees and trees[0] == clause.expression:
            return tokens[end - 1].end
    return tokens[last].end
