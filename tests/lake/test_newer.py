"""Lakes that a newer version of the package wrote: what this version does not know is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

import duckrun
from duckrun import DuckrunError, StorageError, UnsupportedFeature
from duckrun.session import Session
from duckrun.storage.extensions import extension_path
from duckrun.values.cursors import Offsets


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    with duckrun.connect(root) as s:
        s.sql("create table orders as select range as id from range(3)")
        s.sql("create view few as select id from orders where id < 2")
    return root


def rewrite(file: Path, **values: Any) -> Path:
    """Give fields to a record, as a newer version of the package may."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
    return file


@pytest.mark.parametrize(
    ("values", "named"),
    [({"materialized": True}, "materialized"), ({"kind": "stream"}, "a definition of kind 'stream'")],
)
def test_a_definition_is_refused(root: Path, values: dict[str, Any], named: str) -> None:
    file = rewrite(root / "main/_duckrun/few.json", **values)
    with duckrun.connect(root) as s:
        assert s.sql("select count(*) as n from orders").collect() == [{"n": 3}]
        for statement in ("select * from few", "create or replace view few as select 1 as x", "drop view few"):
            with pytest.raises(UnsupportedFeature, match="Upgrade duckrun-dagster") as refused:
                s.sql(statement)
            assert str(file) in str(refused.value) and named in str(refused.value)
    assert json.loads(file.read_text()).items() >= values.items()


def test_a_damaged_definition_is_no_newer_one(root: Path) -> None:
    file = root / "main/_duckrun/few.json"
    for text in ("{", "[]", '{"kind": "view"}', '{"kind": "location"}'):
        file.write_text(text)
        with duckrun.connect(root) as s, pytest.raises(StorageError, match="few.json cannot be read"):
            s.sql("select * from few")


@pytest.fixture
def alter_protocol(root: Path) -> Callable[..., None]:
    """Commit a protocol to the table, as a newer writer may."""

    def alter(**protocol: Any) -> None:
        log = root / "main/orders/_delta_log"
        version = len(list(log.glob("*.json")))
        info = {"commitInfo": {"timestamp": 1, "operation": "UPGRADE"}}
        lines = [json.dumps(info), json.dumps({"protocol": protocol})]
        (log / f"{version:020d}.json").write_text("\n".join(lines))

    return alter


WRITES: tuple[Callable[[Session], object], ...] = (
    lambda s: s.sql("insert into orders values (9)"),
    lambda s: s.sql("delete from orders where id = 1"),
    lambda s: s.sql("update orders set id = 9 where id = 1"),
    lambda s: s.sql("alter table orders add column v int"),
    lambda s: s.table("orders").optimize().executeCompaction(),
    lambda s: s.table("orders").vacuum(),
    lambda s: s.table("orders").restoreToVersion(0),
)


def test_an_unknown_writer_feature_is_read_and_not_written(root: Path, alter_protocol: Callable[..., None]) -> None:
    alter_protocol(minReaderVersion=1, minWriterVersion=7, writerFeatures=["fromTheFuture"])
    with duckrun.connect(root) as s:
        assert s.sql("select count(*) as n from orders").collect() == [{"n": 3}]
        for write in WRITES:
            with pytest.raises(UnsupportedFeature, match="fromTheFuture"):
                write(s)
        assert s.snapshot("main.orders").version == 1
    with duckrun.connect(root, branch="pr") as s, pytest.raises(UnsupportedFeature, match="fromTheFuture"):
        s.sql("delete from orders")


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        (
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["unread"], "writerFeatures": ["unread"]},
            "unread",
        ),
        ({"minReaderVersion": 4, "minWriterVersion": 8}, "version"),
    ],
)
def test_an_unknown_reader_feature_is_refused(
    root: Path, alter_protocol: Callable[..., None], protocol: dict[str, Any], named: str
) -> None:
    alter_protocol(**protocol)
    reads: tuple[Callable[[Session], object], ...] = (
        lambda s: s.sql("select * from orders").collect(),
        lambda s: s.sql("select * from few").collect(),
        lambda s: s.table("orders").toDF().toArrow(),
        lambda s: s.table("orders").changes("min_delta", from_version=0).collect(),
    )
    with duckrun.connect(root) as s:
        for use in (*reads, *WRITES):
            with pytest.raises(DuckrunError, match=named) as refused:
                use(s)
            assert "orders" in str(refused.value)


def test_offsets_of_a_consumer_are_refused() -> None:
    text = '{"number": 1, "after": 0, "whole": false, "at": 1, "ranges": {}}'
    assert Offsets.from_json(text, "a").number == 1
    of_newer = json.loads(text) | {"watermark": 7}
    with pytest.raises(UnsupportedFeature, match=r"The file a/1.json has watermark.*Upgrade"):
        Offsets.from_json(json.dumps(of_newer), "a/1.json")
    read = {"from_version": 0, "to_version": 1, "table_id": "x", "rows": 7}
    with pytest.raises(UnsupportedFeature, match="has rows"):
        Offsets.from_json(json.dumps({**json.loads(text), "ranges": {"main.a": read}}), "a/1.json")


def test_a_branch_is_refused(root: Path) -> None:
    with duckrun.connect(root, branch="pr") as s:
        s.sql("delete from orders where id = 0")
    record = root / "_duckrun/branches/pr.json"
    (line,) = root.glob("main/orders/_branches/*/branch.json")
    for file in (record, line):
        before = file.read_text()
        rewrite(file, protected=True)
        with duckrun.connect(root) as main:
            assert main.sql("select count(*) as n from orders").collect() == [{"n": 3}]
            for use in (main.publish, main.discard, main.rebase):
                with pytest.raises(UnsupportedFeature, match=f"{file}.*protected"):
                    use("pr")
        with duckrun.connect(root, branch="pr") as s, pytest.raises(UnsupportedFeature, match="protected"):
            s.sql("delete from orders")
        file.write_text(before)
    with duckrun.connect(root) as main:
        assert main.publish("pr").versions == {"main.orders": 1}


def test_an_unfinished_publish_of_another_kind_is_left_alone(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    pending = root / "_duckrun/publish/pending"
    pending.mkdir(parents=True)
    branch = {"name": "pr", "id": "1", "created": 1}
    (pending / "abc.json").write_text(json.dumps({"branch": branch, "created": 1, "work": "squash"}))
    with duckrun.connect(root, branch="other") as s:
        s.sql("delete from orders where id = 1")
    with duckrun.connect(root) as s:
        s.sql("delete from orders where id = 0")  # a write to main goes on, and warns
        assert "abc.json has work 'squash'" in caplog.text
        with pytest.raises(UnsupportedFeature, match=r"abc.json has work 'squash'"):
            s.publish("other")


def test_an_extension_of_another_duckdb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "duckdb_extension_outdated"
    (old / "extensions/v1.0.0").mkdir(parents=True)
    (old / "__init__.py").touch()
    (old / "extensions/v1.0.0/outdated.duckdb_extension").touch()
    monkeypatch.syspath_prepend(tmp_path)
    wanted = f"duckdb-extension-outdated is not of v{duckdb.__version__}: install duckdb-extension-outdated=="
    with pytest.raises(StorageError, match=wanted):
        extension_path("outdated")
