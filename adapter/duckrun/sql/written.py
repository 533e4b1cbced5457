"""What was written: a syntax tree knows the text that it was read from, and gives it back with nothing changed but its names.

A tree that is written anew is another query now and then: sqlglot has one form for what a dialect tells apart. So a tree
whose root was read from a text (a *piece*) is that text again, and what was put in the place of a table or column is spliced
in where the old one stood. Whoever changes a piece otherwise makes it ``loose`` first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import Token, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError
from sqlglot.tokens import TokenType

_READ = "read"  # the dialect that a tree was read in: of its root, and once it is translated of every node
_PIECE = "piece"  # text, start and end of a root, both inclusive
_PLACE = "place"  # where in the text of its piece a name stood: start, end, and whether an alias follows there
_CHANGES = "changes"  # of a piece or column: start, end and what stands there now
_END = "end_of_name"  # of a table: the last character of its name and of the version that it is read at
_ROWS = "rows_of"  # of a table behind TABLE, DESCRIBE or SUMMARIZE: where a query of its rows begins instead
_BEHIND = "behind"  # of a table: where the arguments or the version stand that follow its name, both inclusive
_NAMES = "names"  # of a piece without a tree: what stands for the names in its text, with these
_ALIASES = "aliases"  # of the same: the aliases of tables that hold their schema, with the names as written
_UNREAD = "unread"  # why a tree holds the names of its tables only

# What follows a table's name, and stays in the text as it is.
_AFTER = ("joins", "laterals", "pivots", "sample")

_ORIGINAL = "original"  # the tree of a piece as it was read


class _Original:
    """The tree that was read, and its tokens. Its copies share it: to copy it for each of them would take longer than to read it."""

    def __init__(self, tree: exp.Expr, tokens: Sequence[Token]) -> None:
        self.tree, self.tokens = tree, tokens

    @cached_property
    def nodes(self) -> list[exp.Expr]:
        """The nodes of the tree, which is walked once for all questions: a walk takes ten times as long as a look at each node."""
        return list(self.tree.walk())

    @cached_property
    def kinds(self) -> frozenset[type[exp.Expr]]:
        """The classes of the nodes."""
        return frozenset(map(type, self.nodes))

    def __deepcopy__(self, memo: dict[int, object]) -> _Original:
        return self


Generate = Callable[[exp.Expr, str], str]
Node = TypeVar("Node", bound=exp.Expr)


def _known(node: exp.Expr, key: str) -> Any:
    """What a node knows of itself. Its ``meta`` would be made for the question, and then copied with every node."""
    return None if node._meta is None else node._meta.get(key)


def all_in(tree: exp.Expr, *kinds: type[Node]) -> list[Node]:
    """The nodes of some classes, in the order of ``find_all()``."""
    original = _known(tree, _ORIGINAL)
    if original is None or original.tree is not tree:
        return list(tree.find_all(*kinds))
    exact = {kind for kind in original.kinds if issubclass(kind, kinds)}
    return [node for node in original.nodes if type(node) in exact] if exact else []


def has_any(tree: exp.Expr, *kinds: type[exp.Expr]) -> bool:
    """True if a tree has a node of one of some classes."""
    original = _known(tree, _ORIGINAL)
    if original is None or original.tree is not tree:
        return tree.find(*kinds) is not None
    return any(issubclass(kind, kinds) for kind in original.kinds)


def mark(root: exp.Expr) -> None:
    """Have every node of a tree know in which dialect it was read: one name may mean two things, and a query may hold views of
    another dialect. Nodes that were built stay without.
    """
    waiting: list[tuple[exp.Expr, str | None]] = [(root, None)]
    while waiting:
        node, around = waiting.pop()
        own = _known(node, _READ) or around
        if own is not None:
            node.meta[_READ] = own
        was_put = _known(node, _PLACE) is not None  # of it, what follows a table's name was read alone
        for key, value in node.args.items():
            inherited = own if not was_put or key in _AFTER else None
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, exp.Expr):
                    waiting.append((child, inherited))


def read_from(tree: exp.Expr, dialect: str, text: str, tokens: Sequence[Token]) -> exp.Expr:
    """The tree as a piece of a text, whose tokens it was read from."""
    tree.meta.update({_PIECE: (text, tokens[0].start, tokens[-1].end), _READ: dialect})
    tree.meta[_ORIGINAL] = _Original(tree, tokens)
    tables = all_in(tree, exp.Table)
    at = {token.end: i for i, token in enumerate(tokens)} if tables else {}
    for node in tables:
        if (found := _span(node)) is not None and found[1] in at:
            last = at[found[1]]
            if isinstance(node.this, exp.Func):
                node.meta[_END] = _end_of_call(tokens, last)
            else:
                node.meta[_END] = _end_of_travel(node, dialect, tokens, last)
            if node.meta[_END] > tokens[last].end:
                node.meta[_BEHIND] = (tokens[last].end + 1, node.meta[_END])
            first = next((i for i in range(last, -1, -1) if tokens[i].start == found[0]), 0)
            before = tokens[first - 1] if first else None
            if before is not None and before.token_type == TokenType.TABLE:
                node.meta[_ROWS] = before.start
            elif before is not None and before.text.upper() in ("DESCRIBE", "SUMMARIZE"):
                node.meta[_ROWS] = found[0]
    return tree


def dialect_of(node: exp.Expr) -> str | None:
    """The dialect that a tree was read in, or a node of one that is translated; None for one that was built."""
    return _known(node, _READ)


def written(tree: exp.Expr) -> str | None:
    """The text that a piece was read from, as it was; None for what is no piece."""
    piece = _known(tree, _PIECE)
    return None if piece is None else piece[0][piece[1] : piece[2] + 1]


def tokens_of_piece(piece: exp.Expr) -> Sequence[Token]:
    """The tokens that a piece was read from, each with its place in the text of which the piece is a part."""
    tokens: Sequence[Token] = piece.meta[_ORIGINAL].tokens
    return tokens


def text_of_piece(piece: exp.Expr) -> str:
    """The text in which the tokens of a piece have their places."""
    text: str = piece.meta[_PIECE][0]
    return text


def written_of_names(piece: exp.Expr) -> str:
    """The same without the arguments, and the versions, of tables in whose place something was put."""
    text, at, end = piece.meta[_PIECE]
    found = []
    for start, last in sorted(
        node.meta[_BEHIND] for node in piece.walk() if _known(node, _PLACE) and _known(node, _BEHIND)
    ):
        found.append(text[at:start])
        at = last + 1
    return "".join([*found, text[at : end + 1]])


def loose(tree: exp.Expr) -> exp.Expr:
    """A copy that is no piece: it may be changed, and is written anew."""
    copy = tree.copy()
    copy.meta.pop(_PIECE, None)
    copy.meta.pop(_ORIGINAL, None)
    return copy


def unread(tree: exp.Expr, why: str) -> exp.Expr:
    """A tree that holds the tables of its text and nothing else, since the parser failed on it."""
    tree.meta[_UNREAD] = why
    return tree


def why_unread(tree: exp.Expr) -> str | None:
    return _known(tree, _UNREAD)


def put_in_place(new: exp.Expr, old: exp.Expr, *, aliased: bool = False) -> None:
    """Replace a table or column in a tree, and in the text that the tree was read from. ``aliased``: the name that the old one
    had in its query follows in the text, so that the new one's is not written.
    """
    for key in (_PLACE, _PIECE, _ORIGINAL, _READ, _CHANGES, _BEHIND):
        if key in old.meta:
            new.meta[key] = old.meta[key]
    if _PLACE not in new.meta and (place := _place_of(old, aliased)) is not None:
        new.meta[_PLACE] = place
    for key in _AFTER:
        if old.args.get(key):  # moved, not copied: tables in them are to be replaced too
            new.set(key, old.args[key])
    old.replace(new)


def _place_of(name: exp.Expr, aliased: bool) -> tuple[int, int, bool, bool] | None:
    """The place of a table or column in its text; None for one that was built."""
    found = _span(name)
    if found is None:
        return None
    rows = _known(name, _ROWS)
    return (found[0] if rows is None else rows), _known(name, _END) or found[1], aliased, rows is not None


def keep_place(column: exp.Column) -> None:
    """Remember where a column stands in its text: what its parts are changed to is written there."""
    _part_from_original(column)
    if _PLACE not in column.meta and (found := _span(column)) is not None:
        column.meta[_PLACE] = (*found, False, False)


def stand_in(new: exp.Expr, old: exp.Expr, start: int, end: int) -> None:
    """Replace a word that has no place of its own in the tree, by where it stands in the text."""
    _part_from_original(old)
    new.meta[_PLACE] = (start, end, False, False)
    old.replace(new)


def _part_from_original(node: exp.Expr) -> None:
    """Have the piece around a node remember what was read, since it is to be changed itself and not a copy of it."""
    piece = node.root()
    original = _known(piece, _ORIGINAL)
    if original is not None and original.tree is piece:
        piece.meta[_ORIGINAL] = _Original(piece.copy(), original.tokens)


def change(node: exp.Expr, start: int, end: int, new: str) -> None:
    """Put other words in the place of some of a text, of which ``node`` is the piece, or a part of it."""
    node.meta[_CHANGES] = [*node.meta.get(_CHANGES, ()), (start, end, new)]


_WITH = re.compile(r"\s*WITH\s+(?:RECURSIVE\s+)?", re.IGNORECASE)


def may_have_scans(query: exp.Expr, dialect: str) -> bool:
    """True for a query to which with_scans() can add common table expressions."""
    if not isinstance(query, exp.Select | exp.SetOperation):
        return False
    text, own = written(query), query.args.get("with_")
    if text is None:
        return own is None  # else it has the expressions of a statement around it, which are texts
    return InText.fits(query, dialect) and (own is None or _WITH.match(text) is not None)


def with_scans(query: exp.Expr, scans: Mapping[str, str]) -> exp.Expr:
    """A query whose tables are replaced, with materialized common table expressions before its own: name -> SQL in brackets."""
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
    """Other names in a copy of a tree, and in the texts of its pieces."""

    def __init__(self, tree: exp.Expr) -> None:
        self.root: exp.Expr = exp.Paren(this=tree.copy())  # a parent, so that the whole tree may be one table

    @property
    def result(self) -> exp.Expr:
        found: exp.Expr = self.root.this
        return found

    def changed(self) -> Iterator[tuple[exp.Expr, list[int]]]:
        """The pieces with their changes: where each begins."""
        for piece in self.root.walk():
            if _known(piece, _ORIGINAL) is not None and _known(piece, _PIECE) is not None:
                yield piece, sorted(start for node in _of_piece(piece) for start in _starts(node))

    def append(self, piece: exp.Expr, end: int, text: str) -> None:
        """Put a text behind a character of a piece's text."""
        if (end + 1, end, text) not in piece.meta.get(_CHANGES, ()):  # a tree may be changed again
            change(piece, end + 1, end, text)

    def put(self, new: exp.Expr, old: exp.Expr, *, aliased: bool) -> None:
        """Put something in the place of a table, with what follows the table's name there."""
        put_in_place(new, old, aliased=aliased)

    def qualify(self, column: exp.Column, length: int, names: Sequence[str]) -> None:
        """Put other names, quoted, in the place of the first parts of a column: ``"bronze.orders".id`` for ``bronze.orders.id``."""
        parts = column.parts
        chain = [*(exp.to_identifier(name, quoted=True) for name in names), *parts[length:]]
        # Names of an earlier change have a place only at its ends.
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
    """Other names in the text of a piece alone: its tree stays as it is, and is not copied."""

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
        """True for a piece of this dialect as it was read."""
        return is_piece(tree, dialect) and tree.meta[_ORIGINAL].tree is tree

    @property
    def result(self) -> exp.Expr:
        """A piece with the new text and without a tree, of the same kind."""
        text, at, end = self.root.meta[_PIECE]
        pieces: list[str] = []
        for first, last, new in sorted(self._edits.values(), key=lambda edit: (edit[0], -edit[1])):
            if first >= at:  # else it stood in what something else stands for now
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
        """The piece with its changes: where each begins."""
        yield self.root, sorted(start for start, _, _ in self._edits.values())

    def append(self, piece: exp.Expr, end: int, text: str) -> None:
        """Put a text behind a character of the piece's text."""
        self._edits[~end] = end + 1, end, text
        self._names[text] = ""

    def put(self, new: exp.Expr, old: exp.Expr, *, aliased: bool) -> None:
        place = _place_of(old, aliased)
        assert place is not None, "names of a text have a place in it"
        start, end, _, rows = place
        if isinstance(new, exp.Column):  # which may stand in the place of thousands
            if id(new) not in self._columns:
                self._columns[id(new)] = new, self._generate(new, self._dialect)
            self._edits[id(old)] = start, end, self._columns[id(new)][1]
            return
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
    """Where the changes of one node of a piece begin."""
    place = _known(node, _PLACE)
    if place is not None:
        yield place[0]
    yield from (start for start, _, _ in _known(node, _CHANGES) or ())


def _parts(column: exp.Column, length: int) -> tuple[int, int] | None:
    """Where the first parts of a column's name stand."""
    start, end = _known(column.parts[0], "start"), _known(column.parts[length - 1], "end")
    return None if start is None or end is None else (start, end)


def _qualified(column: exp.Column, length: int, names: Sequence[exp.Expr], dialect: str | None) -> str:
    """What is written for the first parts of a column's name."""
    text = ".".join(name.sql(dialect) for name in names)
    if length == len(column.parts) and isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        last = exp.to_identifier(column.parts[-1].name, quoted=True)
        text += f" AS {last.sql(dialect)}"  # a whole row has its table's name
    return text


def _dialect_around(node: exp.Expr) -> str | None:
    """The dialect of the text that a node stands in."""
    around: exp.Expr | None = node
    while around is not None and _known(around, _READ) is None:
        around = around.parent
    return None if around is None else dialect_of(around)


def is_piece(node: exp.Expr, dialect: str) -> bool:
    """True for a tree that knows its text, in this dialect."""
    return _known(node, _PIECE) is not None and _known(node, _READ) == dialect


def give_back(root: exp.Expr, dialect: str, generate: Generate) -> None:
    """Put its text in the place of each piece of a dialect. ``root`` itself stays."""
    waiting = list(root.iter_expressions())
    while waiting:
        node = waiting.pop()
        if is_piece(node, dialect):
            node.replace(exp.Var(this=_bracketed(node, text_of(node, generate))))
        else:
            waiting.extend(node.iter_expressions())


def text_of(piece: exp.Expr, generate: Generate) -> str:
    """The text of a piece, with what was put in the place of its names."""
    text, start, end = piece.meta[_PIECE]
    assert _is_as_read(piece, piece.meta[_ORIGINAL].tree), (
        f"a tree was changed behind the back of its text: {text[start : end + 1]}"
    )
    found: list[str] = []
    at = start
    for first, last, new in sorted(_edits(piece, generate)):
        found += [text[at:first], new]
        at = last + 1
    return "".join([*found, text[at : end + 1]])


def put_names(tree: exp.Expr, generate: Generate) -> Iterator[tuple[str, str]]:
    """What stands in the texts of a tree for the name of a table, and that name as it was written; the longest first."""
    found: dict[str, str] = {}
    for node in tree.walk():
        found.update(_known(node, _NAMES) or {})
        original = _known(node, _ORIGINAL)
        if original is None:
            continue
        text = node.meta[_PIECE][0]
        found.update({new: "" for start, end, new in _known(node, _CHANGES) or () if start > end})
        for put in _of_piece(node):
            if isinstance(put, exp.Column):
                found.update({new: text[start : end + 1] for start, end, new in _known(put, _CHANGES) or () if new})
            if isinstance(put, exp.Subquery) and _known(put, _PLACE):
                start, end, aliased, _ = put.meta[_PLACE]
                alias = f" AS {put.args['alias'].sql(node.meta[_READ])}" if aliased else ""
                found[_name(put, aliased, node.meta[_READ], generate, {}) + alias] = text[start : end + 1] + alias
    yield from sorted(found.items(), key=lambda pair: -len(pair[0]))


def _of_piece(piece: exp.Expr) -> Iterator[exp.Expr]:
    """The nodes of a piece without those of other pieces in it, such as the query of a view."""
    waiting = [piece]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in node.iter_expressions() if _known(child, _ORIGINAL) is None)


def with_names_as_written(tree: exp.Expr, message: str) -> str:
    """An engine's message about a tree, with the tables' names as written in the place of their aliases."""
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
    """True if nothing but what has a place in the text is other than it was: any other change would be lost."""
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
    """An expression in brackets, if what is around it may bind its parts otherwise."""
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
    """What stands in the place of a name, without what follows it in the text. ``texts`` of a whole text are generated once each."""
    holds_text = any(part is not node and _known(part, _PIECE) for part in node.walk())  # which its tree does not say
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
    """Where the parts of a table's or column's name stand in the text."""
    parts = [p for p in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if isinstance(p, exp.Expr)]
    places = [part.meta for part in parts if "start" in part.meta]
    if not places or len(places) < len(parts):
        return None
    return min(place["start"] for place in places), max(place["end"] for place in places)


def _end_of_call(tokens: Sequence[Token], last: int) -> int:
    """The end of what stands in brackets behind the name of a function."""
    depth = 0
    for token in tokens[last + 1 :]:
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        if depth == 0:
            return token.end
    return tokens[last].end


def _end_of_travel(table: exp.Expr, dialect: str, tokens: Sequence[Token], last: int) -> int:
    """The end of ``AT (VERSION => n)`` or ``VERSION AS OF n`` behind a table's name, else of the name."""
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
    for end in range(start + 2, len(tokens) + 1):  # the shortest text that is the expression
        try:
            found = Dialect.get_or_raise(dialect).parser().parse(list(tokens[start + 1 : end]), "")
        except SqlglotError:
            continue
        if found and found[0] == clause.expression:
            return tokens[end - 1].end
    return tokens[last].end
