"""Text of a piece: what it was read from, with only names replaced.

The replacements of ``placing.py`` are spliced in at the places of the old names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from duckrun.sql.edits import Edit, edited
from duckrun.sql.pieces import AFTER, Generate, Key, is_piece, known


def written(tree: exp.Expr) -> str | None:
    """Return the text that a piece was read from; None for a tree that is no piece."""
    piece = known(tree, Key.PIECE)
    return None if piece is None else piece[0][piece[1] : piece[2] + 1]


def written_of_names(piece: exp.Expr) -> str:
    """Return the text of a piece without the arguments and versions of replaced tables."""
    text, start, end = piece.meta[Key.PIECE]
    behind = (node.meta[Key.BEHIND] for node in piece.walk() if known(node, Key.PLACE) and known(node, Key.BEHIND))
    return edited(text, sorted((first, last, "") for first, last in behind), start, end + 1)


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
    text, start, end = piece.meta[Key.PIECE]
    assert _is_as_read(piece, piece.meta[Key.ORIGINAL].tree), (
        f"a tree was changed behind the back of its text: {text[start : end + 1]}"
    )
    return edited(text, sorted(_edits(piece, generate)), start, end + 1)


def put_names(tree: exp.Expr, generate: Generate) -> Iterator[tuple[str, str]]:
    """Yield the replacements of table names in the texts of a tree, each with its original name.

    The longest replacement comes first.
    """
    originals: dict[str, str] = {}
    for node in tree.walk():
        originals.update(known(node, Key.NAMES) or {})
        original = known(node, Key.ORIGINAL)
        if original is None:
            continue
        text = node.meta[Key.PIECE][0]
        originals.update({new: "" for start, end, new in known(node, Key.CHANGES) or () if start > end})
        for put in nodes_of_piece(node):
            if isinstance(put, exp.Column):
                originals.update(
                    {new: text[start : end + 1] for start, end, new in known(put, Key.CHANGES) or () if new}
                )
            if isinstance(put, exp.Subquery) and known(put, Key.PLACE):
                start, end, aliased, _ = put.meta[Key.PLACE]
                alias = f" AS {put.args['alias'].sql(node.meta[Key.READ])}" if aliased else ""
                originals[name_text(put, aliased, node.meta[Key.READ], generate, {}) + alias] = (
                    text[start : end + 1] + alias
                )
    yield from sorted(originals.items(), key=lambda pair: -len(pair[0]))


def nodes_of_piece(piece: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the nodes of a piece, without inner pieces such as the query of a view."""
    waiting = [piece]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(child for child in node.iter_expressions() if known(child, Key.ORIGINAL) is None)


def with_names_as_written(tree: exp.Expr, message: str) -> str:
    """Return an engine's message with original table names for their aliases."""
    for piece in tree.walk():
        for alias, name in (known(piece, Key.ALIASES) or {}).items():
            message = message.replace(alias, name)
        if known(piece, Key.ORIGINAL) is None:
            continue
        text = piece.meta[Key.PIECE][0]
        for table in nodes_of_piece(piece):
            if isinstance(table, exp.Subquery | exp.Table) and "." in table.alias and known(table, Key.PLACE):
                start, end, aliased, _ = table.meta[Key.PLACE]
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
        elif isinstance(now, exp.Column) and known(now, Key.CHANGES):
            continue
        elif known(now, Key.PLACE):
            if not isinstance(then, exp.Expr):
                return False
            waiting.extend((now.args.get(key), then.args.get(key)) for key in AFTER)
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


def _edits(tree: exp.Expr, generate: Generate) -> Iterator[Edit]:
    waiting, dialect, texts = [tree], tree.meta[Key.READ], dict[Any, str]()
    while waiting:
        node = waiting.pop()
        yield from known(node, Key.CHANGES) or ()
        place = known(node, Key.PLACE)
        if place is None:
            waiting.extend(node.iter_expressions())
            continue
        start, end, aliased, rows = place
        yield start, end, ("SELECT * FROM " if rows else "") + name_text(node, aliased, dialect, generate, texts)
        for key in AFTER:
            value = node.args.get(key)
            waiting.extend(
                child for child in (value if isinstance(value, list) else [value]) if isinstance(child, exp.Expr)
            )


def name_text(node: exp.Expr, aliased: bool, dialect: str, generate: Generate, texts: dict[Any, str]) -> str:
    """Return the text that replaces a name, without what follows the name in the text."""
    # Equal trees may hold different original texts, so only trees without them are cached in
    # ``texts``.
    holds_text = any(part is not node and known(part, Key.PIECE) for part in node.walk())
    if not holds_text and (node, aliased) in texts:
        return texts[node, aliased]
    bare = node.copy()
    bare.meta.pop(Key.PIECE, None)
    if isinstance(node, exp.Table | exp.Subquery):
        for key in (*AFTER, *(("alias",) if aliased else ())):
            bare.set(key, None)
    text = generate(bare, dialect)
    if not holds_text:
        texts[node, aliased] = text
    return text
