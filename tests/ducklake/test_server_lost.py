"""The server of a catalog goes away while a lake is written: what fails says so, nothing half is there, and the same run again writes once."""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import duckrun
from duckrun import AppTransaction, Session, StorageError, WriteSpec
from tests.drawing import seed
from tests.ducklake.plain import attached
from tools.databases import PASSWORD, Server, postgres

CUTS, CRASHES = 12, 2


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def both(session: Session, number: int) -> None:
    """One transaction over two tables, which is written once however often it is asked for."""
    app = AppTransaction("both", number)
    with session.transaction():
        session.execute("main.a", WriteSpec("append", app=app), rows(number))
        session.execute("main.b", WriteSpec("append", app=app), rows(number))


def until_written(session: Session, number: int) -> list[str]:
    """What was said before it went through."""
    said: list[str] = []
    while True:
        try:
            both(session, number)
            return said
        except StorageError as error:
            assert PASSWORD not in "".join(traceback.format_exception(error))
            said.append(str(error))
            assert len(said) < 100
            time.sleep(0.1)  # the server may still be recovering
            time.sleep(0.02)


def cut(server: Server, database: str, *, one: bool = False) -> None:
    """End connections to a database, as an administrator does, or a server that has too little memory."""
    listed = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' ORDER BY random()"
    server.run(listed + (" LIMIT 1" if one else ""))


def check(root: Path, catalog: str, count: int) -> None:
    """Both tables have the same rows, each once."""
    with attached(root, catalog) as plain:
        for table in "ab":
            assert plain.sql(f"select id from lake.main.{table} order by 1").fetchall() == [(n,) for n in range(count)]


def test_a_connection_that_is_cut_is_opened_again_or_named(
    tmp_path: Path, postgres_server: Server, postgres_catalog: str
) -> None:
    root, database = tmp_path / "lake", postgres_catalog.rpartition("dbname=")[2]
    with duckrun.connect(root, format="ducklake", catalog=postgres_catalog) as session:
        both(session, 0)
        frame = session.table("main.a").toDF()
        for statement in ("from main.a", "insert into main.a values (1)", "delete from main.a where id = 1"):
            cut(postgres_server, database)
            session.sql(statement)  # between two statements nobody notices
        cut(postgres_server, database)
        assert frame.count() == 1 and len(session.snapshots(1)) == 1

        session.sql("begin")
        session.sql("insert into main.a values (1)")
        cut(postgres_server, database)
        said = r"connection to the .*catalog.* was lost \(.*Nothing was written"
        with pytest.raises(StorageError, match=said) as lost:
            session.sql("delete from main.b where id = 0")
        assert PASSWORD not in "".join(traceback.format_exception(lost.value))
        session.sql("rollback")

        session.sql("begin")
        session.sql("insert into main.a values (1)")
        session.sql("insert into main.b values (1)")
        cut(postgres_server, database)
        with pytest.raises(StorageError, match=r"was not committed: the connection .* was lost .*Nothing was written"):
            session.sql("commit")
        check(root, postgres_catalog, 1)
        both(session, 1)
        both(session, 1)
    check(root, postgres_catalog, 2)


@pytest.mark.kills
def test_a_server_that_is_cut_off_or_crashes_in_the_middle_leaves_whole_transactions(
    tmp_path: Path, figures: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    rng, root = random.Random(seed()), tmp_path / "lake"
    with postgres(durable=True) as server:
        database = server.database()
        catalog = server.address(database)
        with duckrun.connect(root, format="ducklake", catalog=catalog) as session:
            both(session, 0)
            usual = time.monotonic()
            both(session, 1)
            usual, failed = time.monotonic() - usual, 0

            def trouble(number: int, after: float) -> None:
                time.sleep(after)
                if number % ((CUTS + CRASHES) // CRASHES):
                    cut(server, database, one=number % 2 == 0)
                else:  # an immediate shutdown, after which the server recovers from its log
                    server.program.end(signal.SIGQUIT)
                    server.program.start()

            for number in range(2, 2 + CUTS + CRASHES):
                thread = threading.Thread(target=trouble, args=(number, rng.uniform(0, usual)))
                thread.start()
                said = until_written(session, number)
                thread.join()
                failed += bool(said)
                assert all("lost" in text or "cannot be reached" in text for text in said), said
                check(root, catalog, number + 1)
    assert PASSWORD not in caplog.text
    figures(f"{failed} of {CUTS + CRASHES} transactions over two tables were cut off, and then written once")
