"""Change queries over tables of features that the embedded engine wrote: by the ids of rows, and by names that changed in the range."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import AlterSpec, MergeSpec, Session, UpdateSpec, WriteSpec
from duckrun.values.choices import MERGE_MODES
from duckrun.values.rows import DeleteSpec
from duckrun.values.tables import SetProperties

TRACKED = {"delta.enableRowTracking": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
PRE, POST = "update_preimage", "update_postimage"


@pytest.fixture
def duck(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake") as session:
        yield session


def table(*rows: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [n for n, _ in rows], "v": [v for _, v in rows]})


def changes(session: Session, kind: Any, first: int, last: int, **options: Any) -> list[tuple[Any, ...]]:
    """Kind, id and value of each change, in the order of these."""
    rows = session.table("t").changes(kind, first, last, **options).toArrow().to_pylist()
    return sorted((row["_change_type"], row["id"], *(v for k, v in row.items() if k in ("v", "w"))) for row in rows)


def make(session: Session, *properties: dict[str, str]) -> None:
    merged = {key: value for each in properties for key, value in each.items()}
    session.execute("t", WriteSpec("error", table_properties=merged), table((1, "a"), (2, "b"), (3, "c"), (4, "d")))


@pytest.mark.parametrize("mode", MERGE_MODES)
@pytest.mark.parametrize("more", [{}, MAPPED | VECTORS], ids=["alone", "mapped"])
def test_an_update_is_an_update_by_the_ids_of_rows(duck: Session, mode: Any, more: dict[str, str]) -> None:
    make(duck, TRACKED, more)
    duck.execute("t", MergeSpec(("id",), merge_mode=mode), table((1, "A"), (5, "e")))
    duck.execute("t", UpdateSpec({"id": "id * 10"}, "id = 2", merge_mode=mode))
    duck.execute("t", DeleteSpec("id = 3", merge_mode=mode))
    duck.table("t").optimize().executeCompaction()
    newest = duck.snapshot("t").version
    wanted = [("delete", 3, "c"), ("insert", 5, "e"), (POST, 1, "A"), (POST, 20, "b"), (PRE, 1, "a"), (PRE, 2, "b")]
    assert changes(duck, "min_delta", 0, newest) == wanted
    assert changes(duck, "full_delta", 0, newest) == wanted
    assert changes(duck, "min_delta", 3, newest) == []
    duck.table("t").restoreToVersion(0)
    assert changes(duck, "min_delta", 0, duck.snapshot("t").version) == []
    back = changes(duck, "min_delta", newest, duck.snapshot("t").version)
    assert back == [
        ("delete", 5, "e"),
        ("insert", 3, "c"),
        (POST, 1, "a"),
        (POST, 2, "b"),
        (PRE, 1, "A"),
        (PRE, 20, "b"),
    ]


@pytest.mark.parametrize("feed", [{}, FEED], ids=["without a feed", "with a feed"])
def test_a_column_that_was_renamed_and_one_that_widened(duck: Session, feed: dict[str, str]) -> None:
    rows = duck.sql("SELECT CAST(i AS INTEGER) AS id, 'v' || i AS v FROM range(1, 4) AS r(i)")
    widens = {"delta.enableTypeWidening": "true"}
    duck.execute("t", WriteSpec("error", table_properties=MAPPED | TRACKED | widens | feed), rows)
    duck.execute("t", UpdateSpec({"v": "'before'"}, "id = 1"))
    duck.sql("ALTER TABLE t RENAME COLUMN v TO w")
    duck.sql("ALTER TABLE t ALTER COLUMN id TYPE BIGINT")
    duck.execute("t", UpdateSpec({"w": "'after'"}, "id = 2"))
    duck.sql("INSERT INTO t VALUES (3000000000, 'large')")
    wanted = [
        ("insert", 3000000000, "large"),
        (POST, 1, "before"), (POST, 2, "after"), (PRE, 1, "v1"), (PRE, 2, "v2"),
    ]  # fmt: skip
    newest = duck.snapshot("t").version
    for options in ({}, {"key": ["id"]}):
        assert changes(duck, "min_delta", 0, newest, **options) == wanted
        assert changes(duck, "full_delta", 0, newest, **options) == wanted


def test_a_table_that_began_to_track_its_rows_in_the_range(duck: Session) -> None:
    make(duck)
    duck.execute("t", AlterSpec((SetProperties(TRACKED),)))
    began = duck.snapshot("t").version
    duck.execute("t", UpdateSpec({"v": "'x'"}, "id = 4"))
    assert changes(duck, "min_delta", began, duck.snapshot("t").version) == [(POST, 4, "x"), (PRE, 4, "d")]
    assert changes(duck, "min_delta", 0, duck.snapshot("t").version, key=["id"]) == [(POST, 4, "x"), (PRE, 4, "d")]
