"""A DuckLake table whose partitions go in the commit that writes its rows: DuckDB 1.5.5 does not take rows behind RESET PARTITIONED BY."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa

import duckrun
from duckrun import WriteSpec
from tests.lake import rows_of

ROWS = pa.table({"id": [1, 2, 3], "day": ["mon", "mon", "tue"]})


def test_an_overwrite_takes_the_partitions_away_and_a_restore_does(root: Path) -> None:
    with duckrun.connect(root, format="ducklake") as session:
        first = session.execute("t", WriteSpec("error"), ROWS)
        parted = session.execute("t", WriteSpec("overwrite", partition_by=("day",)), ROWS)
        session.table("t").restoreToVersion(first.version)
        assert session.table("t").detail()["partitionColumns"] == []
        assert rows_of(session.scan("t")) == rows_of(ROWS)
        session.table("t").restoreToVersion(parted.version)
        for partition_by, rows in (((), ROWS), (("day",), ROWS), ((), pa.table({"name": ["fig"]}))):
            session.execute("t", WriteSpec("overwrite", partition_by=partition_by), rows)
            assert session.table("t").detail()["partitionColumns"] == list(partition_by)
            assert rows_of(session.scan("t")) == rows_of(rows)
        assert rows_of(session.table("t").toDF(version=parted.version)) == rows_of(ROWS)


ENDED = """
import sys, duckrun
with duckrun.connect(sys.argv[1], format="ducklake") as session:
    session.sql("create table t as select 1 as id, 'a' as p")
    frame = session.sql("from t")
    frame.collect()
    form = session.lake.format
    table = session.table("t").snapshot()
    try:
        with form.transactions.transaction(session.engine.cursor(), table) as work:
            work.execute(f"ALTER TABLE {work.table(table.ref)} SET PARTITIONED BY (p)")
            work.execute(f"ALTER TABLE {work.table(table.ref)} RESET PARTITIONED BY")
            work.execute(f"INSERT INTO {work.table(table.ref)} VALUES (2, 'b')")
    except Exception as error:
        print(type(error).__name__)
    del frame
    print(session.sql("from t").collect())
"""


def test_a_session_outlives_an_error_of_duckdbs_own(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENDED, str(root)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split("\n")) == (
        0,
        ["InternalException", "[{'id': 1, 'p': 'a'}]", ""],
    ), done.stderr
