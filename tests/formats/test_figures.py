"""The figures that each commit of ours is held against before it is made: broken on purpose, nothing is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from duckrun import Session
from duckrun.engines.duckdb.changes import rewrites
from duckrun.engines.duckdb.writers import file_tables as changes
from duckrun.errors import LostRows
from duckrun.formats.delta.files.logged import LoggedFiles
from duckrun.values.rows import DeleteInsertSpec, DeleteSpec, MergeSpec, UpdateSpec, WriteSpec
from tests.lake import rows_of

ROWS = [(n, n % 2) for n in range(10)]
Work = Callable[[Session], Any]


def table(*rows: tuple[int, int]) -> pa.Table:
    return pa.table({"id": [i for i, _ in rows], "p": [p for _, p in rows]})


@pytest.fixture
def held(duck: Session) -> Session:
    """main.t with ROWS, in two files of two partitions and one more of each."""
    duck.execute("t", WriteSpec("append", partition_by=("p",)), table(*ROWS[:6]))
    duck.execute("t", WriteSpec("append"), table(*ROWS[6:]))
    return duck


CHANGES: dict[str, Work] = {
    "delete": lambda s: s.execute("t", DeleteSpec("id = 3")),
    "update": lambda s: s.execute("t", UpdateSpec({"id": "id + 100"}, "id = 3")),
    "merge": lambda s: s.execute("t", MergeSpec(("id",), on="target.p >= 0"), table((3, 1), (77, 1))),
    "delete+insert": lambda s: s.execute("t", DeleteInsertSpec(("id",)), table((3, 1), (77, 1))),
    "replace": lambda s: s.execute("t", WriteSpec("replace", predicate="id = 3"), table((3, 1))),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("fault", ["rows are missing", "rows are doubled"])
def test_a_change_that_reads_other_rows_than_its_files_hold_is_not_committed(
    held: Session, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    """A reader that leaves out a row of a file, or gives all of its rows twice."""
    stage = changes.staged.stage

    def strange(rows: Any, *args: Any, **options: Any) -> Any:
        sql = f"SELECT * FROM ({rows.sql}) WHERE id <> 5"
        if fault == "rows are doubled":
            sql = f"SELECT * FROM ({rows.sql}) UNION ALL SELECT * FROM ({rows.sql}) WHERE id = 5"
        return stage(replace(rows, sql=sql), *args, **options)

    real, more = changes.counted, 1 if fault == "rows are doubled" else -1
    monkeypatch.setattr(
        changes,
        "counted",  # also of the rows of the files
        lambda cursor, rows, *where: real(cursor, rows, *where) + (more if ".parquet" in rows else 0),
    )
    monkeypatch.setattr(changes.staged, "stage", strange)
    with pytest.raises(LostRows, match=r"main\.t.*not committed"):
        CHANGES[name](held)
    monkeypatch.undo()
    assert held.snapshot("t").version == 1
    assert rows_of(held.table("t").toDF(), "id", "p") == sorted(ROWS)
    held.execute("t", WriteSpec("append"), table((99, 0)))  # the session goes on


@pytest.mark.parametrize("work", ["optimize", "alter"])
def test_files_written_anew_with_other_rows_are_not_committed(
    held: Session, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    stage = rewrites.staged.stage

    def short(rows: Any, *args: Any, **options: Any) -> Any:
        return stage(replace(rows, sql=f"SELECT * FROM ({rows.sql}) OFFSET 1"), *args, **options)

    monkeypatch.setattr(rewrites.staged, "stage", short)
    does: dict[str, Work] = {
        "optimize": lambda s: s.table("t").optimize().executeCompaction(),
        "alter": lambda s: s.sql("alter table t rename column id to n"),
    }
    with pytest.raises(LostRows, match=r"main\.t.*not committed"):
        does[work](held)
    monkeypatch.undo()
    assert (held.snapshot("t").version, held.scan("t").count()) == (1, len(ROWS))


def test_a_remove_of_a_file_that_is_not_in_the_table_is_not_committed(
    held: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a name that is spelled in another way than the log's: the file would stay."""
    real = changes.whole_files

    def respelled(*args: Any) -> Any:
        return [replace(file, spelled=f"{file.spelled}?") for file in real(*args) or ()]

    monkeypatch.setattr(changes, "whole_files", respelled)
    with pytest.raises(LostRows, match=r"main\.t.*does not have"):
        held.execute("t", DeleteSpec("p = 1"))
    monkeypatch.undo()
    assert (held.snapshot("t").version, held.scan("t").count()) == (1, len(ROWS))


def test_rows_read_from_a_file_that_the_log_does_not_name_are_not_rewritten(
    held: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoggedFiles, "at", lambda files, places: {})
    with pytest.raises(LostRows, match=r"main\.t.*no file of its log"):
        held.execute("t", DeleteSpec("id = 3"))
    monkeypatch.undo()
    assert (held.snapshot("t").version, held.scan("t").count()) == (1, len(ROWS))
