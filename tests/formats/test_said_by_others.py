"""What other writers say in a table's log and we do not know stays there: domains of theirs through every kind of commit, features of
theirs refused by name before a file is written, moments ahead of this clock.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import DeleteSpec, MergeSpec, ReadSpec, Session, UpdateSpec, WriteSpec
from duckrun.errors import StorageError, UnsupportedFeature
from duckrun.formats.delta.delta import DeltaFormat
from duckrun.formats.delta.versions.domains import domains_of
from duckrun.values.rows import DeleteInsertSpec
from duckrun.values.tables import AddColumn, AlterSpec, ColumnSpec, OptimizeSpec, PurgeSpec, RestoreSpec, SetProperties
from tests.lake import rows_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
MORE = pa.table({"id": pa.array([3, 4], pa.int64()), "v": ["x", "y"]})
TIMED = "delta.enableInCommitTimestamps"

Work = Callable[[Session], object]
COMMITS: dict[str, Work] = {
    "append": lambda s: s.execute("t", WriteSpec("append"), MORE),
    "delta_rs": lambda s: s.execute("t", WriteSpec("append", writer="delta_rs"), MORE),
    "merge": lambda s: s.execute("t", MergeSpec(("id",)), MORE),
    "update": lambda s: s.execute("t", UpdateSpec({"v": "'u'"}, "id = 2")),
    "delete": lambda s: s.execute("t", DeleteSpec("id = 1")),
    "delete by marks": lambda s: s.execute("t", DeleteSpec("id = 1", merge_mode="deletion_vectors")),
    "delete+insert": lambda s: s.execute("t", DeleteInsertSpec(("id",)), MORE),
    "replace": lambda s: s.execute("t", WriteSpec("replace", predicate="id = 3"), MORE.slice(0, 1)),
    "overwrite": lambda s: s.execute("t", WriteSpec("overwrite"), MORE),
    "overwrite with another schema": lambda s: s.execute("t", WriteSpec("overwrite", schema_mode="sync_all_columns"), MORE.select(["id"])),
    "optimize": lambda s: s.execute("t", OptimizeSpec()),
    "z-order": lambda s: s.execute("t", OptimizeSpec(z_order_by=("id",))),
    "purge": lambda s: s.execute("t", PurgeSpec()),
    "restore": lambda s: s.execute("t", RestoreSpec(version=1)),
    "add column": lambda s: s.execute("t", AlterSpec((AddColumn(ColumnSpec("n", "BIGINT")),))),
    "properties": lambda s: s.execute("t", AlterSpec((SetProperties({"delta.enableChangeDataFeed": "true"}),))),
}  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def _log(lake: Path) -> Path:
    return lake / "main" / "t" / "_delta_log"


def _table(lake: Path, **properties: str) -> None:
    """Version 0 with three rows, and version 1 with one more."""
    with duckrun.connect(lake) as session:
        session.execute("t", WriteSpec("append", table_properties=properties), ROWS)
        session.execute("t", WriteSpec("append"), pa.table({"id": pa.array([9], pa.int64()), "v": ["i"]}))


def _by_hand(lake: Path, *actions: dict[str, object], moment: int | None = None) -> None:
    """One more commit, of another writer."""
    version = max(int(path.stem) for path in _log(lake).glob("*.json")) + 1
    now = int(time.time() * 1000)
    info = {"timestamp": now, "operation": "THEIRS"} | ({} if moment is None else {"inCommitTimestamp": moment})
    lines = [{"commitInfo": info}, *actions]
    (_log(lake) / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))


def _actions(lake: Path, kind: str) -> list[dict[str, object]]:
    commits = [path for path in sorted(_log(lake).glob("*.json")) if path.stem.isdigit()]
    lines = (json.loads(line) for path in commits for line in path.read_text().splitlines())
    return [action[kind] for action in lines if kind in action]


def _supporting(*features: str) -> dict[str, object]:
    return {
        "protocol": {
            "minReaderVersion": 1,
            "minWriterVersion": 7,
            "writerFeatures": ["appendOnly", "invariants", *features],
        }
    }


def _files(lake: Path) -> set[str]:
    return {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("work", [work for work in COMMITS if work != "delta_rs"])
def test_a_domain_of_a_user_stays_through_every_commit(lake: Path, work: str) -> None:
    _table(lake)
    theirs = {"domain": "their.domain", "configuration": '{"some": "words"}', "removed": False}
    gone = {"domain": "gone.domain", "configuration": "", "removed": True}
    _by_hand(lake, _supporting("domainMetadata"), {"domainMetadata": theirs}, {"domainMetadata": gone})
    with duckrun.connect(lake) as session:
        COMMITS[work](session)
        session.table("t").checkpoint()
        session.sql("insert into t (id) values (20)")
        snapshot = session.snapshot("t")
        form = session.lake.format
        assert isinstance(form, DeltaFormat)
        assert domains_of(form, snapshot) == {"their.domain": '{"some": "words"}'}
    assert _actions(lake, "domainMetadata") == [theirs, gone], "no commit of ours says anything of them"
    assert "domainMetadata" in snapshot.writer_features


@pytest.mark.drawn(4)
@pytest.mark.parametrize("work", COMMITS)
def test_a_feature_that_nobody_knows_is_refused_before_a_file_is_written(lake: Path, work: str) -> None:
    _table(lake)
    _by_hand(lake, _supporting("theirOwn"))
    before = _files(lake)
    with duckrun.connect(lake) as session:
        rows = rows_of(session.sql("select * from t"))
        with pytest.raises(UnsupportedFeature, match=r"main\.t.*theirOwn"):
            COMMITS[work](session)
        assert _files(lake) == before
        assert rows_of(session.sql("select * from t")) == rows


def test_a_moment_ahead_of_this_clock_goes_on_from_there(lake: Path, caplog: pytest.LogCaptureFixture) -> None:
    _table(lake, **{TIMED: "true"})
    ahead = int(time.time() * 1000) + 3_600_000
    _by_hand(lake, moment=ahead)
    with caplog.at_level(logging.WARNING), duckrun.connect(lake) as session:
        session.execute("t", WriteSpec("append"), MORE)
        session.execute("t", DeleteSpec("id = 4"))
        told = session.table("t").history()
    said = [record.message for record in caplog.records if "in-commit timestamp" in record.message]
    assert len(said) == 2 and all("main.t" in text and " s ahead of this clock" in text for text in said), said
    assert "version 2 is 3" in said[0] and "version 3 is 3" in said[1], said
    stamps = [info["inCommitTimestamp"] for info in _actions(lake, "commitInfo")]
    assert stamps[2:] == [ahead, ahead + 1, ahead + 2]
    assert stamps == sorted(set(stamps))
    assert [commit["version"] for commit in told] == [4, 3, 2, 1, 0]


def test_a_time_finds_the_versions_before_a_clock_was_set_back(lake: Path) -> None:
    _table(lake)
    for hour in (12, 11, 13):  # the versions after the table's
        moment = int(datetime(2100, 1, 1, hour, tzinfo=UTC).timestamp() * 1000)
        _by_hand(lake, moment=moment)
    with duckrun.connect(lake) as session:
        first = session.table("t").snapshot().version - 3
        at = [
            session.snapshot("t", ReadSpec(timestamp=f"2100-01-01 {hour}")).version
            for hour in ("11:30", "12:30", "13:30")
        ]
    assert at == [first, first + 2, first + 3]


def test_rows_that_nobody_counted_are_counted_by_their_file(lake: Path) -> None:
    """That of a writer that left no statistics; one that is gone gets no ids."""
    _table(lake)
    added = _actions(lake, "add")[-1]
    _by_hand(lake, {"remove": {"path": added["path"], "dataChange": False}})
    _by_hand(lake, {"add": {key: value for key, value in added.items() if key != "stats"}})
    turned_on = AlterSpec((SetProperties({"delta.enableRowTracking": "true"}),))
    file = lake / "main" / "t" / str(added["path"])
    aside = file.rename(lake / "aside")
    before = _files(lake)
    with duckrun.connect(lake) as session:
        with pytest.raises(StorageError, match=rf"main\.t.*{re.escape(file.name)} cannot be opened"):
            session.execute("t", turned_on)
        assert _files(lake) == before
        aside.rename(file)
        session.execute("t", turned_on)
        ids = session.table("t").toDF(row_ids=True).toArrow().column("_row_id").to_pylist()
        assert sorted(ids) == [0, 1, 2, 3]
    assert all(json.loads(str(add["stats"]))["numRecords"] for add in _actions(lake, "add")[-2:])
