"""Long and deep statements beside plain DuckDB: seconds of processor, ratio, and what the peak of memory grows by.

    python -m benchmarks.apart.long_texts --repeat 5

Both sides run the same text in turns, in rounds whose order turns round; medians. Each round ends the text otherwise, so that nothing
that is kept by a text is found again. A SELECT is read to its end, as Arrow. Each statement is run with one of its parts too: DuckDB's
tables are in memory and duckrun's are of Delta, whose log is read and written however short a text is. ``by length`` is the ratio of what
the other parts add.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence

import duckdb

import duckrun
from benchmarks.apart.measure import MB, Meter


def _chain(form: str, by: str, count: int) -> str:
    return by.join(form.format(i=i) for i in range(count))


SHAPES: dict[str, tuple[Callable[[int], str], int]] = {
    "SELECT, 1,000 ORs": (lambda n: f"select a from main.t where {_chain('a = {i}', ' or ', n)}", 1000),
    "SELECT, IN of 10,000": (lambda n: f"select a from main.t where a in ({_chain('{i}', ', ', n)})", 10_000),
    "SELECT, 2,000 columns": (lambda n: f"select {_chain('a + {i} as c{i}', ', ', n)} from main.t", 2000),
    "SELECT, CASE of 500": (
        lambda n: f"select case {_chain('when a = {i} then {i}', ' ', n)} end as x from main.t",
        500,
    ),
    "SELECT, 24 nested lists": (lambda n: f"select {'[' * n}1{']' * n} as x from main.t", 24),
    "SELECT, 48 nested lists": (lambda n: f"select {'[' * n}1{']' * n} as x from main.t", 48),
    "SELECT, CASE of 2,000": (
        lambda n: f"select case {_chain('when a = {i} then {i}', ' ', n)} end as x from main.t",
        2000,
    ),
    "SELECT, 600 UNION ALL": (lambda n: _chain("select a, {i} as b from main.t", " union all ", n), 600),
    "SELECT, a text of 1 MB": (lambda n: f"select '{'x' * n}' as x, a from main.t", 1_000_000),
    "CREATE TABLE AS, 4,000 VALUES": (
        lambda n: f"create or replace table main.w as from (values {_chain('({i}, {i}.5)', ', ', n)}) r(a, b)",
        4000,
    ),
    "CREATE TABLE AS, 2,000 columns": (
        lambda n: f"create or replace table main.w as select {_chain('a + {i} as c{i}', ', ', n)} from main.t",
        2000,
    ),
    "CREATE VIEW, 2,000 columns": (
        lambda n: f"create or replace view main.s as select {_chain('a + {i} as c{i}', ', ', n)} from main.t",
        2000,
    ),
    "INSERT, 4,000 VALUES": (lambda n: f"insert into main.v values {_chain('({i}, {i}.5)', ', ', n)}", 4000),
    "UPDATE, CASE of 500": (
        lambda n: f"update main.t set a = case {_chain('when a = {i} then {i}', ' ', n)} else a end",
        500,
    ),
    "UPDATE, CASE of 2,000": (
        lambda n: f"update main.t set a = case {_chain('when a = {i} then {i}', ' ', n)} else a end",
        2000,
    ),
    "DELETE, 1,000 ORs": (lambda n: f"delete from main.t where {_chain('a = 9{i}', ' or ', n)}", 1000),
    "DELETE, IN of 10,000": (lambda n: f"delete from main.t where a in ({_chain('9{i}', ', ', n)})", 10_000),
}


def _in_turns(sides: Sequence[Callable[[str], None]], text: str, repeat: int) -> list[list[Meter]]:
    """What each side takes for a text, once for each round."""
    taken: list[list[Meter]] = [[] for _ in sides]
    for number in range(repeat):
        for run, meters in list(zip(sides, taken, strict=True))[:: 1 if number % 2 else -1]:
            with Meter(every=0.005) as meter:
                run(text + " " * number)
            meters.append(meter)
    return taken


def _milliseconds(meters: Sequence[Meter]) -> float:
    return max(statistics.median(meter.cpu for meter in meters) * 1000, 0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    with (
        tempfile.TemporaryDirectory() as folder,
        duckrun.connect(f"{folder}/lake") as session,
        duckdb.connect() as plain,
    ):

        def ours(text: str) -> None:
            result = session.sql(text)
            if text.startswith("select"):
                result.toArrow()

        def theirs(text: str) -> None:
            result = plain.execute(text)
            if text.startswith("select"):
                result.to_arrow_table()

        for run in (ours, theirs):
            run("create table main.t as select unnest([1, 2, 700]) as a")
            run("create table main.v (a integer, b double)")
        print(
            "| statement | duckrun ms | DuckDB ms | ratio | by length | duckrun MB | DuckDB MB |\n|---|---|---|---|---|---|---|"
        )
        for name, (shape, count) in SHAPES.items():
            short, long = (_in_turns([ours, theirs], shape(size), repeat) for size in (1, count))
            took, least = ([_milliseconds(meters) for meters in sides] for sides in (long, short))
            added = [one - other for one, other in zip(took, least, strict=True)]
            by_length = f"{added[0] / added[1]:.1f}" if added[1] >= 1 else ""  # DuckDB takes no time for the length
            grown = [max(meter.grown for meter in meters) / MB for meters in long]
            print(
                f"| {name} | {took[0]:.1f} | {took[1]:.1f} | {took[0] / took[1]:.1f} | {by_length} | {grown[0]:.0f} | {grown[1]:.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
