"""Long and deep statements beside plain DuckDB: seconds of processor, ratio, and what the peak of memory grows by.

    python -m benchmarks.apart.long_texts --repeat 5

Both sides run the same text in turns, in rounds whose order turns round; medians. Each round ends the text otherwise, so that nothing
that is kept by a text is found again. A SELECT is read to its end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable

import duckdb

import duckrun
from benchmarks.apart.measure import MB, Meter


def _chain(form: str, by: str, count: int) -> str:
    return by.join(form.format(i=i) for i in range(count))


SHAPES: dict[str, str] = {
    "SELECT, 1,000 ORs": f"select a from main.t where {_chain('a = {i}', ' or ', 1000)}",
    "SELECT, IN of 10,000": f"select a from main.t where a in ({_chain('{i}', ', ', 10_000)})",
    "SELECT, 2,000 columns": f"select {_chain('a + {i} as c{i}', ', ', 2000)} from main.t",
    "SELECT, CASE of 500": f"select case {_chain('when a = {i} then {i}', ' ', 500)} end as x from main.t",
    "SELECT, 24 nested lists": f"select {'[' * 24}1{']' * 24} as x from main.t",
    "SELECT, 600 UNION ALL": _chain("select a, {i} as b from main.t", " union all ", 600),
    "SELECT, a text of 1 MB": f"select '{'x' * 1_000_000}' as x, a from main.t",
    "CREATE TABLE AS, 4,000 VALUES": f"create or replace table main.w as from (values {_chain('({i}, {i}.5)', ', ', 4000)}) r(a, b)",
    "CREATE TABLE AS, 2,000 columns": f"create or replace table main.w as select {_chain('a + {i} as c{i}', ', ', 2000)} from main.t",
    "CREATE VIEW, 2,000 columns": f"create or replace view main.s as select {_chain('a + {i} as c{i}', ', ', 2000)} from main.t",
    "INSERT, 4,000 VALUES": f"insert into main.v values {_chain('({i}, {i}.5)', ', ', 4000)}",
    "UPDATE, CASE of 500": f"update main.t set a = case {_chain('when a = {i} then {i}', ' ', 500)} else a end",
    "DELETE, 1,000 ORs": f"delete from main.t where {_chain('a = 9{i}', ' or ', 1000)}",
    "DELETE, IN of 10,000": f"delete from main.t where a in ({_chain('9{i}', ', ', 10_000)})",
}


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
            plain.execute(text).fetchall()

        for run in (ours, theirs):
            run("create table main.t as select unnest([1, 2, 700]) as a")
            run("create table main.v (a integer, b double)")
        print("| statement | duckrun ms | DuckDB ms | ratio | duckrun MB | DuckDB MB |\n|---|---|---|---|---|---|")
        for name, text in SHAPES.items():
            sides: dict[Callable[[str], None], list[Meter]] = {ours: [], theirs: []}
            for number in range(repeat):
                for run in (ours, theirs) if number % 2 else (theirs, ours):
                    with Meter(every=0.005) as meter:
                        run(text + " " * number)
                    sides[run].append(meter)
            took = [max(statistics.median(meter.cpu for meter in meters) * 1000, 0.1) for meters in sides.values()]
            grown = [max(meter.grown for meter in meters) / MB for meters in sides.values()]
            print(
                f"| {name} | {took[0]:.1f} | {took[1]:.1f} | {took[0] / took[1]:.1f} | {grown[0]:.0f} | {grown[1]:.0f} |"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
