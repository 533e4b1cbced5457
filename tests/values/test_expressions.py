"""Predicates, conditions and values of specs: each is exactly one expression, and an empty one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    DeleteInsertSpec,
    DeleteSpec,
    InvalidConfig,
    MergeClause,
    MergeSpec,
    OptimizeSpec,
    ReadSpec,
    Session,
    UpdateSpec,
    WriteSpec,
)
from duckrun.values.applying import ApplySpec
from duckrun.values.tables import PurgeSpec, VacuumSpec
from tests.lake import rows_of

MAKERS: dict[str, Callable[..., Any]] = {
    "read": lambda text, **words: ReadSpec(predicate=text, **words),
    "replace": lambda text, **words: WriteSpec("replace", predicate=text, **words),
    "within": lambda text, **words: WriteSpec("append", within=text, **words),
    "merge on": lambda text, **words: MergeSpec(("id",), on=text, **words),
    "merge within": lambda text, **words: MergeSpec(("id",), within=text, **words),
    "clause": lambda text, **words: MergeSpec(("id",), (MergeClause("matched_update", text),), **words),
    "clause value": lambda text, **words: MergeSpec(
        ("id",), (MergeClause("matched_update", set={"v": text}),), **words
    ),
    "delete+insert": lambda text, **words: DeleteInsertSpec(("id",), predicate=text, **words),
    "delete": lambda text, **words: DeleteSpec(text, **words),
    "update": lambda text, **words: UpdateSpec({"v": "1"}, text, **words),
    "update value": lambda text, **words: UpdateSpec({"v": text}, **words),
    "optimize": lambda text, **words: OptimizeSpec(text, **words),
    "purge": lambda text, **words: PurgeSpec(text, **words),
    "apply": lambda text, **words: ApplySpec(("id",), "at", deletes=text, **words),
}
NO_EXPRESSIONS = [
    "",
    "  \n",
    "id = 1 limit 1",
    "id = 1 order by id",
    "id = 1 group by id",
    "id = 1 qualify true",
    "id = 1 union all select 1",
    "id = 1; delete from t",
    "id = 1) or (1 = 1",
    "id = 1, id = 2",
    "(id = 1",
    "id = = 1",
    "-- id = 1",
]
EXPRESSIONS = ["id = 1", "(id = 1)", "note = ') limit 1; '", "id in (1, 2) -- both", "id between 1 and 2 or v is null"]


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("text", NO_EXPRESSIONS)
def test_a_text_that_is_not_one_expression_is_refused_by_every_spec(maker: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is empty|is not one expression"):
        MAKERS[maker](text)


@pytest.mark.parametrize("text", ["", "id = 1; select 1", "id = 1) or (1 = 1", "(id = 1"])
def test_a_text_in_sparks_dialect_is_one_expression_too(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"is empty|is not one expression"):
        DeleteSpec(text, dialect="spark")


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_taken_as_it_is(text: str, dialect: str) -> None:
    assert ReadSpec(predicate=text, dialect=dialect).predicate == text
    assert DeleteSpec(text, dialect=dialect).predicate == text


def test_a_predicate_that_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="ReadSpec: predicate is 1, an int; give text"):
        ReadSpec(predicate=1)  # type: ignore[arg-type]


@pytest.mark.formats(1)
def test_an_update_with_an_empty_predicate_changes_no_row(session: Session) -> None:
    session.execute("main.t", WriteSpec("error"), pa.table({"id": [1, 2], "v": [1, 2]}))
    with pytest.raises(InvalidConfig, match=r"main\.t: the predicate is empty"):
        session.table("t").changes("min_delta", 0, key=["id"], predicate="").collect()
    with pytest.raises(InvalidConfig, match="predicate is empty"):
        session.execute("main.t", UpdateSpec({"v": "9"}, ""))
    assert rows_of(session.scan("main.t")) == [(1, 1), (2, 2)]


@pytest.mark.parametrize("columns", [(), ("id", "id"), ("id", "ID")])
def test_a_read_names_each_column_once_and_at_least_one(columns: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfig, match=r"no column|twice"):
        ReadSpec(columns=columns)


@pytest.mark.formats(1)
def test_numbers_that_cannot_be_meant_are_refused(duck: Session) -> None:
    duck.execute("main.t", WriteSpec("error"), pa.table({"id": [1]}))
    table = duck.table("t")
    for refused in (
        lambda: table.snapshot(version=-1),
        lambda: table.toDF(version=-1),
        lambda: table.restoreToVersion(-1),
        lambda: table.cloneAtVersion(-1, "main.u"),
        lambda: table.history(-1),
        lambda: table.vacuum(float("nan")),
        lambda: table.vacuum(float("inf")),
        lambda: VacuumSpec(-1),
        lambda: table.snapshot(version=0, timestamp="2026-01-01"),
    ):
        with pytest.raises(InvalidConfig):
            refused()
    assert duck.tables() == ["main.t"]


@pytest.mark.formats(1)
def test_a_scan_of_a_snapshot_reads_the_version_that_its_spec_names(session: Session) -> None:
    versions = [session.execute("main.t", WriteSpec("append"), pa.table({"id": [i]})).version for i in (1, 2)]
    snapshot = session.table("t").snapshot()
    assert rows_of(session.open(snapshot.scan(ReadSpec(version=versions[0])))) == [(1,)]
    assert rows_of(session.open(snapshot.scan(ReadSpec(version=versions[1])))) == [(1,), (2,)]
    for absent in (ReadSpec(version=99), ReadSpec(timestamp="2001-01-01")):
        with pytest.raises(duckrun.VersionNotReadable):
            snapshot.scan(absent)
