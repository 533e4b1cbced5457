"""One alphabet for every suite that makes names, values or tables: what strangers' data has, and what engines trip over.

Names are those of schemas, tables, folders and columns; values are Python values with their DuckDB type. A suite that needs a
part of it picks by attribute, never by a list of its own, so that what one suite learns all others test.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

# -- names

PERCENT_NAMES = ("%", "100%", "x%41", "x%2Fy", "%C3%A9", "a%20b", "%%", "50%25")
"""Names that a path decoder changes: a table ``x%41`` is not the table ``xA``."""

SCRIPT_NAMES = ("é", "日本", "Ω", "имя", "عربى", "e\u0301", "😀", "straße", "ﬁ")
"""Names beyond ASCII: composed and decomposed accents, right to left, beyond the basic plane, a ligature."""

PUNCTUATION_NAMES = (
    "a b",
    "a.b",
    "a,b",
    "a;b",
    "a'b",
    'a"b',
    "a`b",
    "a$b",
    "a#b",
    "a&b",
    "a+b",
    "a=b",
    "a@b",
    "a~b",
    "a(b)",
    "{a}",
    "a!b",
    "a|b",
    "a^b",
    "-a",
    "a-b",
)
GLOB_NAMES = ("a[b]", "a*b", "a?b", "[", "]", "*")
CONTROL_NAMES = ("a\nb", "a\rb", "a\tb", "a\x00b", "a\x7fb")
RESERVED_NAMES = ("select", "table", "order", "values", "from", "user", "default", "group", "true", "null")
DOTTED_NAMES = (".hidden", "..", ".", "a.", "a..b")
INTERNAL_COLUMNS = (
    "__duckrun_file", "__duckrun_row", "__duckrun_action", "__duckrun_here", "__duckrun_index", "filename", "file_row_number", "rowid",
    "source", "target", "_row_id", "_metadata",
)  # fmt: skip
"""Column names that engines or our own queries add, or use as an alias."""

LONG_NAMES = ("n", "n" * 200, "é" * 100)
"""One byte, and as many as a folder name takes on every file system with room for what is put beside it."""

TABLE_NAMES = (
    *PERCENT_NAMES,
    *SCRIPT_NAMES,
    *(n for n in PUNCTUATION_NAMES if n not in ("a.b",)),
    *RESERVED_NAMES,
    *LONG_NAMES,
)
COLUMN_NAMES = (
    *PERCENT_NAMES,
    *SCRIPT_NAMES,
    *RESERVED_NAMES,
    *INTERNAL_COLUMNS,
    "a.b",
    "a'b",
    'a"b',
    "a`b",
    "x" * 200,
)

# -- values


@dataclass(frozen=True)
class Value:
    """A Python value with the DuckDB type of a column that holds it."""

    kind: str
    value: Any

    def __repr__(self) -> str:
        return f"{self.kind}-{str(self.value)[:24]!r}"


TEXTS = (
    "a", " ", "a b", " a", "a ", "NULL", "null", "__HIVE_DEFAULT_PARTITION__", "é", "e\u0301", "日本", "😀", "'", '"', "`", "\\", "a/b", "a\\b", "a=b", "%", "%20",
    "a%2Fb", "100%", "x%41", "a+b", "a&b", "a#b", "a?b", "a:b", "a*b", "a[b]", "a\nb", "a\rb", "a\tb", "..", ".", "-", "_x", "true", "1", "1.0", "2020-01-01", "\U0010ffff",
    "\U0010ffff" * 33, "x" * 33, "x" * 300,
)  # fmt: skip
"""Texts as values of a column; the empty text is apart (EMPTY), since a partition cannot hold it."""

EMPTY = ""
NULLABLE: None = None

_NIGHT = timezone(timedelta(hours=5, minutes=30))
TIMES = (
    datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2020, 2, 29, 12, 0, 0, 1), datetime(1, 1, 1), datetime(1582, 10, 15),
    datetime(1900, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(2021, 3, 28, 2, 30),
)  # fmt: skip
DATES = (date(1970, 1, 1), date(1, 1, 1), date(1582, 10, 4), date(2020, 2, 29), date(9999, 12, 31))
FLOATS = (
    0.0,
    -0.0,
    1.0,
    0.1,
    -1.5,
    1e-300,
    1e300,
    5e-324,
    1.7976931348623157e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e16,
    123456789.125,
)
DECIMALS = (
    Decimal("0.00"),
    Decimal("1.00"),
    Decimal("-1.10"),
    Decimal("123456789012345678.91"),
    Decimal("99999999999999999999999999999999999.99"),
)
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63))
BLOBS = (b"a", b"\x00", b"\xff\xfe", b"a\x00b", "é".encode(), b"%41")

VALUES = (
    *(Value("VARCHAR", text) for text in TEXTS),
    *(Value("BIGINT", number) for number in INTEGERS),
    *(Value("INTEGER", number) for number in INTEGERS if -(2**31) <= number < 2**31),
    *(Value("DOUBLE", number) for number in FLOATS),
    *(Value("FLOAT", number) for number in (0.0, 1.0, 0.1, -2.5, float("inf"), float("nan"))),
    *(Value("DECIMAL(38,2)", number) for number in DECIMALS),
    *(Value("DECIMAL(5,2)", number) for number in (Decimal("0.00"), Decimal("1.00"), Decimal("-1.10"))),
    *(Value("DATE", day) for day in DATES),
    *(Value("TIMESTAMP", moment) for moment in TIMES),
    *(Value("TIMESTAMPTZ", moment.replace(tzinfo=UTC)) for moment in TIMES),
    Value("TIMESTAMPTZ", datetime(2020, 2, 29, 12, tzinfo=_NIGHT)),
    *(Value("BOOLEAN", flag) for flag in (True, False)),
    *(Value("BLOB", raw) for raw in BLOBS),
)
"""Values of every type that can be a partition's, with the edges of each."""

VOLATILE_PREDICATES = (
    "random() < 0.5", "random() < 0.5 and id >= 0", "id in (select id from (select id from {table} using sample 50 rows))", "expires < now()",
    "expires < current_timestamp", "uuid()::varchar < '8'", "id % 2 = (random() * 2)::int", "exists (select 1 where random() < 0.5)",
)  # fmt: skip
"""Predicates that give another answer when they are asked again; over columns ``id`` and ``expires`` of ``{table}``."""
