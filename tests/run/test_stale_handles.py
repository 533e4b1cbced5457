"""What is kept between two calls, after something happened to its table: the rows of the model, or a named error.

`make test` takes a twelfth of the pairs by its seed, and some of the other cases (12 seconds together); all take three minutes (``DUCKRUN_TEST_ALL=1``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import Frame, ReadSpec, Session, VersionNotReadable, WriteSpec
from duckrun.cli import main as command
from duckrun.run.pins import Pins
from tests.stale import check, pairs


@pytest.mark.drawn(12)
@pytest.mark.parametrize(
    ("lake_format", "handle", "event"), [(form, *pair) for form in ("delta", "ducklake") for pair in pairs(form)]
)
def test_a_handle_gives_the_rows_of_the_model_or_a_named_error(
    root: Path, lake_format: str, handle: str, event: str
) -> None:
    with duckrun.connect(root, format=lake_format) as session:
        check(session, lake_format, handle, event)


ONE = pa.table({"id": [1], "v": ["a"]})
TWO = pa.table({"id": [7], "v": ["n"]})


def _create_again(session: Session) -> None:
    session.sql("drop table t")
    session.execute("main.t", WriteSpec("error"), TWO)


@pytest.mark.parametrize(
    "frame_of",
    [
        lambda s: s.table("t").toDF(version=0),
        lambda s: s.sql("select * from t at (version => 0)"),
        lambda s: s.sql("select a.* from t as a join other as b on a.id = b.id").limit(1),
        lambda s: s.open(s.table("t").snapshot().scan()),
        lambda s: s.read.table("t"),
    ],
    ids=["toDF", "at version", "join", "scan", "reader"],
)
def test_a_frame_of_a_table_that_is_created_again_is_an_error_wherever_it_goes(
    root: Path, frame_of: Callable[[Session], Frame]
) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("error"), ONE)
        session.execute("main.other", WriteSpec("error"), ONE)
        frame = frame_of(session)
        frame.createOrReplaceTempView("of_it")
        lazy = frame.pl(lazy=True)
        _create_again(session)
        again = "Table main.t was dropped and created again since its version 0"
        for use in (
            frame.collect,
            frame.count,
            lazy.collect,
            lambda: frame.pl(lazy=True),
            lambda: frame.native,
            lambda: session.sql("select count(*) from of_it"),
            lambda: session.sql("insert into other select * from of_it"),
            lambda: frame.write.mode("append").saveAsTable("main.other"),
            lambda: session.execute("main.other", WriteSpec("append"), frame),
        ):
            with pytest.raises(VersionNotReadable, match=again):
                use()
        assert session.table("other").toDF().collect() == ONE.to_pylist()
        assert session.table("t").toDF().collect() == TWO.to_pylist()


def test_a_run_does_not_read_a_table_that_another_one_created_again(root: Path) -> None:
    with duckrun.connect(root) as other:
        other.execute("main.t", WriteSpec("error"), ONE)
        with duckrun.connect(root, pins=Pins(other.lakes)) as run:
            assert run.sql("select * from t").collect() == ONE.to_pylist()
            _create_again(other)
            with pytest.raises(VersionNotReadable, match="created again since its version 0.*read again and repeat"):
                run.sql("create table copied as select * from t")
            assert run.tables() == ["main.t"]


def test_a_temporary_table_keeps_its_rows_when_its_source_is_created_again(root: Path) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("error"), ONE)
        session.sql("create temp table kept as select * from t")
        _create_again(session)
        assert session.sql("select * from kept").collect() == ONE.to_pylist()


REPLACED = [("delete", 1), ("insert", 7)]


def _changed(session: Session, version: int, table_id: str) -> list[tuple[str, int]]:
    by_name = session.table("t").changes("min_delta", version, key="id", table_id=table_id)
    query = f"from changes('t', 'min_delta', {version}, key => 'id', table_id => '{table_id}')"
    answers = [
        sorted((row["_change_type"], row["id"]) for row in rows.collect()) for rows in (by_name, session.sql(query))
    ]
    assert answers[0] == answers[1]
    return answers[0]


@pytest.mark.drawn(4)
@pytest.mark.parametrize("kind", ["append_only", "upsert", "min_delta", "full_delta"])
@pytest.mark.parametrize("commits", [1, 3])
def test_changes_since_a_version_of_an_older_table_are_refused(
    root: Path, kind: Any, commits: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("error"), ONE)
        session.sql("insert into t values (2, 'b')")
        seen = session.table("t").changes(kind, -1, key="id")
        _create_again(session)
        for number in range(1, commits):
            session.sql(f"insert into t values ({number}, 'x')")
        place = (seen.to_version, seen.table_id)
        again = (
            "main.t: it is another table now than the one that was read up to version 1.*from_version -1.*full refresh"
        )
        with pytest.raises(VersionNotReadable, match=again):
            session.table("t").changes(kind, place[0], key="id", table_id=place[1])
        with pytest.raises(VersionNotReadable, match=again):
            session.sql(f"from changes('t', '{kind}', {place[0]}, key => 'id', table_id => '{place[1]}')")
        with pytest.raises(SystemExit):
            command(["changes", "--root", str(root), "t", kind, "--from-version", "1", "--table-id", place[1]])
        assert "it is another table now" in capsys.readouterr().err
        anew = session.table("t").changes(kind, -1, key="id")
        assert anew.table_id == session.table("t").snapshot().table_id != place[1]
        assert anew.count() == commits


@pytest.mark.drawn(3)
@pytest.mark.parametrize("kind", ["delta", "ducklake"])
@pytest.mark.parametrize(
    "how", ["create or replace table t as", "insert overwrite t", "overwrite", "drop and create", "swap"]
)
def test_a_replaced_table_gives_the_deletes_of_its_old_rows(root: Path, kind: str, how: str) -> None:
    with duckrun.connect(root, format=kind) as session:
        session.execute("main.t", WriteSpec("error"), ONE)
        seen = session.table("t").snapshot()
        rows = "select 7::bigint as id, 'n' as v"
        if how == "overwrite":
            session.execute("main.t", WriteSpec("overwrite"), TWO)
        elif how == "drop and create":
            _create_again(session)
        elif how == "swap":
            session.sql(f"create table u as {rows}; alter table t rename to gone; alter table u rename to t")
        else:
            session.sql(f"{how} {rows}")
        if kind == "delta" and how in ("drop and create", "swap"):
            with pytest.raises(VersionNotReadable, match=r"main\.t: it is another table now"):
                _changed(session, seen.version, seen.table_id)
        else:
            assert _changed(session, seen.version, seen.table_id) == REPLACED


@pytest.mark.spark
@pytest.mark.parametrize(
    ("kind", "handle", "event"),
    [
        ("delta", "frame", "drop and create"),
        ("delta", "query", "drop and create"),
        ("delta", "temporary view", "drop and create"),
        ("delta", "query", "vacuum"),
        ("delta", "scan", "overwrite"),
        ("delta", "frame", "another schema"),
        ("delta", "changes", "drop"),
        ("ducklake", "query", "drop and create"),
        ("ducklake", "temporary view", "expire and cleanup"),
    ],
)
def test_a_handle_of_the_engine_spark(root: Path, spark: Any, kind: str, handle: str, event: str) -> None:
    with duckrun.connect(root, engine="spark", spark=spark, format=kind) as session:
        check(session, kind, handle, event)


@pytest.mark.spark
def test_a_version_before_a_replace_by_spark_is_still_read(root: Path, spark: Any) -> None:
    """Spark's CREATE OR REPLACE TABLE gives a table another id, and goes on with its log."""
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("error"), ONE)
        frame, snapshot = session.table("t").toDF(), session.table("t").snapshot()
        spark.sql(f"create or replace table delta.`{session.table('t').ref.location}` using delta as select 'x' as k")
        now = session.table("t").snapshot()
        assert now.table_id != snapshot.table_id
        assert frame.collect() == session.open(snapshot.scan()).collect() == ONE.to_pylist()
        assert session.open(now.scan(ReadSpec(version=0))).collect() == ONE.to_pylist()
        changed = session.table("t").changes("min_delta", 0, table_id=snapshot.table_id).collect()
        assert sorted((row["_change_type"], row["k"]) for row in changed) == [("delete", None), ("insert", "x")]
