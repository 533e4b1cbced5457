"""The texts by which a log holds partition values, compared as the values that they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from duckrun.values.partition_values import typed

NTZ, TZ = pa.timestamp("us"), pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.int64(), ["1", "01", "+1", "1.0"]),
        (pa.float64(), ["1", "1.0", "1.00", "1E0", "1e0"]),
        (pa.float64(), ["1e-300", "1.0E-300", "0.1e-299"]),
        (pa.float64(), ["NaN", "nan"]),
        (pa.float64(), ["inf", "Infinity", "infinity"]),
        (pa.float64(), ["0", "-0.0", "0.0"]),
        (pa.float32(), ["1.1", "1.10000002384"]),
        (pa.decimal128(10, 2), ["1", "1.0", "1.00"]),
        (pa.bool_(), ["true", "TRUE", "True"]),
        (pa.date32(), ["2024-02-29"]),
        (pa.date32(), ["10000-01-01", "+10000-01-01"]),
        (pa.date32(), ["-0043-03-15", "0044-03-15 (BC)"]),
        (NTZ, ["2024-01-01 10:00:00", "2024-01-01T10:00:00", "2024-01-01 10:00:00.000000", "2024-01-01 10:00"]),
        (NTZ, ["2024-01-01 00:00:00", "2024-01-01"]),
        (TZ, ["2024-01-01 10:00:00", "2024-01-01T10:00:00.000000Z", "2024-01-01 11:00:00+01", "2024-01-01 04:30:00-05:30"]),
        (TZ, ["1969-12-31 23:59:59.999999", "1969-12-31T23:59:59.999999Z"]),
        (pa.string(), ["", None]),
        (pa.int64(), ["", None]),
    ],
)  # fmt: skip
def test_one_value_is_equal_however_it_is_spelled(kind: pa.DataType, texts: list[str | None]) -> None:
    assert len({typed(text, kind) for text in texts}) == 1


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.string(), ["1", "1.0", "01", " 1", "true", "TRUE", None]),
        (pa.int64(), ["1", "-1", "10", None]),
        (pa.float64(), ["1", "NaN", "inf", "-inf", "1e-300", "0", None]),
        (pa.decimal128(38, 2), ["123456789012345678.91", "123456789012345678.92"]),
        (NTZ, ["2024-01-01 10:00:00", "2024-01-01 10:00:00.000001", "2024-01-01 10:00:01", "2023-01-01 10:00:00"]),
        (TZ, ["2024-01-01 10:00:00+01", "2024-01-01 10:00:00-01", "2024-01-01 10:00:00"]),
        (pa.date32(), ["9999-12-31", "10000-01-01", "0001-01-01", "0001-01-01 (BC)"]),
        (pa.int64(), ["no number", "another", None]),
    ],
)
def test_other_values_differ(kind: pa.DataType, texts: list[str | None]) -> None:
    assert len({typed(text, kind) for text in texts}) == len(texts)
