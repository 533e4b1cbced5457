"""What reading a table costs whose writer made many commits and no checkpoint: the first read of a session and further ones.

    python -m benchmarks.apart.long_log --commits 10000

Beside it, delta_scan() of plain DuckDB, which replays the log with each query. The last read follows one append by duckrun, which
gives the table its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

import duckrun
from benchmarks.apart.measure import timed
from duckrun import WriteSpec
from duckrun.storage.extensions import extension_path

AIM = 1.5
LIVE = 10
QUERY = "select count(*), sum(id) from "


def make_table(folder: Path, commits: int) -> None:
    """A table of as many versions, each with one file more, and one less as soon as there are ten."""
    folder.mkdir(parents=True)
    write_deltalake(folder, rows(0))
    for version in range(1, commits + 1):
        name = f"part-{version}.parquet"
        pq.write_table(rows(version), folder / name)
        file = {"path": name, "partitionValues": {}, "size": (folder / name).stat().st_size, "dataChange": True}
        actions = [{"add": {**file, "modificationTime": 0, "stats": json.dumps({"numRecords": 1})}}]
        if version > LIVE:
            gone = f"part-{version - LIVE}.parquet"
            actions.append({"remove": {"path": gone, "deletionTimestamp": 0, "dataChange": True}})
        (folder / "_delta_log" / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64())})


def plain(folder: Path, version: int, repeat: int) -> list[float]:
    """Seconds of the same query by DuckDB alone."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        connection.execute(f"LOAD '{extension_path('delta').as_posix()}'")
        query = f"{QUERY} delta_scan('{folder.as_uri()}', version => {version})"
        return [timed(lambda: connection.execute(query).fetchall()) for _ in range(repeat)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve() / "lake"
        folder = root / "main" / "t"
        make_table(folder, arguments.commits)
        alone = plain(folder, arguments.commits, arguments.repeat)
        with duckrun.connect(root) as session:
            first, *further = [timed(lambda: session.sql(f"{QUERY} t").collect()) for _ in range(arguments.repeat + 1)]
            chosen = [timed(lambda: session.sql(f"{QUERY} t where id > 5").collect()) for _ in range(arguments.repeat)]
            write_deltalake(folder, rows(-1), mode="append")
            moved = timed(lambda: session.sql(f"{QUERY} t").collect())
            session.execute("main.t", WriteSpec("append"), rows(-2))
            mended = timed(lambda: session.sql(f"{QUERY} t").collect())
    print(f"| {arguments.commits:,} commits without a checkpoint | seconds |\n|---|---|")
    for name, seconds in (
        ("`delta_scan()` of plain DuckDB, each query, median", statistics.median(alone)),
        ("the first read of a session", first),
        ("a further read, median", statistics.median(further)),
        ("a further read with a filter, for which DuckDB asks the log again, median", statistics.median(chosen)),
        ("a read after a commit by somebody else", moved),
        ("a read after an append by duckrun", mended),
    ):
        print(f"| {name} | {seconds:.2f} |")
    return 0 if statistics.median(further) < AIM else 1


if __name__ == "__main__":
    sys.exit(main())
