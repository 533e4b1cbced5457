"""An object store carries a commit out and its answer is lost: the commit is known again, and is made once."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun import MergeSpec, Session, WriteSpec
from duckrun.engines.spark.commit import SparkCommit
from tests.fixtures_answers import LOSSES, Loss, LossyStore, Request
from tests.lake import rows_of

pytestmark = pytest.mark.s3

ROWS = pa.table({"id": [1, 2], "n": [0, 0]})
WRITES: dict[str, tuple[Callable[[Session], object], list[tuple[int, int]]]] = {
    "update": (lambda s: s.sql("update t set n = n + 1"), [(1, 1), (2, 1)]),
    "insert from itself": (lambda s: s.sql("insert into t select id, n + 1 from t"), [(1, 0), (1, 1), (2, 0), (2, 1)]),
    "fenced append": (
        lambda s: s.execute("main.t", WriteSpec("safeappend", read_version=0), pa.table({"id": [3], "n": [3]})),
        [(1, 0), (2, 0), (3, 3)],
    ),
    "append by delta_rs": (
        lambda s: s.execute("main.t", WriteSpec("append", writer="delta_rs"), pa.table({"id": [3], "n": [3]})),
        [(1, 0), (2, 0), (3, 3)],
    ),
    "merge by delta_rs": (
        lambda s: s.execute("main.t", MergeSpec(("id",), writer="delta_rs"), pa.table({"id": [2, 3], "n": [7, 8]})),
        [(1, 0), (2, 7), (3, 8)],
    ),
}


def is_commit(request: Request) -> bool:
    return request.is_commit


@pytest.fixture
def root(s3_bucket: Callable[[str], str]) -> str:
    return s3_bucket(f"lost-{uuid.uuid4().hex}") + "/lake"


@pytest.mark.answers
@pytest.mark.drawn(3)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("write", WRITES)
def test_a_commit_whose_answer_is_lost_is_made_once(
    root: str,
    lossy_store: LossyStore,
    lossy_options: dict[str, str],
    s3_options: dict[str, str],
    write: str,
    loss: Loss,
) -> None:
    run, expected = WRITES[write]
    with duckrun.connect(root, storage_options=lossy_options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        with lossy_store.losing(loss, is_commit) as lost:
            run(s)
        assert lost() == 1
        assert s.snapshot("main.t").version == 1
    plain = DeltaTable(f"{root}/main/t", storage_options=s3_options)
    assert sorted(tuple(row.values()) for row in plain.to_pyarrow_table().to_pylist()) == expected


def test_an_update_whose_commit_lost_its_answer_counts_once(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str]
) -> None:
    with duckrun.connect(root, storage_options=lossy_options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        with lossy_store.losing("error", is_commit) as lost:
            s.sql("update t set n = n + 1")
        assert lost() == 1
        assert [row["n"] for row in s.sql("from t").collect()] == [1, 1]


@pytest.mark.parametrize("writer", ["staged", "delta_rs"])
def test_a_new_table_whose_commit_lost_its_answer_is_made_once(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str], s3_options: dict[str, str], writer: str
) -> None:
    with duckrun.connect(root, storage_options=lossy_options) as s, lossy_store.losing("cut", is_commit) as lost:
        assert s.execute("main.t", WriteSpec("error", writer=writer), ROWS).version == 0
    assert lost() == 1
    assert DeltaTable(f"{root}/main/t", storage_options=s3_options).to_pyarrow_table().num_rows == 2


def test_another_writers_commit_is_not_taken_for_ours(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str], s3_options: dict[str, str]
) -> None:
    with duckrun.connect(root, storage_options=lossy_options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        s.snapshot("main.t")
        with duckrun.connect(root, storage_options=s3_options) as other:
            other.sql("insert into t values (3, 0)")
        with lossy_store.losing("cut", is_commit) as lost:
            s.sql("update t set n = n + 1")
        assert lost() == 1
        assert sorted(s.sql("from t").collect(), key=str) == [{"id": i, "n": 1} for i in (1, 2, 3)]
        assert s.snapshot("main.t").version == 2


def test_a_commit_of_which_nothing_is_known_says_so(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str], s3_options: dict[str, str]
) -> None:
    options = {**lossy_options, "max_retries": "1"}
    with duckrun.connect(root, storage_options=options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)

        def of_the_entry(request: Request) -> bool:
            return "00000000000000000001.json" in request.path

        with (
            lossy_store.losing("cut", of_the_entry, times=1000),
            pytest.raises(duckrun.CommitUnknown, match=r"version 1 of table main\.t .*not known"),
        ):
            s.sql("update t set n = n + 1")
    assert DeltaTable(f"{root}/main/t", storage_options=s3_options).version() == 1


@pytest.mark.parametrize("times", [1, 1000])
def test_a_commit_that_a_store_refuses_beside_another_request_is_not_one_that_lost(
    root: str, lossy_store: LossyStore, lossy_options: dict[str, str], s3_options: dict[str, str], times: int
) -> None:
    """The other request may be this writer's own, whose answer was lost, and may still be carried out."""
    with duckrun.connect(root, storage_options={**lossy_options, "max_retries": "1"}) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        unknown = pytest.raises(duckrun.CommitUnknown, match=r"version 1 of table main\.t .*not known")
        with lossy_store.losing("conflict", is_commit, times=times), unknown if times > 1 else nullcontext():
            s.execute("main.t", WriteSpec("append"), ROWS)
    assert DeltaTable(f"{root}/main/t", storage_options=s3_options).version() == (0 if times > 1 else 1)


def test_every_commit_has_an_id_of_its_own(root: str, s3_options: dict[str, str]) -> None:
    with duckrun.connect(root, storage_options=s3_options) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        s.sql("update t set n = n + 1")
        s.execute("main.t", WriteSpec("append", writer="delta_rs"), ROWS)
        s.sql("alter table t add column v int")
    ids = [entry["txnId"] for entry in DeltaTable(f"{root}/main/t", storage_options=s3_options).history()]
    assert len(ids) == len(set(ids)) == 4


@pytest.mark.answers
@pytest.mark.spark
def test_an_update_by_spark_whose_commit_lost_its_answer_counts_once(
    root: str, spark: Any, lossy_store: LossyStore, lossy_options: dict[str, str]
) -> None:
    losses: list[Loss] = ["error", "cut"]
    with duckrun.connect(root, storage_options=lossy_options, engine="spark", spark=spark) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        for loss in losses:
            with lossy_store.losing(loss, is_commit) as lost:
                s.sql("update t set n = n + 1")
            assert lost() == 1
        assert sorted(rows_of(s.sql("from t"))) == [(1, 2), (2, 2)]
        assert s.snapshot("main.t").version == 2


@pytest.mark.spark
def test_a_commit_by_spark_after_which_the_server_goes_away_is_not_repeated(
    root: str, spark: Any, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, texts = SparkCommit.statement, []

    def cut(commit: SparkCommit, text: str) -> None:
        texts.append(text)
        statement(commit, text)
        raise ConnectionError("the server went away")

    with duckrun.connect(root, storage_options=s3_options, engine="spark", spark=spark) as s:
        s.execute("main.t", WriteSpec("error"), ROWS)
        monkeypatch.setattr(SparkCommit, "statement", cut)
        assert s.sql("update t set n = n + 1") is not None
        assert len(texts) == 1
        assert s.snapshot("main.t").version == 1
        assert sorted(rows_of(s.sql("from t"))) == [(1, 1), (2, 1)]
