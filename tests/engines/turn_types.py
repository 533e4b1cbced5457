"""The types that a drawn column may have: how Arrow calls each, some of its values, and how these are said in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Kind:
    """A type by its name in SQL."""

    arrow: pa.DataType
    values: Sequence[Any]
    said: Callable[[Any], str]


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join("CAST(NULL AS INT)" if v is None else str(v) for v in values)


_MOMENTS = (datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime(1969, 12, 31, 23, 59, 59, 1), datetime(1601, 1, 1))
DRAWN: dict[str, Kind] = {
    "DATE": Kind(pa.date32(), (date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31)), lambda v: f"DATE '{v}'"),
    "TIMESTAMP": Kind(pa.timestamp("us", "UTC"), _MOMENTS, lambda v: f"TIMESTAMP '{v}+00:00'"),
    "TIMESTAMP_NTZ": Kind(pa.timestamp("us"), _MOMENTS, lambda v: f"TIMESTAMP_NTZ '{v}'"),
    "DECIMAL(20, 2)": Kind(
        pa.decimal128(20, 2),
        (Decimal("0.00"), Decimal("-1.10"), Decimal("123456789012345678.99")),
        lambda v: f"CAST('{v}' AS DECIMAL(20, 2))",
    ),
    "DOUBLE": Kind(pa.float64(), (0.5, -1e300, 5e-324, float("nan"), float("inf")), lambda v: f"CAST('{v}' AS DOUBLE)"),
    "BOOLEAN": Kind(pa.bool_(), (True, False), lambda v: str(v).upper()),
    "BINARY": Kind(pa.binary(), (b"", b"\x00\xff'", b"text"), lambda v: f"X'{v.hex()}'"),
    "ARRAY<INT>": Kind(
        pa.list_(pa.int32()), ((), (1, None, 3), (7,)), lambda v: f"CAST(array({_listed(v)}) AS ARRAY<INT>)"
    ),
    "MAP<STRING, INT>": Kind(
        pa.map_(pa.string(), pa.int32()),
        ((("a", 1), ("b c", None)), (("", 0),)),
        lambda v: f"map({', '.join(f'{_text(key)}, {_listed([n])}' for key, n in v)})",
    ),
}
"""What a table has some of."""
KINDS: dict[str, Kind] = DRAWN | {
    "BIGINT": Kind(pa.int64(), (), lambda v: f"CAST({v} AS BIGINT)"),
    "INT": Kind(pa.int32(), (), lambda v: f"CAST({v} AS INT)"),
    "STRING": Kind(pa.string(), (), _text),
}
FOR_PARTITIONS = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BOOLEAN")


def as_arrow(kind: str, values: Sequence[Any]) -> pa.Array:
    """Values of the model as Arrow's; a time is one of UTC."""
    return pa.array(values, KINDS[kind].arrow)


def as_model(value: Any) -> Any:
    """A value that a reader gave, as the model has it."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    if isinstance(value, list):
        return tuple(sorted(value) if value and isinstance(value[0], tuple) else value)
    return value
