"""Names and queries put in the place of others in a piece, which still returns its text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlglot import exp

from duckrun.sql.edits import Edit, edited
from duckrun.sql.pieces import (
    AFTER,
    Generate,
    Key,
    Original,
    dialect_around,
    dialect_of,
    is_piece,
    known,
    span_of,
    unread,
)
from duckrun.sql.written import name_text, nodes_of_piece, written


def put_in_place(new: exp.Expr, old: exp.Expr, *, aliased: bool = False) -> None:
    """Replace a table or column in a tree, and in the text that the tree was read from.

    Args:
        new: the replacement.
        old: the table or column.
        aliased: True if the text already has an alias there; the alias of ``new`` is then not
            written.
    """
    for key in (Key.PLACE, Key.PIECE, Key.ORIGINAL, Key.READ, Key.CHANGES, Key.BEHIND):
        if key in old.meta:
            new.meta[key] = old.meta[key]
    if Key.PLACE not in new.meta and (place := _place_of(old, aliased)) is not None:
        new.meta[Key.PLACE] = place
    for key in AFTER:
        if old.args.get(key):  # moved, not copied: tables in them are replaced later
            new.set(key, old.args[key])
    old.replace(new)


def _place_of(name: exp.Expr, aliased: bool) -> tuple[int, int, bool, bool] | None:
    """Return the place of a table or column in its text; None for a node that was built."""
    span = span_of(name)
    if span is None:
        return None
    rows = known(name, Key.ROWS)
    return (span[0] if rows is None else rows), known(name, Key.END) or span[1], aliased, rows is not None


def set_part(column: exp.Column, part: str, name: exp.Expr | None) -> None:
    """Change a part of a column's name; its place is stored, so that the text changes there.

    Args:
        column: the column.
        part: "this" for its own name, "table" for the name in front of it.
        name: the new name; None removes the part.
    """
    _part_from_original(column)
    if Key.PLACE not in column.meta and (span := span_of(column)) is not None:
        column.meta[Key.PLACE] = (*span, False, False)
    column.set(part, name)


def stand_in(new: exp.Expr, old: exp.Expr, start: int, end: int) -> None:
    """Replace a word whose place only the text knows.

    Args:
        new: the replacement.
        old: the node to replace.
        start: first character of the word in the text.
        end: last character.
    """
    _part_from_original(old)
    new.meta[Key.PLACE] = (start, end, False, False)
    old.replace(new)


def _part_from_original(node: exp.Expr) -> None:
    """Copy the original tree of a node's piece before the piece itself is changed."""
    piece = node.root()
    original = known(piece, Key.ORIGINAL)
    if original is not None and original.tree is piece:
        piece.meta[Key.ORIGINAL] = Original(piece.copy(), original.tokens)


def change(node: exp.Expr, start: int, end: int, new: str) -> None:
    """Replace a range of a text.

    Args:
        node: the piece of the text, or a part of it.
        start: first character.
        end: last character.
        new: the text to put there.
    """
    node.meta[Key.CHANGES] = [*node.meta.get(Key.CHANGES, ()), (start, end, new)]


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
    start = query.meta[Key.PIECE][1]
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
            if known(piece, Key.ORIGINAL) is not None and known(piece, Key.PIECE) is not None:
                yield piece, sorted(start for node in nodes_of_piece(piece) for start in _starts(node))

    def append(self, piece: exp.Expr, end: int, text: str) -> None:
        """Insert a text behind a character of a piece's text."""
        if (end + 1, end, text) not in piece.meta.get(Key.CHANGES, ()):  # not twice if the tree is changed again
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
            column.meta[Key.CHANGES] = [(start, end, _qualified(column, length, written, dialect_around(column)))]
            written[0].meta["start"], written[-1].meta["end"] = start, end
        for key in ("catalog", "db", "table"):
            column.set(key, None)
        for key, part in zip(("this", "table", "db", "catalog"), reversed(chain), strict=False):
            column.set(key, part)


class InText:
    """Replacements in the text of a piece alone; its tree stays unchanged and is not copied."""

    def __init__(self, piece: exp.Expr, generate: Generate) -> None:
        self.root = piece
        self._dialect: str = piece.meta[Key.READ]
        self._generate = generate
        self._texts: dict[Any, str] = {}
        self._columns: dict[int, tuple[exp.Expr, str]] = {}
        self._edits: dict[int, Edit] = {}
        self._names: dict[str, str] = {}
        self._aliases: dict[str, str] = {}

    @staticmethod
    def fits(tree: exp.Expr, dialect: str) -> bool:
        """Return True for an unchanged piece of this dialect."""
        return is_piece(tree, dialect) and tree.meta[Key.ORIGINAL].tree is tree

    @property
    def result(self) -> exp.Expr:
        """Piece with the new text and without a tree, of the same class."""
        text, start, end = self.root.meta[Key.PIECE]
        edits = sorted(self._edits.values(), key=lambda edit: (edit[0], -edit[1]))
        text = edited(text, edits, start, end + 1)
        piece: exp.Expr = type(self.root)()
        piece.meta.update(
            {
                Key.PIECE: (text, 0, len(text) - 1),
                Key.READ: self._dialect,
                Key.NAMES: self._names,
                Key.ALIASES: self._aliases,
            }
        )
        piece.meta[Key.ORIGINAL] = Original(piece, ())
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
            span = span_of(old)
            assert span is not None, "names of a text have a place in it"
            self._edits[id(old)] = (*span, self._columns[id(new)][1])
            return
        place = _place_of(old, aliased)
        assert place is not None, "names of a text have a place in it"
        start, end, _, rows = place
        text = name_text(new, aliased, self._dialect, self._generate, self._texts)
        self._edits[id(old)] = start, end, ("SELECT * FROM " if rows else "") + text
        if not aliased and "." in new.alias:
            self._aliases[new.alias] = self.root.meta[Key.PIECE][0][start : end + 1]
        for node in new.walk():
            self._aliases.update(known(node, Key.ALIASES) or {})
        if isinstance(new, exp.Subquery):
            alias = f" AS {new.args['alias'].sql(self._dialect)}" if aliased else ""
            self._names[text + alias] = self.root.meta[Key.PIECE][0][start : end + 1] + alias
            for node in new.walk():
                self._names.update(known(node, Key.NAMES) or {})

    def qualify(self, column: exp.Column, length: int, names: Sequence[str]) -> None:
        quoted = [exp.to_identifier(name, quoted=True) for name in names]
        start, end = known(column.parts[0], "start"), known(column.parts[length - 1], "end")
        assert start is not None and end is not None, "names of a text have a place in it"
        new = _qualified(column, length, quoted, self._dialect)
        self._edits[id(column)] = start, end, new
        if new:
            self._names[new] = self.root.meta[Key.PIECE][0][start : end + 1]


def _starts(node: exp.Expr) -> Iterator[int]:
    """Yield the offsets of the changes of one node of a piece."""
    place = known(node, Key.PLACE)
    if place is not None:
        yield place[0]
    yield from (start for start, _, _ in known(node, Key.CHANGES) or ())


def _qualified(column: exp.Column, length: int, names: Sequence[exp.Expr], dialect: str | None) -> str:
    """Return the text of new names for the first parts of a column."""
    text = ".".join(name.sql(dialect) for name in names)
    if length == len(column.parts) and isinstance(column.parent, exp.Select) and column.arg_key == "expressions":
        last = exp.to_identifier(column.parts[-1].name, quoted=True)
        text += f" AS {last.sql(dialect)}"  # the result column of a whole row has the table's name
    return text
