"""Tables that others wrote in many commits without a checkpoint: read from their log once, and right all the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import duckrun
from duckrun import WriteSpec
from duckrun.engines.duckdb.engine import DuckDBEngine
from duckrun.engines.duckdb.instance import sql
from duckrun.engines.duckdb.instance.views import ViewCatalog
from duckrun.errors import CommitConflict, SourceOutdated
from duckrun.formats.commits import NewCommit
from duckrun.formats.delta.log.access import LogAccess
from duckrun.run.pins import Pins
from duckrun.session import Session
from duckrun.values.snapshot import TableRef

COMMITS, LIVE = 120, 3


def long_log(folder: Path, commits: int = COMMITS, first: int = 0, **properties: str) -> None:
    """A table whose version v has the ids from v - 2 to v, each more by ``first``, with no checkpoint."""
    write_deltalake(folder, ids(first), configuration=properties)
    for version in range(1, commits + 1):
        name = f"part-{first}-{version}.parquet"
        pq.write_table(ids(first + version), folder / name)
        file = {"path": name, "partitionValues": {}, "size": (folder / name).stat().st_size, "dataChange": True}
        bounds = {"minValues": {"id": first + version}, "maxValues": {"id": first + version}, "nullCount": {"id": 0}}
        actions = [{"add": {**file, "modificationTime": 0, "stats": json.dumps({"numRecords": 1, **bounds})}}]
        if version > LIVE:
            gone = f"part-{first}-{version - LIVE}.parquet"
            actions.append({"remove": {"path": gone, "deletionTimestamp": 0, "dataChange": True}})
        elif version == LIVE:
            gone = DeltaTable(folder, version=0).get_add_actions().column("path")[0].as_py()
            actions.append({"remove": {"path": gone, "deletionTimestamp": 0, "dataChange": True}})
        (folder / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def expected(version: int) -> list[int]:
    return list(range(version - LIVE + 1, version + 1))


def read(session: Session, sql: str = "select id from t") -> list[int]:
    return sorted(row["id"] for row in session.sql(sql).collect())


@pytest.fixture
def folder(root: Path) -> Path:
    return root / "main" / "t"


@pytest.fixture
def lake(root: Path, folder: Path) -> Iterator[Session]:
    """A session on a lake with one such table, main.t."""
    folder.mkdir(parents=True)
    long_log(folder)
    with duckrun.connect(root) as session:
        yield session


def test_every_query_of_a_long_log_gives_the_rows_of_its_version(lake: Session) -> None:
    assert read(lake, "select id from t where id >= 120") == [120]
    assert read(lake) == read(lake) == expected(120)
    assert read(lake, "select a.id from t a join t b using (id) where b.id < 120") == [118, 119]
    for version in (2, 105, 120, 105):
        assert read(lake, f"select id from t at (version => {version})") == list(
            range(max(0, version - 2), version + 1)
        )


def test_commits_of_others_are_seen_by_the_next_statement_and_not_by_a_frame_that_was_read_before(
    lake: Session, folder: Path
) -> None:
    before = lake.sql("select id from t")
    write_deltalake(folder, ids(500), mode="append")
    DeltaTable(folder).delete("id = 118")
    assert read(lake) == [119, 120, 500]
    DeltaTable(folder).alter.set_table_properties({"delta.appendOnly": "false"})
    write_deltalake(folder, ids(501).append_column("more", [["x"]]), mode="append", schema_mode="merge")
    assert lake.sql("select id, more from t where id > 120 order by id").collect() == [
        {"id": 500, "more": None},
        {"id": 501, "more": "x"},
    ]
    assert sorted(row["id"] for row in before.collect()) == expected(120)


def test_a_long_log_is_replayed_once_and_not_by_each_statement_that_reads_all_files(
    lake: Session, folder: Path
) -> None:
    read(lake)
    (folder / "_delta_log" / f"{50:020d}.json").write_text("no log")  # whoever replays it fails
    assert read(lake) == expected(120)
    assert lake.sql("select count(*) as n, max(id) as last from t").collect() == [{"n": LIVE, "last": 120}]
    assert len(lake.table("main.t").snapshot().files()) == LIVE


def test_another_table_at_the_place_with_as_many_commits_is_not_taken_for_the_one_before(
    lake: Session, folder: Path
) -> None:
    assert read(lake) == expected(120)
    shutil.rmtree(folder)
    folder.mkdir()
    long_log(folder, first=1000)
    assert read(lake) == [1118, 1119, 1120]


def test_rows_of_a_long_log_are_not_written_back_over_the_change_of_another(lake: Session, folder: Path) -> None:
    frame = lake.sql("select id + 1 as id from t")
    relation = frame.native
    assert isinstance(relation, duckdb.DuckDBPyRelation)
    write_deltalake(folder, ids(500), mode="append")
    for source in (frame, relation):
        with pytest.raises(SourceOutdated):
            lake.execute("main.t", WriteSpec("overwrite"), source)
    assert read(lake) == [118, 119, 120, 500]


def test_a_view_of_a_run_keeps_its_version_of_a_long_log(lake: Session, folder: Path) -> None:
    connection = lake.engine.connection
    views = ViewCatalog(connection, lake.lake, Pins(lake.lakes))
    views.ensure_for("select * from main.t")
    write_deltalake(folder, ids(500), mode="append")
    for _ in range(2):
        assert connection.cursor().execute("select id from main.t order by id").fetchall() == [(118,), (119,), (120,)]


def test_an_instance_with_many_versions_reads_further_ones_as_well(
    lake: Session, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "_MOST_ATTACHED", 1)
    assert read(lake) == expected(120)
    write_deltalake(folder, ids(500), mode="append")
    assert read(lake) == read(lake) == [118, 119, 120, 500]


def test_one_write_of_ours_gives_a_long_log_its_checkpoint(lake: Session, folder: Path) -> None:
    lake.execute("main.t", WriteSpec("append"), ids(7))
    assert json.loads((folder / "_delta_log" / "_last_checkpoint").read_text())["version"] == 121
    assert read(lake) == [7, 118, 119, 120]
    lake.execute("main.t", WriteSpec("append"), ids(8))
    assert not (folder / "_delta_log" / f"{122:020d}.checkpoint.parquet").exists()


def test_writes_open_a_long_log_once(lake: Session, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int | None] = []
    opens = LogAccess._opened

    def counted(logs: LogAccess, ref: TableRef, version: int | None) -> DeltaTable:
        opened.append(version)
        return opens(logs, ref, version)

    monkeypatch.setattr(LogAccess, "_opened", counted)
    for number in (7, 8):
        lake.execute("main.t", WriteSpec("append"), ids(number))
    lake.sql("delete from t where id = 119")
    assert opened == [None]
    assert read(lake) == [7, 8, 118, 120]
    assert DeltaTable(folder).version() == 123
    assert sorted(DeltaTable(folder).to_pyarrow_table().column("id").to_pylist()) == [7, 8, 118, 120]


def test_a_write_to_a_long_log_that_another_table_has_taken_is_refused(lake: Session, folder: Path) -> None:
    snapshot = lake.snapshot("main.t")
    shutil.rmtree(folder)
    folder.mkdir()
    long_log(folder, first=1000)
    with pytest.raises(CommitConflict, match="was dropped"):
        lake.lake.format.commit(snapshot.ref, snapshot, NewCommit(WriteSpec("append"), None, ()))
    assert read(lake) == [1118, 1119, 1120]


def test_a_table_that_wants_few_checkpoints_gets_no_more(root: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    long_log(folder, **{"delta.checkpointInterval": "1000"})
    with duckrun.connect(root) as session:
        session.execute("main.t", WriteSpec("append"), ids(7))
        assert read(session) == [7, 118, 119, 120]
    assert not list((folder / "_delta_log").glob("*checkpoint*"))


def test_a_temporary_view_of_a_long_log_outlives_a_duckdb_that_ended(lake: Session) -> None:
    engine = lake.engine
    assert isinstance(engine, DuckDBEngine)
    lake.sql("select id from t").createOrReplaceTempView("kept")
    engine.instance._opened = engine.instance._opened_again(engine.connection)
    assert read(lake, "select id from kept") == expected(120)


def test_a_hint_that_cannot_be_read_is_no_hindrance(lake: Session, folder: Path) -> None:
    (folder / "_delta_log" / "_last_checkpoint").write_text("{")
    assert read(lake) == read(lake) == expected(120)
