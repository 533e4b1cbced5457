"""``PARTITIONED BY (…)`` and ``SORTED BY (…)``, read from tokens.

Sqlglot drops or misreads them.
"""

from __future__ import annotations

from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader, step_of, word_of

_ONE = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
"""Transform names of the catalog, by Spark's names."""


def partitioned_by(source: StatementText) -> tuple[str, ...]:
    """Return the partition keys of a CREATE TABLE, from the tokens before its query."""
    depth = 0
    for at, token in enumerate(source.tokens):
        if depth == 0 and word_of(token) == "AS":
            break
        if depth == 0 and word_of(token) == "PARTITIONED BY":
            reader = TokenReader(source)
            reader.at = at + 1
            return partition_keys(reader)
        depth += step_of(token)
    return ()


def partition_keys(reader: TokenReader) -> tuple[str, ...]:
    """Read ``(day, month(at), bucket(16, id))``, or one name without brackets."""
    if not reader.left or reader.left[0].text != "(":
        return (reader.identifier(),)
    return tuple(_key(TokenReader(reader.source.with_(part))) for part in reader.brackets())


def _key(reader: TokenReader) -> str:
    name = reader.identifier()
    if reader.left and reader.left[0].text == "(":
        arguments = [TokenReader(reader.source.with_(part)) for part in reader.brackets()]
        words = [
            each.number() if each.left and each.left[0].text.isdigit() else each.identifier() for each in arguments
        ]
        if any(each.left for each in arguments):
            raise unsupported("PARTITIONED BY of anything but names of columns and transforms of them")
        name = f"{_ONE.get(name.lower(), name.lower())}({', '.join(words)})"
    if reader.left:
        raise unsupported("PARTITIONED BY of anything but names of columns and transforms of them")
    return name


def sorted_columns(reader: TokenReader) -> tuple[str, ...]:
    """Read ``(a, b ASC)``: column names, in ascending order."""
    if reader.accept("AUTO"):
        raise unsupported("SORTED BY AUTO (name the columns: SORTED BY (a, b)); it")
    columns = []
    for part in reader.brackets():
        inside = TokenReader(reader.source.with_(part))
        columns.append(inside.identifier())
        inside.accept("ASC")
        if inside.left:
            raise unsupported("SORTED BY of anything but names of columns, ascending")
    return tuple(columns)
