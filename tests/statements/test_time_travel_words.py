"""Versions and times behind a table's name: read as Delta reads them, or refused with what to write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duckrun import InvalidConfig, ReadSpec, VersionNotReadable
from duckrun.session import Session
from duckrun.values.rows import DeleteSpec, UpdateSpec, WriteSpec
from duckrun.values.tables import OptimizeSpec
from tests.lake import rows_of


@pytest.fixture
def twice(session: Session) -> Session:
    session.sql("create table main.p as select 1 as id")
    session.sql("insert into main.p values (2)")
    return session


def _digits(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"


def test_a_version_or_a_time_of_17_digits_behind_a_name_is_read(twice: Session) -> None:
    first, second = sorted(each["timestamp"] for each in twice.table("main.p").history())
    between = datetime.fromtimestamp((first + second) / 2000, UTC)
    for dialect in ("spark", "duckdb"):
        for word, expected in (
            ("v0", 1),
            ("V1", 2),
            (_digits(between), 1),
            (_digits(datetime.now(UTC) + timedelta(days=1)), 2),
        ):
            query = f"select count(*) as n from main.p@{word}"
            assert rows_of(twice.sql(query, dialect=dialect)) == [(expected,)], (dialect, word)
        with pytest.raises(VersionNotReadable, match="2020-01-01"):
            twice.sql("select * from main.p@20200101000000000", dialect=dialect).collect()


@pytest.mark.parametrize(
    "words", ["p@anything", "p@ v0", "p @v0", "p @ v0", "p@v", "p@v0x", "p@2020", "p@20201301000000000", "p@'v0'"]
)
def test_another_word_behind_the_sign_is_refused(duck: Session, words: str) -> None:
    duck.sql("create table main.p as select 1 as id")
    with pytest.raises(InvalidConfig, match="as orders@v3, or a time of 17 digits"):
        duck.sql(f"select * from main.{words}", dialect="spark")
    with pytest.raises(InvalidConfig):
        duck.sql(f"select * from main.{words}").collect()


@pytest.mark.parametrize("time", ["'soon'", "''", "timestamp 'soon'", "'2024-13-01'", "1", "null", "id"])
def test_what_is_no_time_is_refused_with_how_to_write_one(duck: Session, time: str) -> None:
    duck.sql("create table main.p as select 1 as id")
    with pytest.raises((InvalidConfig, VersionNotReadable), match=r"p: .* is no time\..*2026-01-31 12:00:00"):
        duck.sql(f"select * from main.p at (timestamp => {time})").collect()


@pytest.mark.parametrize(
    "spec",
    [
        lambda **k: ReadSpec(predicate="id = 1", **k),
        lambda **k: DeleteSpec("id = 1", **k),
        lambda **k: UpdateSpec({"id": "1"}, "id = 1", **k),
        lambda **k: WriteSpec("replace", predicate="id = 1", **k),
        lambda **k: OptimizeSpec(predicate="id = 1", **k),
    ],
)
def test_an_unknown_dialect_is_refused_when_a_spec_is_made(spec: Any) -> None:
    with pytest.raises(InvalidConfig, match="dialect is 'sparc'; it takes one of duckdb, spark. Did you mean 'spark'"):
        spec(dialect="sparc")
