"""A DuckLake beside the bare statements of DuckDB's extension, turn by turn in one process, so that what else a machine does slows all of them:
``python -m benchmarks.apart.ducklake_turns appends|growth|merge --catalog sqlite|postgres|duckdb --turns N``.

appends: ten rows each, then the start of a session, and its first and second read. growth: appends to a lake of 10,000 commits and to one of 100,
by duckrun, by duckrun with an application transaction each, and bare; the commits before lie in the catalog as an append leaves them, put there in
one go. merge: the first merge of 25,000 rows into a million in a new session, and three more. Medians, and the median of the ratios turn by turn.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import duckrun
from benchmarks.harness.case import Data, Run
from benchmarks.harness.duck import plain
from benchmarks.jobs import ducklake as jobs
from duckrun import AppTransaction, MergeSpec, WriteSpec

OURS, ONCE, BARE, DELTA = "duckrun", "duckrun, exactly once", "bare statements", "duckrun, Delta"
OLD, YOUNG = 10_000, 100
TABLE = "main.t (id BIGINT, note VARCHAR)"
Turn = Callable[[], Any]


class Laps:
    """Seconds of wall clock and of the process's processors, by label and side."""

    def __init__(self) -> None:
        self.of: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)

    def turn(self, label: str, number: int, sides: Mapping[str, Turn]) -> None:
        """Run each side once; who begins changes from turn to turn."""
        names = list(sides)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            self.time(label, name, sides[name])

    def time(self, label: str, side: str, run: Turn) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        made = run()
        self.of[label, side].append((time.perf_counter() - wall, time.process_time() - cpu))
        return made

    def report(self, label: str, one: str, other: str) -> None:
        """Medians of both sides, and of their ratio in the same turn."""
        pairs = list(zip(self.of[label, one], self.of[label, other], strict=True))
        wall, bare = (median(each[side][0] for each in pairs) for side in (0, 1))
        cpu = median(a[1] for a, _ in pairs) / median(b[1] for _, b in pairs)
        turns = median(a[0] / b[0] for a, b in pairs)
        print(
            f"{label}: {one} {wall * 1e3:.1f} ms, {other} {bare * 1e3:.1f} ms; {wall / bare:.2f}, turn by turn {turns:.2f}, CPU {cpu:.2f}"
        )


@contextmanager
def places(kind: str, count: int) -> Iterator[list[tuple[Run, str]]]:
    """So many empty lakes, each with the address of its catalog."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duckrun-turns-")))
        runs = [Run(Data(folder, 0), folder / str(number)) for number in range(count)]
        for run in runs:
            run.lake.mkdir()
        if kind == "postgres":
            from tools.databases import postgres

            server = stack.enter_context(postgres(durable=True))
            yield [(run, server.address(server.database())) for run in runs]
        else:
            yield [(run, f"{kind}:{run.lake}/catalog.{kind}") for run in runs]


def connect(place: tuple[Run, str]) -> duckrun.Session:
    return duckrun.connect(place[0].lake, format="ducklake", catalog=place[1])


def appends(kind: str, turns: int, laps: Laps) -> None:
    with places(kind, 3) as (ours, bare, delta), ExitStack() as stack:
        own = stack.enter_context(connect(ours))
        own.sql(f"CREATE TABLE {TABLE}")
        other = stack.enter_context(duckrun.connect(delta[0].lake))
        other.sql(f"CREATE TABLE {TABLE}")
        con = stack.enter_context(jobs.attached(*bare))
        con.execute(f"CREATE TABLE lake.{TABLE}")
        for number in range(turns):
            rows = jobs.made_rows(number * jobs.TEN)

            def insert(rows: Any = rows) -> None:
                con.register("source", rows)
                con.execute("INSERT INTO lake.main.t SELECT * FROM source")

            def append(session: duckrun.Session, rows: Any = rows) -> None:
                session.execute("main.t", WriteSpec("append"), rows)

            laps.turn(
                "append",
                number,
                {OURS: lambda: append(own), BARE: insert, DELTA: lambda: append(other)},
            )
        stack.pop_all().close()
        for number in range(7):
            laps.turn("start and read", number, {OURS: lambda: _read(laps, OURS, lambda: connect(ours), turns),
                      DELTA: lambda: _read(laps, DELTA, lambda: duckrun.connect(delta[0].lake), turns),
                      BARE: lambda: _read_bare(laps, bare, turns)})  # fmt: skip
    for label in ("append", "start", "read after", "read again"):
        laps.report(label, OURS, BARE)
        laps.report(label, OURS, DELTA)


def _read(laps: Laps, side: str, opened: Callable[[], duckrun.Session], turns: int) -> None:
    def started() -> duckrun.Session:
        session = opened()
        session.sql("SELECT 1").collect()
        return session

    with laps.time("start", side, started) as session:
        for label in ("read after", "read again"):
            found = laps.time(label, side, lambda: session.sql(jobs.READ.format(t="main.t")).collect())
            assert found[0]["n"] == turns * jobs.TEN


def _read_bare(laps: Laps, place: tuple[Run, str], turns: int) -> None:
    with ExitStack() as stack:
        con = laps.time("start", BARE, lambda: stack.enter_context(jobs.attached(*place)))
        for label in ("read after", "read again"):
            found = laps.time(label, BARE, lambda: con.sql(jobs.READ.format(t="lake.main.t")).fetchall())
            assert found[0][0] == turns * jobs.TEN


def growth(kind: str, turns: int, laps: Laps) -> None:
    with places(kind, 2) as lakes, ExitStack() as stack:
        names = {"young": YOUNG, "old": OLD}
        for place, commits in zip(lakes, names.values(), strict=True):
            _filled(place, kind, commits)
        sessions = [stack.enter_context(connect(place)) for place in lakes]
        bare = [stack.enter_context(jobs.attached(*place)) for place in lakes]
        for con in bare:
            con.register("source", jobs.made_rows(0))

        def write(which: int, number: int, once: bool) -> None:
            app = AppTransaction(f"later {number}") if once else None
            sessions[which].execute("main.t", WriteSpec("append", app=app), jobs.made_rows(number))

        sides: Mapping[str, Callable[[int, int], Any]] = {
            OURS: lambda which, number: write(which, number, once=False),
            ONCE: lambda which, number: write(which, number, once=True),
            BARE: lambda which, number: bare[which].execute("INSERT INTO lake.main.t SELECT * FROM source"),
        }
        for side, run in sides.items():
            run(0, -1), run(1, -1)  # what the commits of the others cost
            for number in range(turns):
                laps.turn(side, number, {name: lambda w=which, n=number: run(w, n) for which, name in enumerate(names)})  # noqa: B023
            laps.report(side, "old", "young")


def _filled(place: tuple[Run, str], kind: str, commits: int) -> None:
    """Make a lake whose newest snapshot is of so many commits, with an application transaction of each thousand's."""
    with connect(place) as session:
        session.sql(f"CREATE TABLE {TABLE}")
        session.execute("main.t", WriteSpec("append"), jobs.made_rows(0))
    with plain(f"{kind}_scanner") as con:
        con.execute(f"ATTACH '{place[1].partition(':')[2]}' AS c (TYPE {kind})")
        found = con.execute("SELECT max(snapshot_id), max(next_file_id) - 1 FROM c.ducklake_snapshot").fetchall()
        (last, file), more = found[0], commits - found[0][0]
        each = f"(SELECT CAST(range AS BIGINT) AS n FROM range(1, {more + 1}))"
        snapshot, files = f"WHERE snapshot_id = {last}", f"WHERE data_file_id = {file}"
        con.execute("BEGIN")
        for table, values, where in (
            ("snapshot", "snapshot_id + n AS snapshot_id, next_file_id + n AS next_file_id", snapshot),
            ("snapshot_changes", "snapshot_id + n AS snapshot_id", snapshot),
            ("data_file", "data_file_id + n AS data_file_id, begin_snapshot + n AS begin_snapshot, row_id_start + 10 * n AS row_id_start", files),
            ("file_column_stats", "data_file_id + n AS data_file_id", files),
        ):  # fmt: skip
            con.execute(
                f"INSERT INTO c.ducklake_{table} SELECT s.* REPLACE ({values}) FROM c.ducklake_{table} AS s, {each} {where}"
            )
        con.execute(
            f"UPDATE c.ducklake_table_stats SET record_count = record_count + 10 * {more}, next_row_id = next_row_id + 10 * {more}"
        )
        con.execute("COMMIT")
    with jobs.attached(*place) as con:
        for first in range(0, commits // 1000 * 1000, 1000):
            con.execute(
                f"INSERT INTO lake._duckrun.applied SELECT 'main.t', 'app ' || (range + {first}), 0, range + {first}, '{{}}' FROM range(1000)"
            )


def merge(kind: str, turns: int, laps: Laps) -> None:
    big, source = jobs.made_rows(0, jobs.MILLION), jobs.merge_source(Data(Path(), 0))
    for number in range(turns):
        with places(kind, 2) as (ours, bare), connect(ours) as session, jobs.attached(*bare) as con:
            session.execute("main.t", WriteSpec("error"), big)
            con.register("given", big)
            con.execute("CREATE TABLE lake.main.t AS FROM given")
            con.register("source", source)
            sides = {
                OURS: lambda: session.execute("main.t", MergeSpec(("id",)), source),
                BARE: lambda: con.execute(
                    "MERGE INTO lake.main.t AS t USING source AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note "
                    "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.note)"
                ),
            }
            for label in ("first merge", *["later merge"] * 3):
                laps.turn(label, number, sides)
    for label in ("first merge", "later merge"):
        laps.report(label, OURS, BARE)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("appends", "growth", "merge"))
    parser.add_argument("--catalog", choices=jobs.CATALOGS, default="sqlite")
    parser.add_argument("--turns", type=int, default=100)
    asked = parser.parse_args(words)
    if asked.what == "growth" and asked.catalog == "duckdb":
        parser.error("growth: a catalog in a DuckDB file is for one program at a time; choose sqlite or postgres.")
    {"appends": appends, "growth": growth, "merge": merge}[asked.what](asked.catalog, asked.turns, Laps())


if __name__ == "__main__":
    main()
