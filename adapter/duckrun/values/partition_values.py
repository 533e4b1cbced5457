"""Partition values: the possible ones, and the meaning of the texts of different writers.

Source: Delta protocol, Partition Value Serialization.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

from duckrun.errors import SchemaMismatch
from duckrun.libraries import pa

_MOMENT = re.compile(
    r"(?P<year>[+-]?\d+)-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?)?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?(?::?\d{2})?)?(?P<before> \(BC\))?(?P<late>[+-]\d{2}(?::?\d{2})?)?",
    re.IGNORECASE,
)
_NAN = "NaN"

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Name of NULL in the names of partition folders, as Hive has it."""
NO_PARTITION_VALUES = ("", "NULL", NO_VALUE)
"""Texts that some reader or writer takes for NULL as a partition value."""
LONGEST_PARTITION = 255
"""Bytes that every file system allows for a folder name, ``column=value``."""


def no_partition_value(column: str) -> str:
    """Return the message about one of NO_PARTITION_VALUES."""
    return (
        f"partition column {column} holds an empty string, the string NULL or __HIVE_DEFAULT_PARTITION__, "
        "which Delta readers take for NULL"
    )


def partition_columns(keys: Iterable[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Return the partition columns of a table as its rows spell them.

    Args:
        keys: Names of partition columns, in any letter case.
        columns: Columns of the rows that make the table.

    Raises:
        SchemaMismatch: The rows lack one of them.
    """
    spelling = {column.lower(): column for column in columns}
    keys = tuple(keys)
    if missing := [key for key in keys if key.lower() not in spelling]:
        raise SchemaMismatch(
            f"it is partitioned by {', '.join(missing)}, which the data has not; it has {', '.join(columns)}"
        )
    return tuple(spelling[key.lower()] for key in keys)


def refuse_partition_type(column: str, kind: str) -> None:
    """Raise SchemaMismatch if a column of this type, in any spelling, cannot be partitioned by."""
    head = kind.lower().partition("(")[0].partition("<")[0]
    if head in ("blob", "binary"):
        raise SchemaMismatch(
            f"column {column!r} is binary, and no two readers agree on the text of a binary partition "
            "value: partition by a text made of it, "
            "such as hex()"
        )
    if head.endswith("[]") or head in ("array", "list", "map", "struct"):
        raise SchemaMismatch(f"column {column!r} has the type {kind}, by which no table can be partitioned")


def partition_key(
    values: Mapping[str, str | None], schema: pa.Schema, columns: tuple[str, ...]
) -> tuple[Hashable, ...]:
    """Return the partition of a file as a comparable key, whoever wrote the file."""
    return tuple(typed(values.get(column), schema.field(column).type) for column in columns)


def typed(text: str | None, kind: pa.DataType) -> Hashable:
    """Return the value of a partition text. Equal values are equal; NaN equals itself.

    None and an empty text are NULL. Timestamps become microseconds since 1970 (UTC if they have a
    zone), and dates become days, so that no year is out of range. A text that is no value of the
    type is returned unchanged.

    >>> typed("1", pa.float64()) == typed("1.0", pa.float64()), typed("TRUE", pa.bool_())
    (True, True)
    >>> utc = pa.timestamp("us", "UTC")
    >>> typed("2024-01-01T10:00:00.000Z", utc) == typed("2024-01-01 11:00:00+01", utc)
    True
    """
    if text is None or text == "":
        return None
    try:
        return _value(text, kind)
    except (ValueError, InvalidOperation, OverflowError):
        return text


def _value(text: str, kind: pa.DataType) -> Hashable:
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if pa.types.is_integer(kind):
        number = Decimal(text.strip())
        return int(number) if number == number.to_integral_value() else text
    if pa.types.is_floating(kind):
        real = float(text)
        if pa.types.is_float32(kind) and math.isfinite(real):
            real = struct.unpack("f", struct.pack("f", real))[0]
        return _NAN if math.isnan(real) else real
    if pa.types.is_decimal(kind):
        return Decimal(text.strip())
    if pa.types.is_date(kind):
        return _micros(text, shifted=False) // _DAY
    if pa.types.is_timestamp(kind):
        return _micros(text, shifted=kind.tz is not None)
    return text


_DAY = 86_400_000_000


def _micros(text: str, *, shifted: bool) -> int:
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no moment")
    year = int(match["year"])
    if match["before"]:
        year = 1 - year
    days = _days(year, int(match["month"]), int(match["day"]))
    seconds = int(match["hour"] or 0) * 3600 + int(match["minute"] or 0) * 60 + int(match["second"] or 0)
    micros = days * _DAY + seconds * 1_000_000 + int((match["fraction"] or "").ljust(6, "0")[:6])
    return micros - _offset(match["zone"] or match["late"]) if shifted else micros


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar.

    Source: H. Hinnant, chrono-Compatible Low-Level Date Algorithms.
    """
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _offset(zone: str | None) -> int:
    """Return the offset of a zone from UTC, in microseconds."""
    if zone is None or zone.upper() in ("Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(6, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:4]) * 60 + int(digits[4:6])
    return (-seconds if zone[0] == "-" else seconds) * 1_000_000
