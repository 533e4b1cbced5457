"""Text edits of a statement's parts.

The WITH of the statement in its subqueries, casts in VALUES.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TypeVar

from sqlglot import exp

from duckrun.errors import UnsupportedFeature
from duckrun.sql.edits import Edit, closing, edited
from duckrun.sql.names import read_tokens, transpile
from duckrun.sql.pieces import dialect_of
from duckrun.sql.written import written
from duckrun.statements.parse.tokens import StatementText, parted, word_of
from duckrun.statements.plan.defaults import DEFAULT

_BEGIN = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
UNTYPED = '"NULL"'
"""DuckDB's type of a VOID column, which sqlglot cannot parse."""
Tree = TypeVar("Tree", exp.Expr, exp.Expr | None)


def under(with_: exp.With | None, tree: Tree) -> Tree:
    """Return an expression whose subqueries see the common table expressions of its statement."""
    if with_ is None or tree is None or tree.find(exp.Query) is None:
        return tree
    head, text, dialect = written(with_), written(tree), dialect_of(tree)
    if head is None or text is None or dialect is None:
        raise UnsupportedFeature("WITH before a change whose subqueries were not written; put it into the subquery.")
    names = {cte.alias.lower() for cte in with_.expressions}
    tokens, added = read_tokens(text, dialect), list[Edit]()
    at = 0
    while at + 1 < len(tokens):
        if tokens[at].text != "(" or word_of(tokens[at + 1]) not in _BEGIN:
            at += 1
            continue
        end = closing(tokens, at)
        if any(token.text.lower() in names for token in tokens[at:end]):
            nested = word_of(tokens[at + 1]) == "WITH"
            after, before = tokens[at].end + 1, tokens[end].start
            added.append((after, after - 1, f"{head} SELECT * FROM (" if nested else f"{head} "))
            added.append((before, before - 1, ")" if nested else ""))
        at = end
    return _read(edited(text, added), dialect)


def with_types(
    query: exp.Query,
    columns: Sequence[str],
    types: Mapping[str, str],
    engine: str,
    defaults: Mapping[str, str],
    computed: Collection[str] = (),
) -> tuple[exp.Query, list[str], bool]:
    """Cast each value of multi-row VALUES to its column's type.

    The types of two rows may differ. Other queries stay unchanged.

    Args:
        query: the rows.
        columns: the columns that they fill.
        types: types of the columns, in the engine's SQL.
        engine: the name of the engine.
        defaults: the meaning of DEFAULT in Spark SQL, if it is not NULL.
        computed: columns that the table computes, in lower case.

    Returns:
        The query; the columns that it fills, without computed columns that are DEFAULT in all rows;
        True if each row surely has a value for each of these columns.
    """
    values = query.find(exp.Values)
    text = None if values is None else written(values)
    if values is None or text is None or (len(values.expressions) < 2 and not defaults and not computed):
        return query, list(columns), False
    dialect, kinds_of_columns = dialect_of(values) or "duckdb", [types[name] for name in columns]
    if len(text) > _LONG and have_types(text, kinds_of_columns, dialect):
        return query, list(columns), True
    tokens = tuple(read_tokens(text, dialect)[1:])
    rows = []
    for row in parted(StatementText(text, dialect, tokens), ","):
        parts = parted(row.with_(row.tokens[1:-1]), ",")
        if len(parts) != len(columns) or not all(part.tokens for part in parts):
            return query, list(columns), False
        rows.append(parts)
    left = [_left_out(name, [row[at].words for row in rows], computed) for at, name in enumerate(columns)]
    added = list[Edit]()
    kinds = [
        None if types[name] == UNTYPED else exp.DataType.build(types[name], dialect=engine).sql(dialect=dialect)
        for name in columns
    ]
    for parts in rows:
        cast = []
        for value, column, kind, is_left in zip(parts, columns, kinds, left, strict=True):
            cell = text[value.tokens[0].start : value.tokens[-1].end + 1]
            if value.words == (DEFAULT,):
                cell = transpile(defaults.get(column, "NULL"), "spark", dialect)
            if is_left and not all(left):
                continue
            # An untyped column accepts only NULL, without a cast.
            cast.append(cell if kind is None else f"CAST({cell} AS {kind})")
        added.append((parts[0].tokens[0].start, parts[-1].tokens[-1].end, ", ".join(cast)))
    new = query.copy()
    old_values = new.find(exp.Values)
    assert old_values is not None
    old_values.replace(_read(edited(text, added), dialect))
    return new, [name for name, is_left in zip(columns, left, strict=True) if not is_left or all(left)], True


_LONG = 400
"""Minimum number of characters at which a check for superfluous casts pays off."""
_NUMBERS = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL\b.*|DOUBLE|FLOAT|REAL", re.IGNORECASE)


def have_types(text: str, types: Sequence[str], dialect: str) -> bool:
    """Return True if casting whole columns of VALUES gives the same values as casting each value.

    That holds for rows of constants with one kind of constant per column.
    """
    begin = _BEGIN_OF_VALUES.match(text)
    if begin is None:
        return False
    string = _STRINGS[dialect]
    first_of_kind = _first_of_kind(string)
    cells: list[str] = []
    at = begin.end()
    for type_ in types:
        is_number = _NUMBERS.fullmatch(type_) is not None
        first = first_of_kind.match(text, at)
        if first is None:
            return False
        constants = {"text": string, "boolean": _BOOLEAN, "number": _DECIMAL if is_number else _WHOLE}
        # A NULL in the first row tells nothing: the type of the column then gives the kind.
        likely = "number" if is_number else "boolean" if type_ == "BOOLEAN" else "text"
        cells.append(rf"(?:{constants.get(str(first.lastgroup), constants[likely])}|{_NULL})")
        at = first.end()
    row = rf"\(\s*+{_COMMA.join(cells)}\s*+\)"
    # Bounded pieces of a run: an unbounded repetition would remember each of its rows.
    rows = re.compile(rf"{row}(?:{_COMMA}{row}){{0,63}}+", re.DOTALL)
    at = begin.end() - 1
    while (match := rows.match(text, at)) is not None:
        behind = _BEHIND_ROWS.match(text, match.end())
        assert behind is not None, "it may be empty"
        if behind.end() == len(text):
            return "," not in behind[0]
        if "," not in behind[0]:
            return False
        at = behind.end()
    return False


_NULL = r"(?i:NULL)(?!\w)"


def _or_cast(constant: str, types: str) -> str:
    """Return the pattern of a constant, or of a cast of it or of NULL to its own type."""
    cast = rf"(?i:CAST)\s*+\(\s*+(?:{constant}|{_NULL})\s*+(?i:AS)\s++(?i:{types})\s*+\)"
    return rf"(?:{constant}|{cast})"


_TEXTS = {
    "duckdb": r"'[^']*+(?:''[^']*+)*+'",
    "spark": "|".join(rf"{quote}[^{quote}\\]*+(?:(?:{quote}{quote}|\\.)[^{quote}\\]*+)*+{quote}" for quote in "'\""),
}
_STRINGS = {dialect: _or_cast(text, "TEXT|VARCHAR|STRING") for dialect, text in _TEXTS.items()}
_BOOLEAN = _or_cast(r"(?i:TRUE|FALSE)(?!\w)", "BOOLEAN|BOOL")
_WHOLE = r"(?:-\s*+)?+\d{1,15}+(?![\w.])"
_DECIMAL = r"(?:-\s*+)?+(?![\d.]{16})\d++(?:\.\d++)?+(?![\w.])"
_COMMA = r"\s*+,\s*+"
_BEGIN_OF_VALUES = re.compile(r"VALUES\s*+\(", re.IGNORECASE)
_BEHIND_ROWS = re.compile(r"\s*+,?+\s*+")


@cache
def _first_of_kind(string: str) -> re.Pattern[str]:
    kinds = rf"(?P<text>{string})|(?P<number>{_DECIMAL})|(?P<boolean>{_BOOLEAN})|{_NULL}"
    return re.compile(rf"\s*+(?:{kinds})\s*+[,)]", re.DOTALL)


def _left_out(name: str, words_of_rows: Sequence[tuple[str, ...]], computed: Collection[str]) -> bool:
    """Return True for a column that the table computes.

    Raises:
        UnsupportedFeature: if only some rows say DEFAULT for it.
    """
    if name.lower() not in computed or (DEFAULT,) not in words_of_rows:
        return False
    if set(words_of_rows) != {(DEFAULT,)}:
        raise UnsupportedFeature(
            f"INSERT: {name} is computed by its table, and some rows say DEFAULT for it where others bring a value. "
            "Insert them by two "
            "statements."
        )
    return True


def _read(text: str, dialect: str) -> exp.Expr:
    return StatementText.of(text, dialect).parse()
