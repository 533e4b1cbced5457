"""Whole-table write and 1 % merge of TPC-H lineitem: duckrun beside plain deltalake.

    python benchmarks/lineitem.py --scale 1

Every case runs in a process of its own, on a copy of the same table; the time is of the write alone, the peak is the
resident memory of the whole process, sampled every 20 ms. Lower is better; ratios are to duckrun.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from _measure import Meter

import duckrun
from duckrun import MergeSpec, WriteSpec

KEYS = ("l_orderkey", "l_linenumber")
SPILL = 1024**3


def load_tpch(con: duckdb.DuckDBPyConnection) -> None:
    """DuckDB's extension that makes TPC-H's tables, from its wheel."""
    spec = importlib.util.find_spec("duckdb_extension_tpch")
    assert spec is not None and spec.origin is not None, "pip install duckdb-extension-tpch"
    extension = next(Path(spec.origin).parent.rglob("tpch.duckdb_extension"))
    con.execute(f"LOAD '{extension}'")


def generate(folder: Path, scale: float) -> tuple[int, int]:
    """lineitem and a 1 % change of it (half updates, half new keys) as Parquet; the rows of both."""
    with duckdb.connect() as con:
        load_tpch(con)
        con.execute(f"CALL dbgen(sf = {scale})")
        con.execute(f"COPY lineitem TO '{folder}/lineitem.parquet'")
        con.execute(
            f"""COPY (
                SELECT * REPLACE (l_quantity + 1 AS l_quantity) FROM lineitem WHERE l_orderkey % 200 = 7
                UNION ALL
                SELECT * REPLACE (l_orderkey + 1000000000 AS l_orderkey) FROM lineitem WHERE l_orderkey % 200 = 8
            ) TO '{folder}/changes.parquet'"""
        )
        count = [
            con.sql(f"SELECT count(*) FROM '{folder}/{n}.parquet'").fetchall()[0][0] for n in ("lineitem", "changes")
        ]
    return count[0], count[1]


def by_duckrun(table: Path, spec: WriteSpec | MergeSpec, file: Path) -> None:
    with duckrun.connect(table.parent.parent) as s:
        rows = s.engine.cursor().sql(f"SELECT * FROM '{file}'")  # type: ignore[attr-defined]
        s.execute(f"main.{table.name}", spec, rows)


def write_deltalake(folder: Path, table: Path) -> None:
    from deltalake import write_deltalake as write

    write(str(table), duckdb.sql(f"SELECT * FROM '{folder}/lineitem.parquet'").to_arrow_reader(100_000))


def merge_deltalake(folder: Path, table: Path, spill: int | None = None) -> None:
    from deltalake import DeltaTable

    source = duckdb.sql(f"SELECT * FROM '{folder}/changes.parquet'").to_arrow_reader(100_000)
    on = " AND ".join(f"target.{k} = source.{k}" for k in KEYS)
    merge = DeltaTable(str(table)).merge(source, on, source_alias="source", target_alias="target", max_spill_size=spill)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


CASES: dict[str, tuple[str, Callable[[Path, Path], None]]] = {
    "write duckrun": ("write", lambda f, t: by_duckrun(t, WriteSpec("error"), f / "lineitem.parquet")),
    "write deltalake": ("write", write_deltalake),
    "merge duckrun": ("merge", lambda f, t: by_duckrun(t, MergeSpec(KEYS), f / "changes.parquet")),
    "merge deltalake": ("merge", merge_deltalake),
    "merge deltalake, max_spill_size 1 GB": ("merge", lambda f, t: merge_deltalake(f, t, SPILL)),
}


def measure(case: str, folder: Path, table: Path) -> dict[str, Any]:
    """Run one case in this process: seconds and peak bytes. Imports come before the clock starts."""
    import deltalake
    import pandas  # noqa: F401 - DuckDB imports it when the first value is registered

    with Meter() as meter:
        CASES[case][1](folder, table)
    files = pa.table(deltalake.DeltaTable(str(table)).get_add_actions(flatten=True))
    rows = sum(files.column("num_records").to_pylist())
    return {"seconds": meter.seconds, "peak": meter.peak, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor (1: six million rows)")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each case; the fastest counts")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(args.case, args.folder, args.table)))
        return
    folder = Path(tempfile.mkdtemp(prefix="duckrun-bench-"))
    try:
        rows, changed = generate(folder, args.scale)
        print(f"lineitem at scale {args.scale:g}: {rows:,} rows; merge of {changed:,} ({changed / rows:.1%})\n")
        base = folder / "base" / "main" / "lineitem"
        run("write deltalake", folder, base)
        found: dict[str, dict[str, Any]] = {}
        for case, (kind, _) in CASES.items():
            runs = []
            for _ in range(args.repeat):
                table = folder / "run" / "main" / "lineitem"
                shutil.rmtree(folder / "run", ignore_errors=True)
                table.parent.mkdir(parents=True)
                if kind == "merge":
                    shutil.copytree(base, table)
                runs.append(run(case, folder, table))
            found[case] = min(runs, key=lambda r: r["seconds"])
        report(found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(case: str, folder: Path, table: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--case", case, "--folder", str(folder), "--table", str(table)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(found: dict[str, dict[str, Any]]) -> None:
    print(f"{'case':<40}{'seconds':>9}{'ratio':>8}{'peak MB':>10}{'ratio':>8}{'rows':>12}")
    for case, (kind, _) in CASES.items():
        ours, this = found[f"{kind} duckrun"], found[case]
        assert this["rows"] == ours["rows"], f"{case} ended with {this['rows']} rows, duckrun with {ours['rows']}"
        print(
            f"{case:<40}{this['seconds']:>9.2f}{this['seconds'] / ours['seconds']:>8.2f}"
            f"{this['peak'] / 1e6:>10.0f}{this['peak'] / ours['peak']:>8.2f}{this['rows']:>12,}"
        )


if __name__ == "__main__":
    main()
