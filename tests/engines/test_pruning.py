"""Of the files of a table a change opens those that can hold its rows, by what the log says of them; the rows are right all the same."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteInsertSpec, DeleteSpec, MergeSpec, Session, UpdateSpec, WriteSpec
from tests import lake
from tests.lake import nth, rows_of

pytestmark = pytest.mark.formats(10)

FILES, EACH = 8, 10


@pytest.fixture(params=["copy_on_write", "deletion_vectors"])
def tens(duck: Session, request: pytest.FixtureRequest) -> Session:
    """A table of eight files: ids 0 to 9, 10 to 19, and so on."""
    marked = str(request.param == "deletion_vectors").lower()
    properties = {"delta.enableDeletionVectors": marked} if lake.FORMAT == "delta" else {}
    duck.sql("CREATE TABLE t (id BIGINT, g BIGINT)")
    duck.execute("t", WriteSpec("overwrite", table_properties=properties), _tens(0))
    for n in range(1, FILES):
        duck.execute("t", WriteSpec("append"), _tens(n))
    return duck


def _tens(n: int) -> duckrun.SQL:
    return duckrun.SQL(f"SELECT range AS id, range % 7 AS g FROM range({n * EACH}, {n * EACH + EACH})")


def _given(**columns: list[int]) -> pa.Table:
    return pa.table(columns)


@pytest.mark.parametrize(
    ("spec", "source", "opened", "changed"),
    [
        (DeleteSpec("id = 25"), None, 1, {25: None}),
        (DeleteSpec("id >= 60 AND g = 4"), None, 2, {60: None, 67: None, 74: None}),
        (DeleteSpec("id > 1000 OR id IS NULL"), None, FILES, {}),
        (UpdateSpec({"g": "g + 100"}, "id BETWEEN 38 AND 41"), None, 2, {38: 103, 39: 104, 40: 105, 41: 106}),
        (MergeSpec(("id",)), _given(id=[33, 35], g=[1, 2]), 1, {33: 1, 35: 2}),
        (MergeSpec(("id",)), _given(id=[79, 80], g=[1, 2]), 1, {79: 1, 80: 2}),
        (DeleteInsertSpec(("id",)), _given(id=[33, 45], g=[1, 2]), 2, {33: 1, 45: 2}),
        (MergeSpec(("id",)), _given(id=[5, 75, 1000], g=[1, 2, 3]), 2, {5: 1, 75: 2, 1000: 3}),
        (DeleteInsertSpec(("id",)), _given(id=[5, 75], g=[1, 2]), 2, {5: 1, 75: 2}),
        (WriteSpec("replace", predicate="id > 76"), _given(id=[77], g=[50]), 1, {77: 50, 78: None, 79: None}),
    ],
    ids=lambda value: getattr(value, "mode", ""),
)
def test_files_that_cannot_hold_the_rows_stay_closed(
    tens: Session, spec: Any, source: Any, opened: int, changed: dict[int, int | None]
) -> None:
    commit = tens.execute("t", spec, source)
    expected = {i: i % 7 for i in range(FILES * EACH)} | changed
    assert dict(rows_of(tens.table("t").toDF())) == {i: g for i, g in expected.items() if g is not None}
    if changed and lake.FORMAT == "delta":  # DuckLake chooses the files itself
        assert commit.files_pruned == FILES - opened


KINDS = {
    "BIGINT": "range", "SMALLINT": "range::SMALLINT", "DATE": "DATE '1969-12-01' + range::INT", "VARCHAR": "'k' || lpad(range::VARCHAR, 4, '0')",
    "DECIMAL(9,2)": "range::DECIMAL(9,2)", "TIMESTAMP": "TIMESTAMP '1969-12-31' + INTERVAL 7 HOUR * range",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitioned", [False, True])
def test_keys_that_lie_here_and_there_are_merged_right(duck: Session, kind: str, partitioned: bool) -> None:
    """Random sets of keys, NULL among them, into files that overlap, some with vectors, one with nothing but NULL: against a model."""
    random, key = Random(f"{kind} {partitioned}"), KINDS[kind]
    duck.sql(f"CREATE TABLE t (k {kind}, g BIGINT, p BIGINT) {'PARTITIONED BY (p)' if partitioned else ''}")
    model: dict[int | None, int] = {}
    for n in range(12):
        first, many = n * 20 + random.randrange(8), random.randrange(1, 25)
        new = [i for i in range(first, first + many) if i not in model]
        duck.execute("t", WriteSpec("append"), _keyed(key, new, 0, n % 3))
        model |= dict.fromkeys(new, 0)
    duck.sql("INSERT INTO t VALUES (NULL, 0, 0)")
    duck.execute(
        "t", DeleteSpec("g = 0 AND p = 1 AND k IS NOT NULL AND hash(k) % 9 = 0", merge_mode="deletion_vectors")
    )
    left = {k for (k,) in _rows(duck, f"SELECT range FROM range(300) WHERE {key} IN (SELECT k FROM t)")}
    model = {k: g for k, g in model.items() if k in left}
    pruned = 0
    for n in range(1, 7):
        keys = random.sample(range(300), random.randrange(1, 5))
        commit = duck.execute("t", MergeSpec(("k",)), _keyed(key, keys, n, 2, null=n == 3))
        pruned += commit.files_pruned or 0
        model |= dict.fromkeys(keys, n)
    found = _rows(duck, f"SELECT r.range, t.g FROM t JOIN range(300) AS r ON {key.replace('range', 'r.range')} = t.k")
    assert sorted(found) == sorted(model.items()), (kind, partitioned)
    assert duck.sql("SELECT count(*) AS n FROM t WHERE k IS NULL").collect() == [{"n": 2}], "NULL is equal to no NULL"
    told = kind != "TIMESTAMP" and lake.FORMAT == "delta"  # bounds of moments may be cut to milliseconds
    assert pruned > 0 or not told


def _keyed(key: str, numbers: list[int], g: int, p: int, *, null: bool = False) -> duckrun.SQL:
    listed = ", ".join(map(str, numbers)) or "NULL"
    more = f" UNION ALL SELECT NULL, {g}, {p}" if null else ""
    return duckrun.SQL(f"SELECT {key} AS k, {g} AS g, {p} AS p FROM range(300) WHERE range IN ({listed}){more}")


def _rows(session: Session, query: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.sql(query).collect()]


@pytest.mark.only_format("delta", "figures out of the log")
def test_what_says_by_the_log_alone_which_files_go_opens_none(tens: Session) -> None:
    assert tens.execute("t", WriteSpec("append"), _given(id=[1], g=[1])).files_pruned is None
    assert tens.execute("t", DeleteSpec()).files_pruned == FILES + 1
    assert tens.table("t").history(1)[0]["operation"] == "DELETE"


def test_a_change_by_keys_of_another_table_joins_them(tens: Session) -> None:
    """Not row by row: a hundred thousand rows against as many are ten billion pairs."""
    many = 100_000
    tens.execute("big", WriteSpec("error"), duckrun.SQL(f"SELECT range AS id, 0 AS g FROM range({many})"))
    tens.execute("keys", WriteSpec("error"), duckrun.SQL(f"SELECT range * 2 AS k FROM range({many})"))
    assert tens.sql("UPDATE big SET g = 1 FROM keys WHERE big.id = keys.k").rows_updated == many // 2
    assert tens.sql("DELETE FROM big USING keys WHERE big.id = keys.k + 1").rows_deleted == many // 2
    assert tens.sql("SELECT count(*) AS n, sum(g) AS g FROM big").collect() == [{"n": many // 2, "g": many // 2}]


def test_a_failed_change_leaves_no_trace_in_the_session(tens: Session, root: Path) -> None:
    with pytest.raises(duckrun.errors.DuckrunError, match="does not fit"):
        tens.sql("UPDATE t SET g = CAST('x' || id AS BIGINT)")
    assert tens.sql("DELETE FROM t WHERE id = 3").rows_deleted == 1
    assert tens.table("t").snapshot().version == nth(FILES + 1)


def test_a_predicate_ends_where_it_ends(tens: Session) -> None:
    """Also with a comment behind it, and whatever binds less than what stands around it."""
    assert tens.execute("t", DeleteSpec("id = 3 -- the third\n")).rows_deleted == 1
    assert tens.execute("t", DeleteSpec("id = 4 -- the fourth")).rows_deleted == 1
    assert tens.execute("t", UpdateSpec({"g": "0 -- none"}, "id = 5 OR id = 6 -- two")).rows_updated == 2
    given = _given(id=[7, 8], g=[70, 80])
    assert tens.execute("t", DeleteInsertSpec(("id",), predicate="id = 7 OR id = 8 -- both"), given).rows_deleted == 2
    assert tens.sql("SELECT count(*) AS n FROM t WHERE id < 10").collect() == [{"n": EACH - 2}]
