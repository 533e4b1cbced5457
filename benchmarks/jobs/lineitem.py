"""TPC-H's lineitem as Parquet and as a Delta table, changes to merge into it, and the rows to be expected after that."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness.case import Data
from benchmarks.harness.duck import parquet, plain

KEYS = ("l_orderkey", "l_linenumber")
RECENT = 60_000
NAME = "lineitem"
MARKED = "lineitem_marked"

_ROWS_A_SCALE = 6_000_000


def same_keys(one: str, other: str) -> str:
    """SQL for two rows with one key."""
    return " AND ".join(f"{one}.{key} = {other}.{key}" for key in KEYS)


def prepare(data: Data) -> None:
    """lineitem.parquet, as dbgen orders it."""
    with making(data, NAME) as file:
        if file:
            with plain("tpch") as con:
                con.execute(f"SET temp_directory = '{data.folder.as_posix()}/spill'")
                con.execute(f"CALL dbgen(sf = {data.scale})")
                con.execute(f"COPY lineitem TO '{file}' (FORMAT parquet)")


def prepare_base(data: Data) -> None:
    """And the Delta table of it, by deltalake: the side that all others are measured against lays it out."""
    prepare(data)
    if not data.base(NAME).exists():
        from benchmarks.jobs import tuned

        with plain() as con:
            rows = con.sql(f"FROM {parquet(data.file(NAME))}").to_arrow_reader(100_000)
            tuned.write(data.base(f"{NAME}.part"), rows)
        data.base(f"{NAME}.part").rename(data.base(NAME))


def prepare_random(data: Data, percent: int) -> None:
    """A change of so many of a hundred rows at random, in random order: nine of ten exist, one is new, its key among the others."""
    prepare_base(data)
    with making(data, random_name(percent)) as file:
        if file:
            copy(
                data,
                f"""FROM (SELECT * REPLACE (CAST(l_quantity + 1 AS DECIMAL(15, 2)) AS l_quantity) FROM {{lineitem}}
                    WHERE hash(l_orderkey, l_linenumber, 7) % 1000 < {9 * percent}
                    UNION ALL SELECT * REPLACE (l_linenumber + 10 AS l_linenumber) FROM {{lineitem}}
                    WHERE hash(l_orderkey, l_linenumber, 8) % 1000 < {percent}) ORDER BY hash(l_orderkey, l_linenumber, 9)""",
                file,
            )


def prepare_recent(data: Data, rows: int) -> None:
    """A change of about so many rows of the latest orders: nine of ten exist, one is of an order yet later."""
    prepare_base(data)
    with making(data, recent_name(rows)) as file:
        if file:
            latest = f"(SELECT * FROM {{lineitem}} ORDER BY l_orderkey DESC, l_linenumber LIMIT {rows * 9 // 10})"
            copy(
                data,
                f"""SELECT * REPLACE (CAST(l_quantity + 1 AS DECIMAL(15, 2)) AS l_quantity) FROM {latest}
                    UNION ALL SELECT * REPLACE (l_orderkey + 1000000000 AS l_orderkey) FROM {latest}
                    WHERE hash(l_orderkey, l_linenumber) % 9 = 0""",
                file,
            )


def prepare_mixed(data: Data) -> None:
    """A random change of 1 % with a column ``op``: of the rows that exist one of five goes, the others are updated."""
    prepare_random(data, 1)
    with making(data, "mixed") as file:
        if file:
            with plain() as con:
                op = "CASE WHEN l_linenumber <= 7 AND hash(l_orderkey) % 5 = 0 THEN 'delete' ELSE 'upsert' END AS op"
                con.execute(
                    f"COPY (SELECT *, {op} FROM {parquet(data.file(random_name(1)))}) TO '{file}' (FORMAT parquet)"
                )


def prepare_marked(data: Data) -> None:
    """A Delta table from which 1 % of the rows, at random, went by deletion vectors."""
    prepare_base(data)
    place = data.base(MARKED)
    if not place.exists():
        import shutil

        import duckrun
        from benchmarks.harness.rounds import copy_table

        part = data.folder / "part"
        shutil.rmtree(part, ignore_errors=True)
        copy_table(data.base(NAME), part / "main" / "t")
        with duckrun.connect(part) as s:
            keys = duckrun.SQL(f"SELECT {', '.join(KEYS)} FROM {{}} WHERE {GONE}".format(parquet(data.file(NAME))))
            gone = duckrun.MergeSpec(KEYS, (duckrun.MergeClause("matched_delete"),), merge_mode="deletion_vectors")
            s.execute("main.t", gone, keys)
        (part / "main" / "t").rename(place)


GONE = "hash(l_orderkey, l_linenumber, 7) % 100 = 0"
"""SQL for the rows that `prepare_marked` deletes."""


def random_name(percent: int) -> str:
    return f"random-{percent}"


def recent_name(rows: int) -> str:
    return f"recent-{rows}"


def recent_rows(data: Data, percent: int) -> int:
    """How many rows a change of so many of a hundred has."""
    return int(_ROWS_A_SCALE * data.scale * percent / 100)


def merged(data: Data, changes: str) -> str:
    """SQL for lineitem after a change is merged into it."""
    change = parquet(data.file(changes))
    return f"(SELECT * FROM {parquet(data.file(NAME))} AS t ANTI JOIN {change} AS c USING ({', '.join(KEYS)}) UNION ALL SELECT * FROM {change})"


def merged_mixed(data: Data) -> str:
    """SQL for lineitem after the mixed change."""
    change, keys = parquet(data.file("mixed")), ", ".join(KEYS)
    kept = f"SELECT * FROM {parquet(data.file(NAME))} AS t ANTI JOIN {change} AS c USING ({keys})"
    return f"({kept} UNION ALL SELECT * EXCLUDE op FROM {change} WHERE op = 'upsert')"


def copy(data: Data, query: str, file: str) -> None:
    """Write a query over ``{lineitem}`` to a Parquet file."""
    with plain() as con:
        con.execute(f"SET temp_directory = '{data.folder.as_posix()}/spill'")
        con.execute(f"COPY ({query.format(lineitem=parquet(data.file(NAME)))}) TO '{file}' (FORMAT parquet)")


@contextlib.contextmanager
def making(data: Data, name: str) -> Iterator[str | None]:
    """Where to write a file, which has its name only when it is whole; None, if it is there."""
    whole = Path(data.file(name))
    if whole.exists():
        yield None
        return
    part = whole.with_suffix(".part")
    yield part.as_posix()
    os.replace(part, whole)
