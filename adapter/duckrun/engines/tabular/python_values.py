"""Python objects as Arrow values: a column has one type, and no value changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from numbers import Number
from typing import Any

from duckrun.errors import SchemaMismatch
from duckrun.libraries import pa
from duckrun.values.columns import holds

_MISSING = frozenset({"NoneType", "NaTType", "NAType"})


def array_of(values: Sequence[Any], what: str) -> pa.Array:
    """Return Python values as an Arrow array. ``what`` names the column in errors.

    Raises:
        SchemaMismatch: The values have several types, or Arrow has none for them.
    """
    try:
        array = pa.array(values)
    except conversion_errors() as error:
        raise inconvertible(values, what, error) from error
    refuse_changed(values, array.type, what)
    return array


def conversion_errors() -> tuple[type[Exception], ...]:
    """Return the errors of values without a single Arrow type."""
    # A ValueError is also a string that is not UTF-8, or NaT outside of pandas.
    return ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError


def inconvertible(values: Sequence[Any], what: str, error: Exception) -> SchemaMismatch:
    """Error of values without a single Arrow type. It names two values whose types conflict."""
    return SchemaMismatch(f"{what} {_conflict(values) or f'cannot be stored: {error}'}")


def refuse_changed(values: Sequence[Any], kind: pa.DataType, what: str) -> None:
    """Refuse dates and times that pyarrow changes while it makes an array of that type.

    pyarrow goes by the first value. After a date, a datetime loses its time. After a naive
    datetime, another one loses its zone. Nanoseconds of pandas' scalars are lost.

    Raises:
        SchemaMismatch: A value would change.
    """
    if holds(kind, pa.types.is_temporal):
        for rows, parts in _temporal(kind, range(len(values)), values):
            _refuse_changed(rows, parts, what)


def _temporal(kind: pa.DataType, rows: Sequence[int], values: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the values at each place of a type that has dates or times, with their rows."""
    if pa.types.is_temporal(kind):
        yield rows, values
    elif pa.types.is_struct(kind):
        structs = [(row, value) for row, value in zip(rows, values, strict=True) if isinstance(value, dict)]
        for field in kind:
            yield from _temporal(
                field.type, [row for row, _ in structs], [value.get(field.name) for _, value in structs]
            )
    elif pa.types.is_list(kind):
        lists = [(row, value) for row, value in zip(rows, values, strict=True) if not _is_missing(value)]
        pairs = [(row, part) for row, value in lists for part in value]
        yield from _temporal(kind.value_type, [row for row, _ in pairs], [part for _, part in pairs])


def _refuse_changed(rows: Sequence[int], values: Sequence[Any], what: str) -> None:
    # One fast pass finds the types. Zipped from the end, the first row of each type remains.
    firsts = {
        (type(value), getattr(value, "tzinfo", None) is None): (row, value)
        for row, value in zip(reversed(rows), reversed(values), strict=True)
    }
    names = dict[str, int]()
    for row, value in sorted(firsts.values(), key=lambda pair: pair[0]):
        if not _is_missing(value):
            names.setdefault(_name_of(value), row)
    if len(names) > 1:
        one, other, *_ = names.items()
        raise SchemaMismatch(f"{what} {_several(one, other)}")
    if not any(hasattr(kind, "nanosecond") or hasattr(kind, "nanoseconds") for kind, _ in firsts):
        return
    for row, value in zip(rows, values, strict=True):
        if not _is_missing(value) and (getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)) % 1000:
            raise SchemaMismatch(
                f"{what} has nanoseconds in row {row} ({value}), and a column ends at microseconds: round them, for "
                "instance by .round('us')"
            )


def _name_of(value: Any) -> str:
    if isinstance(value, datetime):
        return "datetime" if value.tzinfo is None else "datetime with a time zone"
    return "date" if isinstance(value, date) else type(value).__name__


def _conflict(values: Sequence[Any]) -> str | None:
    """Describe two values whose types conflict, with the first row of each; None if none do."""
    kinds: dict[type, tuple[int, Any]] = {}
    for row, value in enumerate(values):
        if _is_missing(value) or type(value) in kinds:
            continue
        for other, (place, one) in kinds.items():
            try:
                pa.array([one, value])
            except conversion_errors():
                return _several((other.__name__, place), (type(value).__name__, row))
        kinds[type(value)] = (row, value)
    return None


def _several(one: tuple[str, int], other: tuple[str, int]) -> str:
    (name, row), (other_name, other_row) = one, other
    return (
        f"holds {name} (first in row {row}) and {other_name} (first in row {other_row}), and a column has one type: "
        "convert them, for instance by .astype(str)"
    )


def _is_missing(value: Any) -> bool:
    """True for None, NaN, and the missing values of pandas."""
    return type(value).__name__ in _MISSING or (isinstance(value, Number) and bool(value != value))
