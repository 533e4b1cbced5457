"""Parameters of a statement.

Each mark becomes a literal of its value's type, in the text's dialect.

So a value is equal on both engines, and valid wherever a literal is. No part of it is read as SQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlglot.tokens import TokenType

from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.edits import Edit, edited
from duckrun.sql.quoting import quote_literal
from duckrun.statements.parse.tokens import StatementText
from duckrun.values.nearest import did_you_mean

Params = Sequence[Any] | Mapping[str, Any]
"""Values for ``?`` and ``$1``, or for ``$name``."""


@dataclass(frozen=True)
class Mark:
    """A parameter: its first and last token, and its number (from 1) or its name in lower case."""

    first: int
    last: int
    key: int | str


def marks_of(source: StatementText, before: int = 0) -> list[Mark]:
    """Return the parameters of a statement.

    ``?``, ``$1``, ``$name``, and in Spark's dialect ``:name``.

    Args:
        source: the statement.
        before: the number of ``?`` in earlier statements.
    """
    if not any(sign in source.text for sign in "?$:"):
        return []
    marks: list[Mark] = []
    numbered = before
    for at, token in enumerate(source.tokens):
        if token.token_type == TokenType.PLACEHOLDER:
            name, last = token.text[1:], at
        elif (token.token_type == TokenType.PARAMETER and token.text == "$") or _is_colon_mark(source, at):
            name, last = _beside(source, at), at + 1
        else:
            continue
        if last > at and not name:
            continue
        key: int | str = int(name) if name.isdecimal() else name.lower()
        if not name:
            key = numbered + 1
        numbered += isinstance(key, int)
        marks.append(Mark(at, last, key))
    return marks


def _beside(source: StatementText, at: int) -> str:
    """Return the token that directly follows another, as text; "" without one."""
    after = source.tokens[at + 1 : at + 2]
    return after[0].text if after and after[0].start == source.tokens[at].end + 1 else ""


def _is_colon_mark(source: StatementText, at: int) -> bool:
    if source.dialect != "spark" or source.tokens[at].token_type != TokenType.COLON:
        return False
    before = source.tokens[at - 1].token_type if at else None
    return before not in _ENDS_A_VALUE and _beside(source, at).isidentifier()


_ENDS_A_VALUE = (
    TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER, TokenType.R_PAREN, TokenType.R_BRACKET,
)  # fmt: skip


def filled(sources: Sequence[StatementText], params: Params | None) -> list[StatementText]:
    """Return the statements with a literal for each parameter.

    Raises:
        InvalidConfig: for a parameter without a value, or a value without a parameter.
        UnsupportedFeature: for a type that has no literal.
    """
    if isinstance(params, str | bytes) or (params is not None and not isinstance(params, Sequence | Mapping)):
        raise InvalidConfig(f"params is a list of values, or a dict of names and values, not {type(params).__name__}.")
    marks: list[list[Mark]] = []
    count = 0
    for source in sources:
        marks.append(marks_of(source, count))
        count += sum(source.tokens[mark.first].text.startswith("?") for mark in marks[-1])
    values = _given(params)
    _refuse_unfitting({mark.key for each in marks for mark in each}, values, params)

    def text_for(mark: Mark) -> str:
        return literal(values[mark.key], sources[0].dialect, _shown(mark.key))

    return [with_texts(source, each, text_for) for source, each in zip(sources, marks, strict=True)]


def _given(params: Params | None) -> dict[int | str, Any]:
    if params is None:
        return {}
    if isinstance(params, Mapping):
        return {str(name).lower(): value for name, value in params.items()}
    return dict(enumerate(params, 1))


def _refuse_unfitting(keys: set[int | str], values: Mapping[int | str, Any], params: Params | None) -> None:
    missing = sorted((key for key in keys if key not in values), key=str)
    if missing:
        how = "params={'name': value}" if isinstance(missing[0], str) else "params=[value, …]"
        hint = did_you_mean(str(missing[0]), map(str, values)) if params else ""
        raise InvalidConfig(f"{', '.join(map(_shown, missing))} has no value: sql(text, {how}).{hint} Nothing was run.")
    left = sorted((key for key in values if key not in keys), key=str)
    if left:
        raise InvalidConfig(
            f"The text has no {', '.join(map(_shown, left))}, and params has a value for it. Nothing was run."
        )


def _shown(key: int | str) -> str:
    return f"${key}"


def with_texts(source: StatementText, marks: Sequence[Mark], text_for: Callable[[Mark], str]) -> StatementText:
    """Return a statement with other words for its parameters."""
    if not marks:
        return source
    head = source.tokens[:1] if source.is_unpacked else ()
    begin = 0 if head else source.tokens[0].start
    end = len(source.text) if head else source.tokens[-1].end + 1
    edits: list[Edit] = []
    for mark in marks:
        first, last = source.tokens[mark.first].start, source.tokens[mark.last].end
        before, after = (source.text[at : at + 1].isalnum() for at in (max(first - 1, begin), last + 1))
        edits.append((first, last, " " * before + text_for(mark) + " " * after))  # blanks: as in "in?"
    text = edited(source.text, edits, begin, end)
    filled = StatementText.of(text, source.dialect, abridge=source.abridge)
    return replace(filled, tokens=(*head, *filled.tokens), is_unpacked=source.is_unpacked)


# -- values


def literal(value: Any, dialect: str, what: str = "A parameter") -> str:
    """Return a value as SQL of its type.

    Raises:
        UnsupportedFeature: for a type that has no literal in SQL.

    >>> literal([1, None, "it's"], "duckdb")
    "[1, NULL, 'it''s']"
    >>> literal(1.5, "spark")
    "CAST('1.5' AS DOUBLE)"
    """
    plain = _plain(value, what)
    if plain is None:
        return "NULL"
    for kind, written in _LITERALS.items():
        if isinstance(plain, kind):
            return written(plain, dialect)
    raise UnsupportedFeature(
        f"{what} is a {type(plain).__name__}, which has no literal in SQL: give a plain Python value, or register it."
    )


def _plain(value: Any, what: str) -> Any:
    """Return a scalar of pyarrow, numpy or pandas as a value of Python; None for their NULLs."""
    numpy: Any = sys.modules.get("numpy")  # not imported here: a value of numpy implies that it is
    if hasattr(value, "as_py"):
        if getattr(value.type, "unit", None) == "ns" and (value.value or 0) % 1000:
            raise _too_fine(value, what)
        value = value.as_py()
    elif numpy is not None and isinstance(value, numpy.generic):
        value = _plain_of_numpy(value, numpy, what)
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):  # Timestamp, Timedelta
        raise _too_fine(value, what)
    return value


def _plain_of_numpy(value: Any, numpy: Any, what: str) -> Any:
    plain, kind = value.item(), value.dtype.kind
    if kind not in "mM" or not isinstance(plain, int):
        return plain
    # item() returns the number of units where datetime or timedelta cannot have the value.
    unit, _ = numpy.datetime_data(value.dtype)
    if unit in ("ns", "ps", "fs", "as"):
        micros = value.astype(f"{kind}8[us]")
        if micros != value:
            raise _too_fine(value, what)
        plain = micros.item()
    if isinstance(plain, int):
        raise UnsupportedFeature(f"{what} is {value!r}, which is no datetime or timedelta of Python.")
    return plain


def _too_fine(value: Any, what: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{what} is {value!r}, whose nanoseconds would be lost: a literal has microseconds. Round it, or register it."
    )


def _text(value: str, dialect: str) -> str:
    _refuse_surrogates(value)
    if dialect == "spark":
        value = value.replace("\\", "\\\\")
    pieces = [quote_literal(piece) for piece in value.split("\0")]
    return pieces[0] if len(pieces) == 1 else f"({' || chr(0) || '.join(pieces)})"


def _refuse_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UnsupportedFeature(
            f"A parameter has a text with the lone surrogate {text[error.start]!r}, which UTF-8 cannot encode."
        ) from error


def _cast(text: str, kind: str) -> str:
    return f"CAST({quote_literal(text)} AS {kind})"


def _number(value: int, dialect: str) -> str:
    if dialect == "duckdb" and not -(2**127) <= value < 2**128:
        raise UnsupportedFeature(f"{value} is a whole number of more than 128 bits, which DuckDB has no type for.")
    if dialect == "duckdb" and value in _LEAST:  # without its minus, the number exceeds the type
        return _cast(str(value), _LEAST[value])
    text = f"{value}L" if dialect == "spark" and not -(2**31) <= value < 2**31 else str(value)
    if dialect == "spark" and not -(2**63) <= value < 2**63:
        return _decimal(Decimal(value), dialect)
    return text if value >= 0 else f"({text})"


_LEAST = {-(2**31): "INTEGER", -(2**63): "BIGINT", -(2**127): "HUGEINT"}


def _decimal(value: Decimal, dialect: str) -> str:
    if not value.is_finite():
        return _double(float(value), dialect)
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    width = max(len(digits) + max(exponent, 0), min(scale + 1, 38), scale)
    if width > 38:
        raise UnsupportedFeature(f"{value} is a decimal of more than 38 digits, which SQL has no type for.")
    return _cast(f"{value:f}", f"DECIMAL({width}, {scale})")


def _double(value: float, dialect: str) -> str:
    return _cast({"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(value), repr(value)), "DOUBLE")


def _moment(value: datetime, dialect: str) -> str:
    if value.tzinfo is None:
        return _cast(value.isoformat(" "), "TIMESTAMP" if dialect == "duckdb" else "TIMESTAMP_NTZ")
    return _cast(value.isoformat(" "), "TIMESTAMPTZ" if dialect == "duckdb" else "TIMESTAMP")


def _time(value: time, dialect: str) -> str:
    if dialect == "spark":
        raise UnsupportedFeature("A parameter is a time of day, which Spark's SQL has no type for: give a text.")
    return _cast(value.isoformat(), "TIME")


def _interval(value: timedelta, dialect: str) -> str:
    micros = value // timedelta(microseconds=1)
    if dialect == "duckdb":
        return f"(to_days({value.days}) + to_microseconds({micros - value.days * 86_400_000_000}))"
    return f"make_dt_interval(0, 0, 0, CAST('{Decimal(micros) / 1_000_000:f}' AS DECIMAL(18, 6)))"


def _bytes(value: bytes | bytearray | memoryview, dialect: str) -> str:
    return f"from_hex('{value.hex()}')" if dialect == "duckdb" else f"X'{value.hex()}'"


def _uuid(value: UUID, dialect: str) -> str:
    return _cast(str(value), "UUID") if dialect == "duckdb" else quote_literal(str(value))


def _all(values: Iterable[Any], dialect: str) -> Iterator[str]:
    return (literal(value, dialect) for value in values)


def _list(values: Iterable[Any], dialect: str) -> str:
    inside = ", ".join(_all(values, dialect))
    return f"[{inside}]" if dialect == "duckdb" else f"array({inside})"


def _struct(value: Mapping[str, Any], dialect: str) -> str:
    names = [str(name) for name in value]
    for name in names:
        _refuse_surrogates(name)
    pairs = zip(names, _all(value.values(), dialect), strict=True)
    if dialect == "duckdb":
        return "{" + ", ".join(f"{quote_literal(name)}: {text}" for name, text in pairs) + "}"
    return "named_struct(" + ", ".join(f"{_text(name, dialect)}, {text}" for name, text in pairs) + ")"


_LITERALS: dict[Any, Callable[[Any, str], str]] = {
    bool: lambda value, dialect: "TRUE" if value else "FALSE",
    int: _number,
    float: _double,
    str: _text,
    (bytes, bytearray, memoryview): _bytes,
    Decimal: _decimal,
    datetime: _moment,
    date: lambda value, dialect: _cast(value.isoformat(), "DATE"),
    time: _time,
    timedelta: _interval,
    UUID: _uuid,
    (list, tuple): _list,
    Mapping: _struct,
}
