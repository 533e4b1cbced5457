"""What the suite of slices is made of: kinds of partitions, ways to write, and a model of what a table is after one.

A row of the model knows the partition that it was made for, so that nothing here asks code of ours where a row belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa

from tests.alphabet import PERCENT_NAMES, SCRIPT_NAMES

# ---------------------------------------------------------------- kinds of partitions

Columns = tuple[Any, ...]
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Kind:
    """A kind of partitions: four keys in a row, the values of the partition columns at both ends of each, and values that
    are in no partition. A run writes the second partition, or the second and the third.
    """

    name: str
    definition: Callable[[], dg.PartitionsDefinition]
    keys: tuple[str, ...]
    ends: Mapping[str, tuple[Columns, Columns]]
    strays: tuple[Columns, ...]
    types: tuple[pa.DataType, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return ("part", "store")[: len(self.types)]

    @property
    def partition_expr(self) -> Any:
        return "part" if len(self.types) == 1 else {"day": "part", "shop": "store"}

    def instance(self) -> dg.DagsterInstance:
        """An instance that knows the dynamic partitions."""
        made = dg.DagsterInstance.ephemeral()
        made.add_dynamic_partitions("slices", list(DYNAMIC))
        return made


def _timed(
    name: str,
    definition: Callable[[], Any],
    kind: pa.DataType,
    of: Callable[[datetime], Any],
    stray: Any,
    first: int = 1,
) -> Kind:
    """Four partitions of a time window, and what their first and last microseconds are in the column."""
    made = definition()
    keys = tuple(made.get_partition_keys()[first : first + 4])
    windows = [made.time_window_for_partition_key(key) for key in keys]
    ends = {
        key: ((of(window.start),), (of((window.end.astimezone(UTC) - MICROSECOND).astimezone(window.end.tzinfo)),))
        for key, window in zip(keys, windows, strict=True)
    }
    return Kind(name, definition, keys, ends, ((None,), (stray,)), (kind,))


def _listed(name: str, definition: Callable[[], Any], keys: Sequence[str], kind: pa.DataType, stray: Any) -> Kind:
    values = {key: int(key) if pa.types.is_integer(kind) else key for key in keys}
    return Kind(
        name, definition, tuple(keys), {k: ((v,), (v,)) for k, v in values.items()}, ((None,), (stray,)), (kind,)
    )


def _grid(
    days: Any, day_keys: Sequence[str], of: Callable[[str], Any], kind: pa.DataType, name: str, shops: Any
) -> Kind:
    def definition() -> dg.MultiPartitionsDefinition:
        return dg.MultiPartitionsDefinition({"day": days, "shop": shops})

    pairs = [(day_keys[0], "one"), (day_keys[1], "one"), (day_keys[1], "two"), (day_keys[1], "three")]
    made = {dg.MultiPartitionKey({"day": day, "shop": shop}): (of(day), shop) for day, shop in pairs}
    first, shop = made[next(iter(made))]
    return Kind(
        name,
        definition,
        tuple(made),
        {key: (values, values) for key, values in made.items()},
        ((None, None), (first, None), (None, shop), (first, "no shop"), (of(day_keys[1]), "no shop")),
        (kind, pa.string()),
    )


DYNAMIC = ("one", "two", "three", "four")
STATIC = ("it's", PERCENT_NAMES[3], SCRIPT_NAMES[0], SCRIPT_NAMES[1])
INSTANT, NAIVE = pa.timestamp("us", "UTC"), pa.timestamp("us")
NEW_YORK, LONG_AGO = "America/New_York", datetime(1999, 1, 1)
SHOPS = dg.StaticPartitionsDefinition(["one", "two", "three"])


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _clock(moment: datetime) -> datetime:
    return moment.replace(tzinfo=None)


KINDS = (
    _timed("days, dates", lambda: dg.DailyPartitionsDefinition("2024-02-26"), pa.date32(), datetime.date, date(1999, 1, 1)),
    _timed("days, texts", lambda: dg.DailyPartitionsDefinition("2024-02-26"), pa.string(), lambda m: f"{m:%Y-%m-%d}", "none"),
    _timed(
        "days of New York, instants",
        lambda: dg.DailyPartitionsDefinition("2024-03-08", timezone=NEW_YORK),
        INSTANT,
        _utc,
        LONG_AGO.replace(tzinfo=UTC),
    ),
    _timed(
        "days that begin at 6:30, timestamps",
        lambda: dg.DailyPartitionsDefinition("2024-02-26", hour_offset=6, minute_offset=30),
        NAIVE,
        _clock,
        LONG_AGO,
    ),
    _timed(
        "hours of a day with 25, instants",
        lambda: dg.HourlyPartitionsDefinition("2023-11-05-00:00", "2023-11-07-00:00", timezone=NEW_YORK),
        INSTANT,
        _utc,
        LONG_AGO.replace(tzinfo=UTC),
        first=0,
    ),
    _timed(
        "hours of a day with 23, instants",
        lambda: dg.HourlyPartitionsDefinition("2024-03-10-00:00", "2024-03-12-00:00", timezone=NEW_YORK),
        INSTANT,
        _utc,
        LONG_AGO.replace(tzinfo=UTC),
        first=0,
    ),
    _timed("weeks, timestamps", lambda: dg.WeeklyPartitionsDefinition("2024-02-18"), NAIVE, _clock, LONG_AGO),
    _timed("months, dates", lambda: dg.MonthlyPartitionsDefinition("2023-11-01"), pa.date32(), datetime.date, date(1999, 1, 1)),
    _timed(
        "months, whole numbers",
        lambda: dg.MonthlyPartitionsDefinition("202311", fmt="%Y%m"),
        pa.int64(),
        lambda m: int(f"{m:%Y%m}"),
        199901,
    ),
    _listed("static, texts", lambda: dg.StaticPartitionsDefinition(list(STATIC)), STATIC, pa.string(), "none of them"),
    _listed("static, numbers", lambda: dg.StaticPartitionsDefinition(["7", "8", "-9", "10"]), ("7", "8", "-9", "10"), pa.int32(), 11),
    _listed("dynamic", lambda: dg.DynamicPartitionsDefinition(name="slices"), DYNAMIC, pa.string(), "five"),
    _grid(
        dg.DailyPartitionsDefinition("2024-02-28"),
        ("2024-02-28", "2024-02-29"),
        date.fromisoformat,
        pa.date32(),
        "days and shops",
        SHOPS,
    ),
    _grid(
        dg.HourlyPartitionsDefinition("2023-11-05-00:00", "2023-11-07-00:00", timezone=NEW_YORK),
        ("2023-11-05-01:00", "2023-11-05-01:00-0500"),
        lambda key: datetime(2023, 11, 5, 1, 30, fold="-0500" in key, tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC),
        INSTANT,
        "hours that a clock repeats, and shops",
        SHOPS,
    ),
    _grid(
        dg.StaticPartitionsDefinition(["7", "8"]), ("7", "8"), int, pa.int64(), "numbers and dynamic shops",
        dg.DynamicPartitionsDefinition(name="slices"),
    ),
)  # fmt: skip


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class Row:
    """``partition`` is the key that the row was made for, None for one of no partition."""

    id: int
    v: int
    columns: Columns
    partition: str | None

    @property
    def values(self) -> tuple[Any, ...]:
        return (self.id, self.v, *self.columns)


def table_of(kind: Kind, rows: Sequence[Row]) -> pa.Table:
    types = (pa.int64(), pa.int64(), *kind.types)
    columns = list(zip(*(row.values for row in rows), strict=True)) or [()] * len(types)
    arrays = [pa.array(column, of) for column, of in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["id", "v", *kind.columns])


def rows_before(kind: Kind) -> list[Row]:
    """Id 1 is in every partition and in none, 10 to 13 in one partition each, 90 and up in none."""
    rows = []
    for number, key in enumerate(kind.keys):
        first, last = kind.ends[key]
        rows += [Row(1, number, first, key), Row(10 + number, 10 * number + 1, last, key)]
    for number, stray in enumerate(kind.strays):
        rows += [Row(1, 5, stray, None), Row(90 + number, 50 + number, stray, None)]
    return rows


def rows_written(kind: Kind, keys: Sequence[str]) -> list[Row]:
    """Ids that are in the run's partitions, in another one, in none, and nowhere; each once."""
    begin, end = kind.ends[keys[0]][0], kind.ends[keys[-1]][1]
    first, last = keys[0], keys[-1]
    return [
        Row(1, 100, begin, first),
        Row(11, 110, end, last),
        Row(13, 130, end, last),
        Row(90, 900, begin, first),
        Row(50, 500, begin, first),
    ]


# ---------------------------------------------------------------- ways to write

Test = Callable[[Row | None, Row | None], bool]


@dataclass(frozen=True)
class Clause:
    """A clause of a merge in SQL, and the same in Python over a row of the table and one of the source."""

    kind: str
    condition: str | None = None
    test: Test = lambda t, s: True
    set: Mapping[str, str] | None = None
    value: Callable[[Any, Any], int] | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        given = {"kind": self.kind, "condition": self.condition, "set": self.set}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True)
class Way:
    """How an asset is written; ``whole_key`` matches by the partition columns too."""

    name: str
    mode: str | None
    whole_key: bool = False
    clauses: tuple[Clause, ...] = field(default_factory=tuple)

    def metadata(self, kind: Kind) -> dict[str, Any]:
        found: dict[str, Any] = {"partition_expr": kind.partition_expr}
        if self.mode is not None:
            found["mode"] = self.mode
        if self.mode in ("merge", "delete+insert"):
            found["merge_keys"] = ["id", *(kind.columns if self.whole_key else ())]
        if self.clauses:
            found["merge_clauses"] = [clause.metadata for clause in self.clauses]
        return found

    def key(self, row: Row) -> tuple[Any, ...]:
        return (row.id, *row.columns) if self.whole_key else (row.id,)

    def after(self, table: Sequence[Row], source: Sequence[Row], keys: Sequence[str]) -> list[Row]:
        """What a table is after a run of these partitions: rows of others and of none are as they were."""
        inside = [row for row in table if row.partition in keys]
        others = [row for row in table if row.partition not in keys]
        if self.mode == "append":
            return [*table, *source]
        if self.mode == "delete+insert":
            gone = {self.key(row) for row in source}
            return [*others, *(row for row in inside if self.key(row) not in gone), *source]
        return [*others, *(self._merged(inside, source) if self.mode == "merge" else source)]

    def _merged(self, inside: Sequence[Row], source: Sequence[Row]) -> list[Row]:
        by_key = {self.key(row): row for row in source}
        found: list[Row] = []
        for row in inside:
            new = by_key.get(self.key(row))
            side = "not_matched_by_source" if new is None else "matched"
            clause = self._first(side, row, new)
            if clause is None:
                found.append(row)
            elif not clause.kind.endswith("delete"):
                found.append(self._made(clause, row, new))
        met = {self.key(row) for row in inside}
        for new in source:
            clause = self._first("not_matched", None, new) if self.key(new) not in met else None
            if clause is not None:
                found.append(self._made(clause, None, new))
        return found

    def _first(self, side: str, row: Row | None, new: Row | None) -> Clause | None:
        clauses = self.clauses or (Clause("matched_update"), Clause("not_matched_insert"))
        return next((c for c in clauses if c.kind.rpartition("_")[0] == side and c.test(row, new)), None)

    def _made(self, clause: Clause, row: Row | None, new: Row | None) -> Row:
        base = row if clause.value is not None and row is not None else new
        assert base is not None
        return base if clause.value is None else replace(base, v=clause.value(row, new))


UPDATE, INSERT, DELETE = Clause("matched_update"), Clause("not_matched_insert"), Clause("matched_delete")
ADDED = Clause("matched_update", set={"v": "target.v + source.v"}, value=lambda t, s: t.v + s.v)
SOME = Clause("matched_update", "source.v > 100", lambda t, s: s.v > 100)  # type: ignore[union-attr]
SOME_GONE = Clause("matched_delete", "source.v <= 100", lambda t, s: s.v <= 100)  # type: ignore[union-attr]
SOME_NEW = Clause("not_matched_insert", "source.v < 900", lambda t, s: s.v < 900)  # type: ignore[union-attr]
REST_GONE = Clause("not_matched_by_source_delete")
REST_SOME_GONE = Clause("not_matched_by_source_delete", "target.v % 2 = 1", lambda t, s: t.v % 2 == 1)  # type: ignore[union-attr]
REST_MARKED = Clause("not_matched_by_source_update", set={"v": "-target.v"}, value=lambda t, s: -t.v)
REST_SOME_MARKED = Clause(
    "not_matched_by_source_update", "target.v > 1", lambda t, s: t.v > 1, {"v": "-1"}, lambda t, s: -1  # type: ignore[union-attr]
)  # fmt: skip

MERGES = {
    "upsert": (),
    "insert": (INSERT,),
    "update": (UPDATE,),
    "update by an expression, insert": (ADDED, INSERT),
    "delete": (DELETE,),
    "delete some, update some, insert some": (SOME_GONE, SOME, SOME_NEW),
    "upsert, delete the rest": (UPDATE, INSERT, REST_GONE),
    "insert, delete some of the rest": (INSERT, REST_SOME_GONE),
    "upsert, mark the rest": (UPDATE, INSERT, REST_MARKED),
    "update, mark some of the rest, delete the rest": (ADDED, REST_SOME_MARKED, REST_GONE),
}
WAYS = (
    Way("by default", None),
    Way("replace", "replace"),
    Way("append", "append"),
    Way("delete+insert by id", "delete+insert"),
    Way("delete+insert by id and partition", "delete+insert", whole_key=True),
    *(Way(f"merge by id: {name}", "merge", clauses=clauses) for name, clauses in MERGES.items()),
    *(Way(f"merge by id and partition: {name}", "merge", True, clauses) for name, clauses in MERGES.items()),
)
