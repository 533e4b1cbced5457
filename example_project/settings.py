"""Settings of the example: its folders, its lake, and the months that land."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

# Dagster warns of these at every asset: backfill policies, code references, owners of many assets.
warnings.filterwarnings("ignore", message=".* is currently in (beta|preview)")

PACKAGE = Path(__file__).resolve().parent
DBT_FOLDER = PACKAGE / "dbt"

# duckdb: Spark writes the PySpark assets, DuckDB everything else. spark: Spark writes everything,
# into a lake of its own.
ENGINE: Any = os.environ.setdefault("DUCKRUN_EXAMPLE_ENGINE", "duckdb")
if ENGINE not in ("duckdb", "spark"):
    raise SystemExit(
        f"DUCKRUN_EXAMPLE_ENGINE is {ENGINE!r}; the example runs on duckdb (Spark where an asset asks for it) or "
        "on spark."
    )

# delta, or ducklake: the same assets in a separate lake whose catalog is a SQLite file.
FORMAT: Any = os.environ.setdefault("DUCKRUN_EXAMPLE_FORMAT", "delta")
if FORMAT not in ("delta", "ducklake"):
    raise SystemExit(f"DUCKRUN_EXAMPLE_FORMAT is {FORMAT!r}; the example's lake is of format delta or ducklake.")
STORED = "deltalake" if FORMAT == "delta" else "ducklake"  # Dagster's name of the kind, which has an icon

# auto, or delta_rs: it writes DuckDB's data files where it can, in a separate lake.
WRITER: Any = os.environ.setdefault("DUCKRUN_EXAMPLE_WRITER", "auto")
if WRITER not in ("auto", "delta_rs"):
    raise SystemExit(f"DUCKRUN_EXAMPLE_WRITER is {WRITER!r}; the data files are made by auto (DuckDB) or delta_rs.")

# spark: spark.table() reads and saveAsTable() writes the refined flights, in a separate lake.
NAMES: Any = os.environ.setdefault("DUCKRUN_EXAMPLE_NAMES", "")
if NAMES not in ("", "spark"):
    raise SystemExit(
        f"DUCKRUN_EXAMPLE_NAMES is {NAMES!r}; spark has an asset use the names of tables in PySpark, "
        "and nothing else is known."
    )
if NAMES and FORMAT != "delta":
    raise SystemExit(
        "DUCKRUN_EXAMPLE_NAMES: the tables of a DuckLake have no names in Spark; leave out one of NAMES and FORMAT."
    )

# transform writes a branch and publishes it after its checks. DuckDB alone writes branches.
PUBLISHES = (ENGINE, FORMAT, WRITER) == ("duckdb", "delta", "auto")

# These variables are set here because dbt's profile reads them: the profile names the lake.
_HOMES = {("spark", "delta"): ".spark", ("duckdb", "ducklake"): ".ducklake", ("spark", "ducklake"): ".spark_ducklake"}
_HOME = PACKAGE / (".names" if NAMES else ".delta_rs" if WRITER != "auto" else _HOMES.get((ENGINE, FORMAT), ""))
HOME = Path(os.environ.setdefault("DUCKRUN_EXAMPLE_HOME", str(_HOME))).expanduser().resolve()
os.environ["DUCKRUN_EXAMPLE_HOME"] = str(HOME)

LAKE = HOME / ".lake"
LANDING = HOME / ".landing"
# DUCKRUN_BRANCH: a branch of the lake, with a copy of Dagster's history and a report of its own.
BRANCH = os.environ.get("DUCKRUN_BRANCH", "")
_OF_BRANCH = f"-{BRANCH}" if BRANCH else ""
MAIN_DAGSTER_HOME = HOME / ".dagster"
DAGSTER_HOME = HOME / f".dagster{_OF_BRANCH}"
REPORTED = LANDING / "reported.csv"
REPORT = HOME / "report" / f"flights_2013{_OF_BRANCH}.html"

YEAR = 2013

# dbt is started by name; this finds it in an environment that is not activated, too.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

# For tests: every n-th flight of January and February, with March as the next month.
SAMPLE = int(os.environ.get("DUCKRUN_EXAMPLE_SAMPLE", "1"))
FIRST_MONTHS = range(1, 12) if SAMPLE == 1 else range(1, 3)
NEXT_MONTHS = range(12, 13) if SAMPLE == 1 else range(3, 4)
