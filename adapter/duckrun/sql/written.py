"""Original texts of syntax trees.

A tree returns the text it was read from, with only names replaced.

Generating text from a tree sometimes gives another query, since sqlglot merges forms that a dialect
tells apart. So a tree whose root was read from a text (a *piece*) returns that text. A replacement
of a table or column is spliced in at the place of the old one. Call ``loose`` before any other
change to a piece.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

# Keys of a node's metadata. Offsets are inclusive.
_READ = "read"  # source dialect of a root; of every node once the tree is translated
_PIECE = "piece"  # text, start and end of a root
_PLACE = "place"  # offsets of a replaced name in its piece's text, and whether an alias follows
_CHANGES = "changes"  # edits of a piece or column: start, end, new text
_END = "end_of_name"  # last character of a table's name, including its time travel clause
_ROWS = "rows_of"  # of a table behind TABLE, DESCRIBE or SUMMARIZE: start of the query that replaces it
_BEHIND = "behind"  # offsets of the arguments or the version behind a table's name
_NAMES = "names"  # of a piece without a tree: original names by their replacements
_ALIASES = "aliases"  # of a piece without a tree: original names by aliases with a schema
_UNREAD = "unread"  # why a tree has only the names of its tables

# Arguments of a table node that follow its name, and stay unchanged in the text.
_AFTER = ("joins", "laterals", "pivots", "sample")

_ORIGINAL = "original"  # the unchanged tree of a piece


class _Original:
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
            self._of[kinds] = (
                [node for node in self.nodes if type(node) in exact]
                if len(exact) > 1
                else self._by_class[exact[0]]
                if exact
                else []
            )
        return self._of[kinds]

    def __deepcopy__(self, memo: dict[int, object]) -> _Original:
        return self


Generate = Callable[[exp.Expr, str], str]
Node = TypeVar("Node", bound=exp.Expr)


def _known(node: exp.Expr, key: str) -> Any:
    """Return a value from a node's metadata."""
    # The property ``meta`` would create a dict, which is then copied with every node.
    return None if node._meta is None else node._meta.get(key)


def all_in(tree: exp.Expr, *kinds: type[Node]) -> list[Node]:
    """Return the nodes of some classes, in the order of ``find_all()``."""
    original = _known(tree, _ORIGINAL)
    if original is None or original.tree is not tree:
        return list(tree.find_all(*kinds))
    return list(original.of(kinds))


def has_any(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """Return True if a tree has a node of one of these classes."""
    original = _known(tree, _ORIGINAL)
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
        dialect = _known(node, _READ) or around
        if dialect is not None:
            node.meta[_READ] = dialect
        was_put = _known(node, _PLACE) is not None  # only what follows a replaced name was read from text
        for key, value in node.args.items():
            inherited = dialect if not was_put or key in _AFTER else None
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
    tree.meta.update({_PIECE: (text, tokens[0].start, tokens[-1].end), _READ: dialect})
    tree.meta[_ORIGINAL] = _Original(tree, tokens)
    for node in all_in(tree, exp.Table):
        if (span := _span(node)) is not None and (last := _token_ending(tokens, span[1])) is not None:
            if isinstance(node.this, exp.Func):
                node.meta[_END] = _end_of_call(tokens, last)
            else:
                node.meta[_END] = _end_of_travel(node, dialect, tokens, last)
            if node.meta[_END] > tokens[last].end:
                node.meta[_BEHIND] = (tokens[last].end + 1, node.meta[_END])
            first = next((i for i in range(last, -1, -1) if tokens[i].start == span[0]), 0)
            before = tokens[first - 1] if first else None
            if before is not None and before.token_type == TokenType.TABLE:
                node.meta[_ROWS] = before.start
            elif before is not None and before.text.upper() in ("DESCRIBE", "SUMMARIZE"):
                node.meta[_ROWS] = span[0]
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
    return _known(node, _READ)


def written(tree: exp.Expr) -> str | None:
    """Return the text that a piece was read from; None for a tree that is no piece."""
    piece = _known(tree, _PIECE)
    return None if piece is None else piece[0][piece[1] : piece[2] + 1]


def tokens_of_piece(piece: exp.Expr) -> Sequence[Token]:
    """Return the tokens of a piece; their offsets count in the whole text around it."""
    tokens: Sequence[Token] = piece.meta[_ORIGINAL].tokens
    return tokens


def text_of_piece(piece: exp.Expr) -> str:
    """Return the whole text that the tokens of a piece point into."""
    text: str = piece.meta[_PIECE][0]
    return text


def written_of_names(piece: exp.Expr) -> str:
    """Return the text of a piece without the arguments and versions of replaced tables."""
    text, at, end = piece.meta[_PIECE]
    pieces = []
    for start, last in sorted(
        node.meta[_BEHIND] for node in piece.walk() if _known(node, _PLACE) and _known(node, _BEHIND)
    ):
        pieces.append(text[at:start])
        at = last + 1
    return "".join([*pieces, text[at : end + 1]])


def loose(tree: exp.Expr) -> exp.Expr:
    """Return a copy that is no piece: it may be changed, and sqlglot generates its text."""
    copy = tree.copy()
    copy.meta.pop(_PIECE, None)
    copy.meta.pop(_ORIGINAL, None)
    return copy


def unread(tree: exp.Expr, why: str) -> exp.Expr:
    """Mark a tree that has only the tables of its text, because the parser failed on it."""
    tree.meta[_UNREAD] = why
    return tree


def why_unread(tree: exp.Expr) -> str | None:
    return _known(tree, _UNREAD)


def put_in_place(new: exp.Expr, old: exp.Expr, *, aliased: bool = False) -> None:
    """Replace a table or column in a tree, and in the text that the tree was read from.

    Args:
        new: the replacement.
        old: the table or column.
        aliased: True if the text already has an alias there; the alias of ``new`` is then not
            written.
    """
    for key in (_PLACE, _PIECE, _ORIGINAL, _READ, _CHANGES, _BEHIND):
        if key in old.meta:
            new.meta[key] = old.meta[key]
    if _PLACE not in new.meta and (place := _place_of(old, aliased)) is not None:
        new.meta[_PLACE] = place
    for key in _AFTER:
        if old.args.get(key):  # moved, not copied: tables in them are replaced later
            new.set(key, old.args[key])
    old.replace(new)


def _place_of(name: exp.Expr, aliased: bool) -> tuple[int, int, bool, bool] | None:
    """Return the place of a table or column in its text; None for a node that was built."""
    span = _span(name)
    if span is None:
        return None
    rows = _known(name, _ROWS)
    return (span[0] if rows is None else rows), _known(name, _END) or span[1], aliased, rows is not None


def keep_place(column: exp.Column) -> None:
    """Store the place of a column, so that changes of its parts are written there."""
    _part_from_original(column)
    if _PLACE not in column.meta and (span := _span(column)) is not None:
        column.meta[_PLACE] = (*span, False, False)


def stand_in(new: exp.Expr, old: exp.Expr, start: int, end: int) -> None:
    """Replace a word whose place only the text knows.

    Args:
        new: the replacement.
        old: the node to replace.
        start: first character of the word in the text.
        end: last character.
    """
    _part_from_original(old)
    new.meta[_PLACE] = (start, end, False, False)
    old.replace(new)


def _part_from_original(node: exp.Expr) -> None:
    """Copy the original tree of a node's piece before the piece itself is changed."""
    piece = node.root()
    original = _known(piece, _ORIGINAL)
    if original is not None and original.tree is piece:
        piece.meta[_ORIGINAL] = _Original(piece.copy(), original.tokens)


def change(node: exp.Expr, start: int, end: int, new: str) -> None:
    """Replace a range of a text.

    Args:
        node: the piece of the text, or a part of it.
        start: first character.
        end: last character.
        new: the text to put there.
    """
    node.meta[_CHANGES] = [*node.meta.get(_CHANGES, ()), (start, end, new)]


_WITH = re.compile(r"\s*WITH\s+(?:RECURSIVE\s+)?", re.IGNORECASE)


def may_have_scans(query: exp.Expr, dialect: str) -> bool:
    """Return True for a query that with_scans() can add common table expressions to."""
    if not isinstance(query, exp.Select | exp.SetOperation):
        return False
    text, with_clause = written(query), query.args.get("with_")
    if text is None:
        return with_clause is None  # else it has the expressions of a statement around it, which are texts
    return InText.fits(query, dialect) and (with_clause is None or _WITH.match(text) is not None)


def with_scans(query: exp.Expr, scans: Mapping[str, str]) -> exp.Expr:
    """Add materialized common table expressions before those of a query.

    Args:
        query: a query whose tables are replaced.
        scans: SQL in brackets, by name.
    """
    names = {exp.to_identifier(name, quoted=True): sql for name, sql in scans.items()}
    text = written(query)
    if text is None:
        added = [
            exp.CTE(this=exp.var(sql[1:-1]), alias=exp.TableAlias(this=name), materialized=True)
            for name, sql in names.items()
        ]
        query.set("with_", exp.With(expressions=added))
        return query
    start = query.meta[_PIECE][1]
    head = _WITH.match(text)
    at = start + (head.end() if head is not None else 0)
    listed = ", ".join(f"{name.sql(dialect_of(query))} AS MATERIALIZED {sql}" for name, sql in names.items())
    change(query, at, at - 1, f"WITH {listed} " if head is None else f"{listed}, ")
    return query


class InTree:
    """Replacements in a copy of a tree, and in the texts of its pieces."""

    def __init__(self, tree: exp.Expr) -> None:
        self.root: exp.Expr = exp.Paren(this=tree.copy())  # a parent, in case the whole tree is one table

    @property
    def result(self) -> exp.Expr:
        tree: exp.Expr = self.root.this
        return tree

    def changed(self) -> Iterator[tuple[exp.Expr, list[int]]]:
        """Yield each piece with the offsets of its changes."""
        for piece in self.root.walk():
            if _known(piece, _ORIGINAL) is not None and _known(piece, _PIECE) is not None:
                yield piece, sorted(start for node in _of_piece(piece) for start in _starts(node))

    def append(self, piece: exp.Expr, end: int, text: str) -> None:
        """Insert a text behind a character of a piece's text."""
        if (end + 1, end, text) not in piece.meta.get(_CHANGES, ()):  # not twice if the tree is changed again
            change(piece, end + 1, end, text)

    def put(self, new: exp.Expr, old: exp.Expr, *, aliased: bool) -> None:
        """Replace a table; what follows the table's name stays."""
        put_in_place(new, old, aliased=aliased)

    def qualify(self, column: exp.Column, length: int, names: Sequence[str]) -> None:
        """Replace the first parts of a column's name by quoted names.

        ``bronze.orders.id`` becomes ``"bronze.orders".id``.
        """
        parts = column.parts
        chain = [*(exp.to_identifier(name, quoted=True) for name in names), *parts[length:]]
        # After an earlier change, only its first and last name have a place.
        last = next((i for i in range(length - 1, len(parts)) if "end" in parts[i].meta), None)
        if "start" in parts[0].meta and last is not None:
            start, end = parts[0].meta["start"], parts[last].meta["end"]
            written = chain[: len(names) + last + 1 - length]
            column.meta[_CHANGES] = [(start, end, _qualified(column, length, written, _dialect_around(column)))]
            written[0].meta["start"], written[-1].meta["end"] = start, end
        for key in ("catalog", "db", "table"):
            column.set(key, None)
        for key, part in zip(("this", "table", "db", "catalog"), reversed(chain), strict=False):
            column.set(key, part)


class InText:
    """Replacements in the text of a piece alone; its tree stays unchanged and is not copied."""

    def __init__(self, piece: exp.Expr, generate: Generate) -> None:
        self.root = piece
        self._dialect: str = piece.meta[_READ]
        self._generate = generate
        self._texts: dict[Any, str] = {}
        self._columns: dict[int, tuple[exp.Expr, str]] = {}
        self._edits: dict[int, tuple[int, int, str]] = {}
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}

    @staticmethod
    def fits(tree: exp.Expr, dialect: str) -> bool:
        """Return True for an unchanged piece of this dialect."""
        return is_piece(tree, dialect) and tree.meta[_ORIGINAL].tree is tree

    @property
    def result(self) -> exp.Expr:
        """Piece with the new text and without a tree, of the same class."""
        text, at, end = self.root.meta[_PIECE]
        pieces: list[str] = []
        for first, last, new in sorted(self._edits.values(), key=lambda edit: (edit[0], -edit[1])):
            if first >= at:  # else it is inside an already replaced range
                pieces += [text[at:first], new]
                at = last + 1
        text = "".join([*pieces, text[at : end + 1]])
        piece: exp.Expr = type(self.root)()
        piece.meta.update(
            {_PIECE: (text, 0, len(text) - 1), _READ: self._dialect, _NAMES: self._names, _ALIASES: self._aliases}
        )
        piece.meta[_ORIGINAL] = _Original(piece, ())
        return unread(piece, "the names of its tables are replaced already.")

    def changed(self) -> Iterator[tuple[exp.Expr, list[int]]]:
        """Yield the piece with the offsets of its changes."""
        yield self.root, sorted(start for start, _, _ in self._edits.values())

    def append(self, piece: exp.Expr, end: int, text: str) -> None:
        """Insert a text behind a character of the piece's text."""
        self._edits[~end] = end + 1, end, text
        self._names[text] = ""

    def put(self, new: exp.Expr, old: exp.Expr, *, aliased: bool) -> None:
        if isinstance(new, exp.Column):  # one column may replace thousands: generate its text once
            if id(new) not in self._columns:
                self._columns[id(new)] = new, self._generate(new, self._dialect)
            span = _span(old)
            assert span is not None, "names of a text have a place in it"
            self._edits[id(old)] = (*span, self._columns[id(new)][1])
            return
        place = _place_of(old, aliased)
        assert place is not None, "names of a text have a place in it"
        start, end, _, rows = place
        text = _name(new, aliased, self._dialect, self._generate, self._texts)
        self._edits[id(old)] = start, end, ("SELECT * FROM " if rows else "") + text
        if not aliased and "." in new.alias:
            self._aliases[new.alias] = self.root.meta[_PIECE][0][start : end + 1]
        for node in new.walk():
            self._aliases.update(_known(node, _ALIASES) or {})
        if isinstance(new, exp.Subquery):
            alias = f" AS {new.args['alias'].sql(self._dialect)}" if aliased else ""
            self._names[text + alias] = self.root.meta[_PIECE][0][start : end + 1] + alias
            for node in new.walk():
                self._names.update(_known(node, _NAMES) or {})

    def qualify(self, column: exp.Column, length: int, names: Sequence[str]) -> None:
        quoted = [exp.to_identifier(name, quoted=True) for name in names]
        span, new = _parts(column, length), _qualified(column, length, quoted, self._dialect)
        assert span is not None, "names of a text have a place in it"
        self._edits[id(column)] = (*span, new)
        if new:
            self._names[new] = self.root.meta[_PIECE][0][span[0] : span[1] + 1]


def _starts(node: exp.Expr) -> Iterator[int]:
    """Yield the offsets of the changes of one node of a piece."""
    place = _known(node, _PLACE)
    if place is not None:
        yield place[0]
    yield from (start for start, _, _ in _known(node, _CHANGES) or ())


def _parts(column: exp.Column, length: int) -> tuple[int, int] | None:
    """Return the offsets of the first parts of a column's name."""
    start, end = _known(column.parts[0], "start"), _known(column.parts[length - 1], "end")
    return None if start is None or end is None else (start, end)


def _qualified(column: exp.Column, length: int, names: Sequence[exp.Expr], dialect: str | None) -> str:
    """Return the text of new names for the first parts of a column."""
    text = ".".join(name.sql(dialect) for name in names)
    if length == len(column.parts) and isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        last = exp.to_identifier(column.parts[-1].name, quoted=True)
        text += f" AS {last.sql(dialect)}"  # the result column of a whole row has the table's name
    return text


def _dialect_around(node: exp.Expr) -> str | None:
    """Return the dialect of the text around a node."""
    around: exp.Expr | None = node
    while around is not None and _known(around, _READ) is None:
        around = around.parent
    return None if around is None else dialect_of(around)


def is_piece(node: exp.Expr, dialect: str) -> bool:
    """Return True for a tree that was read from a text in this dialect."""
    return _known(node, _PIECE) is not None and _known(node, _READ) == dialect


def give_back(root: exp.Expr, dialect: str, generate: Generate) -> None:
    """Replace each piece of a dialect below ``root`` by its text."""
    waiting = list(root.iter_expressions())
    while waiting:
        node = waiting.pop()
        if is_piece(node, dialect):
            node.replace(exp.Var(this=_bracketed(node, text_of(node, generate))))
        else:
            waiting.extend(node.iter_expressions())


def text_of(piece: exp.Expr, generate: Generate) -> str:
    """Return the text of a piece, with its replacements."""
    text, start, end = piece.meta[_PIECE]
    assert _is_as_read(piece, piece.meta[_ORIGINAL].tree), (
        f"a tree was changed behind the back of its text: {text[start : end + 1]}"
    )
    parts: list[str] = []
    at = start
    for first, last, new in sorted(_edits(piece, generate)):
        parts += [text[at:first], new]
        at = last + 1
    return "".join([*parts, text[at : end + 1]])


def put_names(tree: exp.Expr, generate: Generate) -> Iterator[tuple[str, str]]:
    """Yield the replacements of table names in the texts of a tree, each with its original name.

    The longest replacement comes first.
    """
    originals: dict[str, str] = {}
    for node in tree.walk():
        originals.update(_known(node, _NAMES) or {})
        original = _known(node, _ORIGINAL)
        if original is None:
            continue
        text = node.meta[_PIECE][0]
        originals.update({new: "" for start, end, new in _known(node, _CHANGES) or () if start > end})
        for put in _of_piece(node):
            if isinstance(put, exp.Column):
                originals.update({new: text[start : end + 1] for start, end, new in _known(put, _CHANGES) or () if new})
            if isinstance(put, exp.Subquery) and _known(put, _PLACE):
                start, end, aliased, _ = put.meta[_PLACE]
                alias = f" AS {put.args['alias'].sql(node.meta[_READ])}" if aliased else ""
                originals[_name(put, aliased, node.meta[_READ], generate, {}) + alias] = text[start : end + 1] + alias
    yield from sorted(originals.items(), key=lambda pair: -len(pair[0]))


def _of_piece(piece: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a piece, without inner pieces such as the query of a view."""
    waiting = [piece]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in node.iter_expressions() if _known(child, _ORIGINAL) is None)


def with_names_as_written(tree: exp.Expr, message: str) -> str:
    """Return an engine's message with original table names for their aliases."""
    for piece in tree.walk():
        for alias, name in (_known(piece, _ALIASES) or {}).items():
            message = message.replace(alias, name)
        if _known(piece, _ORIGINAL) is None:
            continue
        text = piece.meta[_PIECE][0]
        for table in _of_piece(piece):
            if isinstance(table, exp.Subquery | exp.Table) and "." in table.alias and _known(table, _PLACE):
                start, end, aliased, _ = table.meta[_PLACE]
                if not aliased:
                    message = message.replace(table.alias, text[start : end + 1])
    return message


def _is_as_read(now: Any, then: Any) -> bool:
    """Return True if a tree differs from the original only where the text has a place for it."""
    # The text would lose any other change.
    waiting = [(now, then)]
    while waiting:
        now, then = waiting.pop()
        if now is then:
            continue
        if isinstance(now, list) or isinstance(then, list):
            now, then = now or [], then or []
            if len(now) != len(then):
                return False
            waiting.extend(zip(now, then, strict=True))
        elif not isinstance(now, exp.Expr):
            if now != then and (now or then):
                return False
        elif isinstance(now, exp.Column) and _known(now, _CHANGES):
            continue
        elif _known(now, _PLACE):
            if not isinstance(then, exp.Expr):
                return False
            waiting.extend((now.args.get(key), then.args.get(key)) for key in _AFTER)
        elif type(now) is not type(then):
            return False
        else:
            waiting.extend((now.args.get(key), then.args.get(key)) for key in {*now.args, *then.args})
    return True


def _bracketed(piece: exp.Expr, text: str) -> str:
    """Return an expression in brackets, if its surroundings may bind its parts differently."""
    standing = (exp.Query, exp.Values, exp.Table, exp.With, exp.Column, exp.Literal, exp.Paren, exp.Tuple)
    parent = piece.parent
    alone = isinstance(piece, standing) or parent is None or isinstance(parent, exp.Paren)
    return text if alone else f"({text})"


def _edits(tree: exp.Expr, generate: Generate) -> Iterator[tuple[int, int, str]]:
    waiting, dialect, texts = [tree], tree.meta[_READ], dict[Any, str]()
    while waiting:
        node = waiting.pop()
        yield from _known(node, _CHANGES) or ()
        place = _known(node, _PLACE)
        if place is None:
            waiting.extend(node.iter_expressions())
            continue
        start, end, aliased, rows = place
        yield start, end, ("SELECT * FROM " if rows else "") + _name(node, aliased, dialect, generate, texts)
        for key in _AFTER:
            value = node.args.get(key)
            waiting.extend(
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, exp.Expr)
            )


def _name(node: exp.Expr, aliased: bool, dialect: str, generate: Generate, texts: dict[Any, str]) -> str:
    """Return the text that replaces a name, without what follows the name in the text."""
    # Equal trees may hold different original texts, so only trees without them are cached in
    # ``texts``.
    holds_text = any(part is not node and _known(part, _PIECE) for part in node.walk())
    if not holds_text and (node, aliased) in texts:
        return texts[node, aliased]
    bare = node.copy()
    bare.meta.pop(_PIECE, None)
    if isinstance(node, exp.Table | exp.Subquery):
        for key in (*_AFTER, *(("alias",) if aliased else ())):
            bare.set(key, None)
    text = generate(bare, dialect)
    if not holds_text:
        texts[node, aliased] = text
    return text


def _span(node: Any) -> tuple[int, int] | None:
    """Return the offsets of a table's or column's name in the text."""
    span: tuple[int, int] | None = None
    for key in ("catalog", "db", "table", "this"):
        part = node.args.get(key)
        if isinstance(part, exp.Expr):
            meta = part._meta  # not _known(): thousands of columns pass here
            if meta is None or "start" not in meta:
                return None
            start, end = meta["start"], meta["end"]
            span = (start, end) if span is None else (min(span[0], start), max(span[1], end))
    return span


def _end_of_call(tokens: Sequence[Token], last: int) -> int:
    """Return the offset of the closing bracket of a function call."""
    depth = 0
    for token in tokens[last + 1 :]:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return token.end
    return tokens[last].end


def _end_of_travel(table: exp.Expr, dialect: str, tokens: Sequence[Token], last: int) -> int:
    """Return the offset of the end of a table's time travel clause, or of its name without one.

    The clause is ``AT (VERSION => n)`` or ``VERSION AS OF n``.
    """
    clause = table.args.get("when") or table.args.get("version")
    if clause is None:
        return tokens[last].end
    start = last + 1
    if tokens[start].text.upper() == "AT":
        depth = 0
        for token in tokens[start + 1 :]:
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            if depth == 0:
                return token.end
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
