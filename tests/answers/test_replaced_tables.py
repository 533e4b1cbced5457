"""A table that is dropped and created again between the read and the commit of a write: none of the old table's rows come into the new one.

Whoever drops is plain deltalake, which takes no lock of ours. A quarter of the cases takes 2 s, half of those on Spark and on S3 15 s.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import CommitConflict, MergeSpec, Session, TableNotFound, WriteSpec
from duckrun.engines.spark.commit import SparkCommit
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.storage.storage import Storage
from tests.fixtures_answers import LossyStore

OLD = pa.table({"id": [1, 2], "n": [10, 20]})
NEW = pa.table({"id": [7], "n": [70]})
ROWS = pa.table({"id": [2, 3], "n": [0, 0]})
VERSIONS = 3
"""Commits of the table that is dropped."""
COMMITS = {"none": 0, "fewer": 1, "as many": VERSIONS}
"""Commits of the table that takes its place. A write whose version that table has already is done again, on that table."""

WRITES: dict[str, dict[str, Callable[[Session], object]]] = {
    "staged": {
        "append": lambda s: s.execute("main.t", WriteSpec("append"), ROWS),
        "overwrite": lambda s: s.execute("main.t", WriteSpec("overwrite"), ROWS),
        "merge": lambda s: s.execute("main.t", MergeSpec(("id",)), ROWS),
        "update": lambda s: s.sql("update t set n = n + 1"),
        "property": lambda s: s.sql("alter table t set tblproperties ('delta.appendOnly' = 'true')"),
    },
    "delta_rs": {
        "append": lambda s: s.execute("main.t", WriteSpec("append", writer="delta_rs"), ROWS),
        "overwrite": lambda s: s.execute("main.t", WriteSpec("overwrite", writer="delta_rs"), ROWS),
        "merge": lambda s: s.execute("main.t", MergeSpec(("id",), writer="delta_rs"), ROWS),
    },
}
ON_SPARK: dict[str, Callable[[Session], object]] = {
    "append": lambda s: s.execute("main.t", WriteSpec("append"), ROWS),
    "update": lambda s: s.sql("update t set n = n + 1"),
}


def _create_again(location: Path, commits: int) -> Callable[[], None]:
    """Drops the table at a place, and lets another one with some commits take it."""

    def act() -> None:
        shutil.rmtree(location / "_delta_log")  # of a drop on an object store, which goes on with the files
        for _ in range(commits):
            write_deltalake(location, NEW, mode="append")

    return act


def _once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], None], *, first: bool) -> None:
    """Act at the next call of a function of ours: before it, or when it has returned."""
    function, pending = getattr(owner, name), [act]

    def called(*args: Any, **kwargs: Any) -> Any:
        if first and pending:
            pending.pop()()
        value = function(*args, **kwargs)
        if pending:
            pending.pop()()
        return value

    monkeypatch.setattr(owner, name, called)


def _start(session: Session, location: Path) -> None:
    session.execute("main.t", WriteSpec("error"), OLD)
    for number in range(1, VERSIONS):
        session.sql(f"insert into t values ({number + 4}, 0)")
    assert DeltaTable(location).version() == VERSIONS - 1


def _check_new_table(session: Session, location: Path, commits: int) -> None:
    """The new table has its own rows and nothing else, and takes more."""
    if not commits:
        with pytest.raises(TableNotFound):
            session.table("t").toDF().collect()
        session.execute("main.t", WriteSpec("error"), NEW)
        commits = 1
    table = DeltaTable(location)
    assert sorted(row["id"] for row in table.to_pyarrow_table().to_pylist()) == [7] * commits
    assert "delta.appendOnly" not in table.metadata().configuration
    assert [row["id"] for row in session.table("t").toDF().collect()] == [7] * commits
    session.sql("insert into t values (8, 80)")
    assert len(DeltaTable(location).to_pyarrow_table()) == commits + 1


@pytest.mark.drawn(4)
@pytest.mark.parametrize("commits", COMMITS)
@pytest.mark.parametrize(("writer", "write"), [(writer, write) for writer, each in WRITES.items() for write in each])
def test_a_write_does_not_come_into_the_table_that_took_the_place_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, writer: str, write: str, commits: str
) -> None:
    location, count = root / "main" / "t", COMMITS[commits]
    with duckrun.connect(root) as session:
        _start(session, location)
        act = _create_again(location, count)
        if writer == "staged":
            _once(monkeypatch, Storage, "put_new", act, first=True)
        else:
            _once(monkeypatch, DeltaFormat, "take_handle", act, first=False)
        with pytest.raises(CommitConflict, match=r"main\.t was dropped .*Run it again"):
            WRITES[writer][write](session)
        _check_new_table(session, location, count)


@pytest.mark.s3
@pytest.mark.drawn(2)
@pytest.mark.parametrize("commits", [1, VERSIONS])
@pytest.mark.parametrize("writer", WRITES)
def test_a_drop_just_before_the_put_of_a_commit_on_an_object_store(
    s3_bucket: Callable[[str], str],
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    writer: str,
    commits: int,
) -> None:
    root = s3_bucket(f"replaced-{uuid.uuid4().hex}") + "/lake"
    with (
        duckrun.connect(root, storage_options=lossy_options) as session,
        duckrun.connect(root, storage_options=s3_options) as other,
    ):
        session.execute("main.t", WriteSpec("error"), OLD)
        for number in range(1, VERSIONS):
            session.sql(f"insert into t values ({number + 4}, 0)")

        def act() -> None:
            other.sql("drop table t")
            for _ in range(commits):
                other.execute("main.t", WriteSpec("append"), NEW)

        with (
            lossy_store.once_before(lambda request: request.is_commit, act),
            pytest.raises(CommitConflict, match=r"main\.t was dropped .*Run it again"),
        ):
            WRITES[writer]["append"](session)
        for each in (session, other):
            assert each.table("t").toDF().collect() == NEW.to_pylist() * commits
        session.sql("insert into t values (8, 80)")
        assert len(DeltaTable(f"{root}/main/t", storage_options=s3_options).to_pyarrow_table()) == commits + 1


@pytest.mark.spark
@pytest.mark.drawn(2)
@pytest.mark.parametrize("commits", [1, VERSIONS, VERSIONS + 2])
@pytest.mark.parametrize("write", ON_SPARK)
def test_a_write_of_spark_does_not_come_into_another_table(
    root: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, write: str, commits: int
) -> None:
    location = root / "main" / "t"
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        with duckrun.connect(root) as other:
            _start(other, location)
        _once(monkeypatch, SparkCommit, "note", _create_again(location, commits), first=True)
        with pytest.raises(CommitConflict, match=r"main\.t was dropped while this write from its version 2"):
            ON_SPARK[write](session)
        _check_new_table(session, location, commits)
