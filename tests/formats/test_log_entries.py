"""Entries of a log as other programs leave them: over several lines, or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import Session, StorageError, WriteSpec
from duckrun.formats.delta.log.entries import actions_in
from tests.lake import rows_of

WORK: list[Callable[[Session], Any]] = [
    lambda s: s.table("t").changes("min_delta", 0, key=["id"]).collect(),
    lambda s: s.table("t").changes("full_delta", 0, key=["id"]).collect(),
    lambda s: s.table("t").vacuum(),
    lambda s: s.table("t").history(),
    lambda s: s.table("t").optimize().executeCompaction(),
    lambda s: s.execute("main.t", WriteSpec("append"), pa.table({"id": [3]})),
    lambda s: s.sql("delete from t where id = 1"),
    lambda s: s.table("t").restoreToVersion(0),
]


def entry_of(session: Session) -> Path:
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [1]}))
    session.execute("main.t", WriteSpec("append"), pa.table({"id": [2]}))
    return Path(session.table("t").ref.location) / "_delta_log" / f"{1:020d}.json"


def test_an_entry_that_was_formatted_over_several_lines_is_read_as_it_was(duck: Session) -> None:
    entry = entry_of(duck)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    entry.write_text("\n".join(json.dumps(action, indent=2) for action in actions))
    with duckrun.connect(duck.lake.root) as fresh:
        assert [row["id"] for row in fresh.table("t").changes("min_delta", 0, key=["id"]).collect()] == [2]
        for work in WORK:
            work(fresh)
        assert rows_of(fresh.scan("main.t")) == [(1,)]


@pytest.mark.parametrize("text", ['{"add": ', "[1, 2]", '{"add": {}} x', "\x00"])
def test_a_damaged_entry_is_a_storage_error_that_names_it(text: str) -> None:
    with pytest.raises(StorageError, match="version 7"):
        actions_in(text.encode(), "The log entry of version 7")


@pytest.mark.parametrize("work", WORK)
def test_work_on_a_table_with_a_damaged_entry_fails_with_a_named_error(duck: Session, work: Any) -> None:
    entry = entry_of(duck)
    entry.write_text('{"add": ')
    with duckrun.connect(duck.lake.root) as fresh, pytest.raises(StorageError, match=r"main\.t"):
        work(fresh)
    assert entry.read_text() == '{"add": ' and len(list(entry.parent.glob("*.json"))) == 2
