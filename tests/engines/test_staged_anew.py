"""Staged files between stage() and commit_staged(): the table may have changed, and the commit verifies them against what it is now.

Budget: 20 s, and 60 s for all cases on Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import (
    AddCheck,
    AlterSpec,
    AppTransaction,
    CommitConflict,
    DeleteSpec,
    DuckrunError,
    InvalidConfig,
    SchemaMismatch,
    Session,
    StorageError,
    WriteSpec,
)
from duckrun.values.rows import StagedFile
from duckrun.values.tables import SetNotNull, VacuumSpec
from tests.lake import by_another, rows_of

both_formats = pytest.mark.formats(1)


def of(*ids: int | None) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def sent(files: Any) -> list[StagedFile]:
    """Files as another process has them."""
    return [StagedFile.from_json(file.to_json()) for file in files]


@pytest.fixture
def table(duck: Session) -> Session:
    duck.execute("main.t", WriteSpec("error"), of(1))
    return duck


@pytest.fixture
def table_of_either(session: Session) -> Session:
    """A table on either engine: DuckDB stages and commits the files, and the engine does what comes in between."""
    session.execute("main.t", WriteSpec("error"), of(1))
    return session


@both_formats
def test_files_that_were_committed_are_refused_whatever_happened_since(table_of_either: Session) -> None:
    table = table_of_either
    files = sent(table.stage("main.t", of(*range(10, 20))))
    table.commit_staged("main.t", files, WriteSpec("append"))
    for since in (
        None,
        DeleteSpec("id = 15"),
        DeleteSpec("id = 16", merge_mode="copy_on_write"),
        WriteSpec("overwrite"),
    ):
        if since is not None:
            if table.lake.has_catalog and isinstance(since, DeleteSpec):
                since = DeleteSpec(since.predicate)
            table.execute("main.t", since, of(1) if isinstance(since, WriteSpec) else None)
        rows = rows_of(table.scan("main.t"))
        with pytest.raises((CommitConflict, StorageError), match=r"main\.t"):
            table.commit_staged("main.t", files, WriteSpec("append"))
        assert rows_of(table.scan("main.t")) == rows == rows_of(by_another(table, "main.t"))


def test_two_drivers_that_commit_the_same_files_at_once_add_them_once(table: Session) -> None:
    files = sent(table.stage("main.t", of(2, 3)))

    def commit(_: int) -> bool:
        with duckrun.connect(table.lake.root) as session:
            try:
                session.commit_staged("main.t", files, WriteSpec("append"))
            except CommitConflict:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(commit, range(4))) == 1
    assert rows_of(table.scan("main.t")) == [(1,), (2,), (3,)]


@both_formats
def test_a_write_with_an_application_transaction_may_be_repeated(table: Session) -> None:
    files, spec = table.stage("main.t", of(2)), WriteSpec("append", app=AppTransaction("load"))
    first = table.commit_staged("main.t", files, spec)
    again = table.commit_staged("main.t", files, spec)
    assert (again.version, again.replayed) == (first.version, True)
    assert rows_of(table.scan("main.t")) == [(1,), (2,)]


@pytest.mark.parametrize(
    ("change", "bad"),
    [(AlterSpec((AddCheck("positive", "id > 0"),)), -5), (AlterSpec((SetNotNull("id"),)), None)],
    ids=["check", "not null"],
)
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_rows_are_checked_against_constraints_that_came_since(
    table_of_either: Session, change: AlterSpec, bad: int | None, mode: Any
) -> None:
    table = table_of_either
    wrong, right = table.stage("main.t", of(7, bad)), table.stage("main.t", of(8))
    version = table.execute("main.t", change).version
    with pytest.raises(SchemaMismatch, match=r"positive|NOT NULL"):
        table.commit_staged("main.t", sent(wrong), WriteSpec(mode))
    assert table.table("t").snapshot().version == version
    table.commit_staged("main.t", sent(right), WriteSpec(mode))
    assert rows_of(table.scan("main.t")) == ([(1,), (8,)] if mode == "append" else [(8,)])


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("kind", ["varchar(3)", "char(3)", "struct<a: varchar(3)>"])
def test_texts_are_checked_against_lengths_that_came_since(duck: Session, kind: str, mode: Any) -> None:
    def value(text: str) -> Any:
        return {"a": text} if kind.startswith("struct") else text

    wrong, right = (duck.stage("main.t", pa.table({"v": [value(text)]})) for text in ("abcd", "abc"))
    duck.sql(f"create table t (v {kind})", dialect="spark")
    with pytest.raises(DuckrunError, match=r"\(3\) and cannot hold the value abcd|stage the rows again"):
        duck.commit_staged("main.t", sent(wrong), WriteSpec(mode))
    if not kind.startswith("struct"):
        duck.commit_staged("main.t", sent(right), WriteSpec(mode))
        assert rows_of(duck.scan("main.t")) == [("abc",)]


@pytest.mark.formats(1)
@pytest.mark.only_format("ducklake", "which has NOT NULL and no CHECK")
def test_a_ducklakes_rows_are_checked_against_not_null_that_came_since(table: Session) -> None:
    wrong = table.stage("main.t", of(None))
    table.execute("main.t", AlterSpec((SetNotNull("id"),)))
    with pytest.raises(DuckrunError):
        table.commit_staged("main.t", wrong, WriteSpec("append"))
    assert rows_of(table.scan("main.t")) == [(1,)]


def test_nested_rows_that_cannot_be_checked_again_are_refused(duck: Session) -> None:
    rows = pa.table({"id": [1], "tags": [["a", "b"]]})
    duck.execute("main.n", WriteSpec("error"), rows)
    files = duck.stage("main.n", rows)
    duck.execute("main.n", AlterSpec((AddCheck("positive", "id > 0"),)))
    with pytest.raises(CommitConflict, match="stage the rows again"):
        duck.commit_staged("main.n", files, WriteSpec("append"))
    assert duck.table("n").toDF().count() == 1


@both_formats
def test_rows_of_a_type_that_the_table_no_longer_has_are_refused(table_of_either: Session) -> None:
    table = table_of_either
    files = table.stage("main.t", of(2))
    table.execute("main.t", WriteSpec("overwrite"), pa.table({"id": [b"x"]}))
    with pytest.raises(DuckrunError, match=r"main\.t"):
        table.commit_staged("main.t", files, WriteSpec("append"))
    assert rows_of(table.scan("main.t")) == [(b"x",)] == rows_of(by_another(table, "main.t"))


@both_formats
@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_files_of_another_table_or_of_one_made_anew_are_refused(table_of_either: Session, mode: Any) -> None:
    table = table_of_either
    table.execute("main.u", WriteSpec("error"), of(5))
    files = table.stage("main.t", of(2))
    with pytest.raises(CommitConflict, match=r"main\.u"):
        table.commit_staged("main.u", files, WriteSpec(mode))
    table.sql("drop table t")
    with pytest.raises(CommitConflict, match=r"main\.t is not there"):
        table.commit_staged("main.t", files, WriteSpec(mode))
    table.execute("main.t", WriteSpec("error"), of(1))
    with pytest.raises(CommitConflict, match="made anew"):
        table.commit_staged("main.t", files, WriteSpec(mode))
    assert rows_of(table.scan("main.t")) == [(1,)] and rows_of(table.scan("main.u")) == [(5,)]


@both_formats
def test_a_table_that_was_renamed_takes_its_files_under_its_new_name(table: Session) -> None:
    files = table.stage("main.t", of(2))
    table.sql("alter table t rename to v")
    table.commit_staged("main.v", files, WriteSpec("append"))
    assert rows_of(table.scan("main.v")) == [(1,), (2,)]


@both_formats
def test_files_that_are_gone_are_named_and_nothing_is_committed(table: Session) -> None:
    files = table.stage("main.t", of(2))
    for path in Path(table.lake.root).rglob("*.parquet"):
        if str(path).endswith(files[0].path.rpartition("/")[2]):
            path.unlink()
    with pytest.raises(StorageError, match="stage the rows again"):
        table.commit_staged("main.t", files, WriteSpec("append"))
    assert rows_of(table.scan("main.t")) == [(1,)]


def test_files_that_a_vacuum_removed_are_refused(table: Session) -> None:
    files = table.stage("main.t", of(2))
    table.execute("main.t", VacuumSpec(0, enforce_retention=False))
    with pytest.raises(StorageError, match="vacuumed"):
        table.commit_staged("main.t", files, WriteSpec("append"))
    assert DeltaTable(table.table("t").ref.location).to_pyarrow_table().num_rows == 1


@both_formats
@pytest.mark.parametrize("path", ["/etc/passwd", "../u/a.parquet", "s3://b/a.parquet", "_delta_log/a.parquet", "a.csv"])
def test_a_path_that_is_no_staged_file_is_refused(table: Session, path: str) -> None:
    files = [replace(file, path=path) for file in table.stage("main.t", of(2))]
    with pytest.raises(InvalidConfig, match="no staged file"):
        table.commit_staged("main.t", files, WriteSpec("append"))
    assert rows_of(table.scan("main.t")) == [(1,)]


def test_a_file_is_named_once(table: Session) -> None:
    files = table.stage("main.t", of(2))
    with pytest.raises(InvalidConfig, match="twice"):
        table.commit_staged("main.t", [*files, *files], WriteSpec("append"))


def test_partitions_that_the_files_do_not_have_are_refused(duck: Session) -> None:
    rows = pa.table({"id": [1], "day": ["mon"]})
    files = duck.stage("main.a", rows)
    with pytest.raises(InvalidConfig, match=r"give partition_by to stage\(\)"):
        duck.commit_staged("main.a", files, WriteSpec("error", partition_by=("day",)))
    files = duck.stage("main.a", rows, partition_by=["day"])
    duck.commit_staged("main.a", files, WriteSpec("error", partition_by=("day",)))
    assert duck.table("a").snapshot().partition_columns == ("day",)
    with pytest.raises(InvalidConfig, match="clustered"):
        duck.commit_staged("main.a", duck.stage("main.a", rows), WriteSpec("append", cluster_by=("id",)))


@both_formats
@pytest.mark.parametrize(
    "change",
    [lambda s: s.execute("main.t", WriteSpec("append"), of(3)), lambda s: s.execute("main.t", DeleteSpec("id = 1"))],
)
def test_rows_that_came_or_went_since_do_not_matter(table: Session, change: Callable[[Session], Any]) -> None:
    files = sent(table.stage("main.t", of(2)))
    change(table)
    rows = rows_of(table.scan("main.t"))
    table.commit_staged("main.t", files, WriteSpec("append"))
    assert rows_of(table.scan("main.t")) == sorted([*rows, (2,)]) == rows_of(by_another(table, "main.t"))
