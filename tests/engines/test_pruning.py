"""Of the files of a table a change opens those that can hold its rows, by what the log says of them; the rows are right all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteInsertSpec, DeleteSpec, MergeSpec, Session, UpdateSpec, WriteSpec
from tests.lake import rows_of

FILES, EACH = 8, 10


@pytest.fixture(params=["copy_on_write", "deletion_vectors"])
def tens(duck: Session, request: pytest.FixtureRequest) -> Session:
    """A table of eight files: ids 0 to 9, 10 to 19, and so on."""
    properties = {"delta.enableDeletionVectors": str(request.param == "deletion_vectors").lower()}
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
    if changed:
        assert commit.files_pruned == FILES - opened


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
    assert tens.table("t").snapshot().version == FILES + 1


def test_a_predicate_ends_where_it_ends(tens: Session) -> None:
    """Also with a comment behind it, and whatever binds less than what stands around it."""
    assert tens.execute("t", DeleteSpec("id = 3 -- the third\n")).rows_deleted == 1
    assert tens.execute("t", DeleteSpec("id = 4 -- the fourth")).rows_deleted == 1
    assert tens.execute("t", UpdateSpec({"g": "0 -- none"}, "id = 5 OR id = 6 -- two")).rows_updated == 2
    given = _given(id=[7, 8], g=[70, 80])
    assert tens.execute("t", DeleteInsertSpec(("id",), predicate="id = 7 OR id = 8 -- both"), given).rows_deleted == 2
    assert tens.sql("SELECT count(*) AS n FROM t WHERE id < 10").collect() == [{"n": EACH - 2}]
