"""``PARTITIONED BY (…)`` and ``SORTED BY (…)``, read from tokens.

Sqlglot drops or misreads them.
"""

from __future__ import annotations

from duckrun.statements.parse.parts import unsupported
from duckrun.statements.parse.tokens import StatementText, TokenReader

_ONE = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
"""Transform names of the catalog, by Spark's names."""


def partitioned_by(source: StatementText) -> tuple[str, ...]:
    """Return the partition keys of a CREATE TABLE, from the tokens before its query."""
    at = source.next_outer(0, "AS", "PARTITIONED BY")
    if at is None or source.says(("AS",), at):
        return ()
    return partition_keys(TokenReader(source, at + 1))


def partition_keys(reader: TokenReader) -> tuple[str, ...]:
    """Read ``(day, month(at), bucket(16, id))``, or one name without brackets."""
    return tuple(map(_key, reader.parts())) if reader.is_at_brackets else (reader.identifier(),)


def _key(reader: TokenReader) -> str:
    name = reader.identifier()
    readers = [reader]
    if reader.is_at_brackets:
        arguments = reader.parts()
        words = [
            each.number() if each.left and each.left[0].text.isdigit() else each.identifier() for each in arguments
        ]
        readers += arguments
        name = f"{_ONE.get(name.lower(), name.lower())}({', '.join(words)})"
    if any(each.left for each in readers):
        raise unsupported("PARTITIONED BY of anything but names of columns and transforms of them")
    return name


def sorted_columns(reader: TokenReader) -> tuple[str, ...]:
    """Read ``(a, b ASC)``: column names, in ascending order."""
    if reader.accept("AUTO"):
        raise unsupported("SORTED BY AUTO (name the columns: SORTED BY (a, b)); it")
    columns = []
    for inside in reader.parts():
        columns.append(inside.identifier())
        inside.accept("ASC")
        if inside.left:
            raise unsupported("SORTED BY of anything but names of columns, ascending")
    return tuple(columns)
