"""The writer delta_rs of a whole lake: it writes what it can, the staged writer does the rest, and the commit says why."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import duckrun
from duckrun import (
    DeleteInsertSpec,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    UpdateSpec,
    WriteSpec,
)
from duckrun.errors import DuckrunError, InvalidConfig
from duckrun.session import Session
from duckrun_dagster import DuckrunResource

OLD = pa.table({"id": [1, 2, 3], "day": ["a", "b", "c"], "v": [1, 2, 3]})
NEW = pa.table({"id": [2, 3, 4], "day": ["b", "c", "d"], "v": [20, 30, 40]})

# What a write is, whether delta_rs does it on a table that is there, and a word of the reason where it does not.
WRITES: list[tuple[Any, bool, str]] = [
    (WriteSpec("overwrite"), True, ""),
    (WriteSpec("append"), True, ""),
    (MergeSpec(("id",)), True, ""),
    (WriteSpec("overwrite", sort_by=("id",)), False, "sort order"),
    (WriteSpec("overwrite", table_properties={"delta.enableDeletionVectors": "true"}), False, "properties"),
    (WriteSpec("replace", predicate="day in ('b', 'c', 'd')"), False, "replace"),
    (DeleteInsertSpec(("id",)), False, "delete+insert"),
    (MergeSpec(("id",), clauses=(MergeClause("matched_update", condition="source.v > 20"),)), True, ""),
    (MergeSpec(("id",), merge_mode="deletion_vectors"), False, "deletion vectors"),
    (DeleteSpec("v > 1"), False, "delete"),
    (UpdateSpec({"v": "v + 1"}, "v > 1"), False, "update"),
]


def write(session: Session, table: str, spec: Any) -> Any:
    source = None if isinstance(spec, DeleteSpec | UpdateSpec) else NEW
    return session.execute(table, spec, source)


@pytest.mark.parametrize(("spec", "by_delta_rs", "why"), WRITES, ids=lambda value: getattr(value, "mode", ""))
def test_a_lakes_writer_does_what_it_can_and_the_commit_says_why_not(
    root: Path, spec: Any, by_delta_rs: bool, why: str
) -> None:
    with duckrun.connect(root, writer="delta_rs") as session, duckrun.connect(root) as plain:
        for name in ("main.ours", "main.theirs"):
            assert session.execute(name, WriteSpec("error"), OLD).writer == "delta_rs"
        commit = write(session, "main.ours", spec)
        write(plain, "main.theirs", spec)
        assert commit.writer == ("delta_rs" if by_delta_rs else "staged")
        assert ("not by delta_rs" in commit.reason) == (not by_delta_rs) and why in commit.reason
        noted = session.table("main.ours").history(1)[0]
        assert noted["version"] == commit.version == 1
        rows = [plain.sql(f"select * from {name} order by all").toArrow() for name in ("main.ours", "main.theirs")]
        assert rows[0] == rows[1]


@pytest.mark.parametrize(("spec", "by_delta_rs", "why"), WRITES, ids=lambda value: getattr(value, "mode", ""))
def test_a_write_that_asks_for_it_itself_is_refused_by_the_same_reason(
    root: Path, spec: Any, by_delta_rs: bool, why: str
) -> None:
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("error"), OLD)
        asked = replace(spec, writer="delta_rs")
        if by_delta_rs:
            assert write(session, "main.t", asked).writer == "delta_rs"
            return
        with pytest.raises(
            DuckrunError, match=rf"main\.t cannot be done by writer delta_rs: .*{re.escape(why)}.*Nothing was written"
        ):
            write(session, "main.t", asked)
        assert session.table("main.t").snapshot().version == 0


def test_statements_and_what_names_its_writer_itself(root: Path) -> None:
    with duckrun.connect(root, writer="delta_rs") as session:
        assert session.sql("create table main.t as select 1 as id, 'a' as v").writer == "delta_rs"
        assert session.sql("insert into main.t values (2, 'b')").writer == "delta_rs"
        assert session.sql("update main.t set v = 'c' where id = 2").writer == "staged"
        staged = WriteSpec("append", writer="staged")
        commit = session.execute("main.t", staged, pa.table({"id": [3], "v": ["d"]}))
        assert (commit.writer, "delta_rs" in commit.reason) == ("staged", False)
        assert session.sql("select count(*) as n from main.t").collect() == [{"n": 3}]


def test_a_ducklake_has_one_writer(root: Path) -> None:
    with pytest.raises(InvalidConfig, match="the lake's format is ducklake"):
        duckrun.connect(root, format="ducklake", writer="delta_rs")
    resource = DuckrunResource(root_path=str(root), format="ducklake", writer="delta_rs")
    with pytest.raises(InvalidConfig, match="the lake's format is ducklake"):
        resource.session()


@pytest.mark.parametrize("writer", ["delta_rs", "prefer_delta_rs"])
def test_a_write_that_delta_rs_may_do_takes_its_memory_off_duckdbs(root: Path, writer: Any) -> None:
    with duckrun.connect(root, memory_limit="2GB") as session:
        room = session.arbiter.instance_limit(beside_delta_rs=True)
        assert session.embedded.duckdb_limit > room
        assert session.execute("main.t", WriteSpec("error", writer=writer), OLD).writer == "delta_rs"
        assert session.embedded.duckdb_limit == room
