"""What the Spark engine alone does: its session, frames of its own, and exactly once beside other writers."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun.engines.spark.engine import SparkEngine
from duckrun.engines.spark.process.checks import java
from duckrun.engines.spark.process.session import spark_session
from duckrun.engines.spark.table_write import SparkWrite
from duckrun.engines.tabular.values import is_of_spark
from duckrun.errors import (
    InvalidConfig,
    SchemaMismatch,
    UnsupportedFeature,
)
from duckrun.lake.lake import Lake
from duckrun.run.transaction import Transaction
from duckrun.sql.names import parse_query, replace_tables
from duckrun.values.rows import (
    AppTransaction,
    Commit,
    DeleteInsertSpec,
    DeleteSpec,
    MergeClause,
    MergeSpec,
    ReadSpec,
    WriteSpec,
)
from tests.engines.type_cases import KINDS

needs_spark = pytest.mark.spark
SPARK_AT = {"remote" if "DUCKRUN_TEST_SPARK_REMOTE" in os.environ else "master": "local[2]"}


class Workbench:
    """One table of a lake, written and read by the Spark engine."""

    def __init__(self, root: Path, spark: Any) -> None:
        self.lake = Lake(root)
        self.spark = spark
        self.engine = SparkEngine(self.lake, spark)
        self.ref = self.lake.parse("sales.orders")

    def run(self, spec: Any, source: Any = None) -> Commit:
        if isinstance(source, list):
            source = pa.Table.from_pylist(source)
        return self.engine.execute(spec, source, Transaction(self.lake, self.ref, app=spec.app))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.engine.scan(self.lake.snapshot(self.ref), ReadSpec(columns=columns or None))
        return sorted((tuple(row.values()) for row in frame.collect()), key=repr)

    @property
    def version(self) -> int | None:
        return self.lake.format.snapshot(self.ref).version if self.lake.format.exists(self.ref) else None


@pytest.fixture
def bench(tmp_path: Path, spark: Any) -> Workbench:
    return Workbench(tmp_path / "lake", spark)


ORDERS = [{"id": 1, "day": "a", "v": 10.0}, {"id": 2, "day": "b", "v": 20.0}]


@pytest.fixture
def orders(bench: Workbench) -> Workbench:
    bench.run(WriteSpec("error", partition_by=("day",)), ORDERS)
    return bench


# -- writes


@needs_spark
def test_a_fenced_write_on_an_object_store_names_the_engine_that_can(spark: Any) -> None:
    lake = Lake("s3://bucket/lake", storage_options={"AWS_REGION": "eu-west-1"})
    ref = lake.at("s3://bucket/lake/sales/orders")
    with pytest.raises(UnsupportedFeature, match="engine: duckdb"):
        SparkEngine(lake, spark).execute(
            WriteSpec("safeappend", read_version=0), pa.table({"a": [1]}), Transaction(lake, ref)
        )


@needs_spark
def test_a_row_that_breaks_a_constraint_is_refused(orders: Workbench) -> None:
    orders.spark.sql(f"ALTER TABLE delta.`{orders.ref.location}` ADD CONSTRAINT positive CHECK (v > 0)")
    with pytest.raises(SchemaMismatch, match="sales.orders: a row breaks a constraint.*positive"):
        orders.run(WriteSpec("append"), [{"id": 3, "day": "c", "v": -1.0}])
    assert orders.version == 1


# -- merge


@needs_spark
def test_a_twin_that_commits_first_does_not_make_a_skipped_write_look_done(orders: Workbench) -> None:
    app = AppTransaction("twin", 0)
    transaction = Transaction(orders.lake, orders.ref, app=app)
    original = orders.lake.format.find_commit
    calls = []

    def blind_once(ref: Any, wanted: AppTransaction, newest: Any = None) -> Commit | None:
        calls.append(wanted)
        if len(calls) == 1:  # the twin commits between the check and Spark's own
            frame = orders.spark.createDataFrame([(8, "t", 8.0)], "id long, day string, v double")
            frame.write.format("delta").mode("append").option("txnAppId", "twin").option("txnVersion", "0").save(
                ref.location
            )
            return None
        return original(ref, wanted)

    orders.lake.format.find_commit = blind_once  # type: ignore[method-assign]
    commit = orders.engine.execute(WriteSpec("append", app=app), pa.Table.from_pylist(ORDERS), transaction)
    assert (commit.replayed, commit.version, orders.version) == (True, 1, 1)


@needs_spark
def test_application_ids_do_not_leak_between_writes_that_run_at_once(bench: Workbench) -> None:
    from concurrent.futures import ThreadPoolExecutor

    refs = [bench.lake.parse(f"sales.t{i}") for i in range(4)]
    specs: list[Any] = [MergeSpec(("id",)), WriteSpec("append"), DeleteInsertSpec(("id",)), WriteSpec("append")]
    apps = [AppTransaction("a", 0), None, AppTransaction("c", 0), AppTransaction("d", 0)]

    def work(i: int) -> None:
        source = pa.Table.from_pylist(ORDERS)
        for spec, app in ((WriteSpec("error"), None), (specs[i], apps[i])):
            bench.engine.execute(spec, source, Transaction(bench.lake, refs[i], app=app))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    committed = [bench.lake.format.record(ref, 1).transactions for ref in refs]  # type: ignore[union-attr]
    assert committed == [() if app is None else (app,) for app in apps]


# -- reading


@needs_spark
def test_a_session_on_spark_reads_and_writes_by_name(bench: Workbench) -> None:
    import duckrun
    from duckrun import SQL

    with duckrun.connect(bench.lake.root, engine="spark", spark=bench.spark) as session:
        session.execute("sales.orders", WriteSpec("error"), pa.Table.from_pylist(ORDERS))
        commit = session.execute("sales.large", WriteSpec("error"), SQL("select id, v from sales.orders where v > 15"))
        assert (commit.engine, commit.rows_inserted) == ("spark", 1)
        frame = session.sql("select sum(v) as total from sales.large")
        assert (frame.engine, frame.collect()) == ("spark", [{"total": 20.0}])
        frame.createOrReplaceTempView("sums")
        session.register("factors", pa.table({"factor": [2.0]}))
        assert session.sql("select total * factor as x from sums, factors").collect() == [{"x": 40.0}]
    with duckrun.connect(bench.lake.root) as session:  # the other engine reads the same
        assert session.sql("select * from sales.large").collect() == [{"id": 2, "v": 20.0}]


@needs_spark
def test_a_read_keeps_its_version_while_the_table_moves(orders: Workbench) -> None:
    snapshot = orders.lake.snapshot(orders.ref)
    scan = orders.engine.scan(snapshot, ReadSpec())
    tree = parse_query(
        "with o as (select * from sales.orders) select sales.orders.id, o.id // 2 as w from sales.orders join o using (id)",
        "duckdb",
    )
    query = orders.engine.select(replace_tables(tree, lambda table: orders.engine.pinned(snapshot)))
    orders.run(WriteSpec("overwrite"), [{"id": 9, "day": "z", "v": 0.0}])
    assert sorted(row["id"] for row in scan.collect()) == [1, 2]
    assert sorted((row["id"], row["w"]) for row in query.collect()) == [(1, 0), (2, 1)]
    assert query.schema.names == ["id", "w"]


@needs_spark
def test_a_query_with_an_unknown_name_says_which(orders: Workbench) -> None:
    with pytest.raises(InvalidConfig, match="nowhere"):
        orders.engine.select(parse_query("select * from nowhere", "spark"))


@needs_spark
@pytest.mark.parametrize("vectors", ["false", "true"])
def test_parts_of_a_scan_read_each_row_once_also_with_deletion_vectors(bench: Workbench, vectors: str) -> None:
    days = ["a b", "ü+%20", "x/y", "100%"]
    rows = [{"id": i, "day": days[i % 4]} for i in range(40)]
    spec = WriteSpec("error", partition_by=("day",), table_properties={"delta.enableDeletionVectors": vectors})
    bench.run(spec, rows)
    bench.run(DeleteSpec("id % 5 = 0"))
    parts = bench.lake.snapshot(bench.ref).scan().split(3)
    assert len(parts) == 3
    found = [row["id"] for part in parts for row in bench.engine.open(part).collect()]
    assert sorted(found) == [i for i in range(40) if i % 5]


# -- values


@needs_spark
@pytest.mark.parametrize("kind", ["pyarrow", "reader", "pandas", "polars", "lazy", "spark", "frame"])
def test_every_kind_of_value_is_written(orders: Workbench, kind: str) -> None:
    table = pa.Table.from_pylist([{"id": 3, "day": "c", "v": 3.0}])
    value: Any = {
        "pyarrow": lambda: table,
        "reader": lambda: table.to_reader(),
        "pandas": lambda: pd.DataFrame(table.to_pylist()),
        "polars": lambda: pl.from_arrow(table),
        "lazy": lambda: pl.from_arrow(table).lazy(),  # type: ignore[union-attr]
        "spark": lambda: orders.spark.createDataFrame(table),
        "frame": lambda: orders.engine.select(parse_query("select 3L as id, 'c' as day, 3.0D as v", "spark")),
    }[kind]()
    assert is_of_spark(value) is (kind in ("spark", "frame"))
    assert orders.engine.schema_of(value).names == ["id", "day", "v"]
    assert orders.run(WriteSpec("append"), value).rows_inserted == 1
    assert orders.rows()[-1] == (3, "c", 3.0)


@needs_spark
@pytest.mark.parametrize("mapping", ["none", "name"])
def test_the_types_of_a_table_are_those_that_spark_reads(bench: Workbench, mapping: str) -> None:
    columns = [f"`{kind.column}` {kind.delta}" for kind in KINDS]
    columns += ["id bigint not null comment 'key'", "code char(3)", "name varchar(9)"]
    columns += ["deep struct<part: struct<n: int not null, `a b`: string> not null, list: array<struct<x: int>>>"]
    if mapping == "none":
        columns = [column for column in columns if "`a b`" not in column]
    path = Path(bench.ref.location).as_posix()
    bench.spark.sql(
        f"CREATE TABLE delta.`{path}` ({', '.join(columns)}) USING delta "
        f"TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')"
    )
    snapshot = bench.lake.snapshot(bench.ref)
    attempt = SparkWrite(bench.engine.access, WriteSpec("append"), None, Transaction(bench.lake, bench.ref), snapshot)
    read = bench.engine.access.read(snapshot).schema
    assert [(f.name, f.dataType) for f in attempt.target_schema()] == [(f.name, f.dataType) for f in read]


@needs_spark
def test_a_spark_dataframe_is_never_collected(orders: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = orders.spark.range(100).selectExpr("id", "'q' AS day", "cast(id AS double) AS v")
    for name in ("collect", "toArrow", "toPandas", "toLocalIterator"):
        monkeypatch.setattr(type(frame), name, lambda *a, **k: pytest.fail("the rows came to the driver"))
    assert orders.run(WriteSpec("append"), frame).rows_inserted == 100


@needs_spark
def test_a_frame_of_duckdb_is_written_as_it_says_it_would_be(bench: Workbench, tmp_path: Path) -> None:
    with duckrun.connect(tmp_path / "other") as duck:
        frame = duck.sql("select 1 as id, 'a' as day")
        assert bench.engine.schema_of(frame) == pa.schema([("id", pa.int32()), ("day", pa.string())])
        bench.run(WriteSpec("append"), frame)
    assert bench.rows() == [(1, "a")]


@needs_spark
def test_rows_that_a_merge_kept_are_let_go_when_it_ends(orders: Workbench) -> None:
    spec, failing = MergeSpec(("id",)), MergeSpec(("id",), (MergeClause("matched_update", "nowhere = 1"),))
    left: list[Any] = []
    gc.disable()  # by which they would be let go in any thread, even in one that a call of gRPC waits for
    try:
        assert orders.run(spec, ORDERS).version == 1
        with pytest.raises(SchemaMismatch) as error:
            orders.run(failing, ORDERS)
        left = [error.value]
        left.append(left)
        plans = [each for each in gc.get_objects() if type(each).__name__ == "CachedRemoteRelation"]
        assert bool(plans) == ("DUCKRUN_TEST_SPARK_REMOTE" in os.environ), (
            "a plan of the write that failed is there to be looked at"
        )
        assert [plan._relation_id for plan in plans] == [None] * len(plans)
    finally:
        gc.enable()


# -- sessions


@needs_spark
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif("DUCKRUN_TEST_SPARK_REMOTE" in os.environ, reason="is that run")
def test_all_of_this_holds_on_spark_connect_in_a_process_with_no_classic_session() -> None:
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("spark", "modes", "merges", "once")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "spark and not slow", *files],
        capture_output=True, text=True, env={**os.environ, "DUCKRUN_TEST_SPARK_REMOTE": "local[2]"},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]


@needs_spark
def test_a_process_has_one_session_without_a_metastore(spark: Any) -> None:
    assert spark_session() is spark
    assert spark_session(**SPARK_AT) is spark
    with pytest.raises(InvalidConfig, match=r"asked for at local\[7\].*session at local\[2\]"):
        spark_session(master="local[7]")
    assert spark.conf.get("spark.sql.catalogImplementation") == "in-memory"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not [name for name in ("metastore_db", "derby.log") if Path(name).exists()]
    assert not [*Path("spark-warehouse").glob("*")]


WRITES_BY_NAME = """
import sys
import dagster as dg
from duckrun_dagster import SparkResource

@dg.asset
def numbers(spark: SparkResource) -> None:
    if sys.argv[1] == "write":
        spark.session().sql("create schema sales")
        spark.session().range(3).write.format("delta").saveAsTable("sales.numbers")
    else:
        spark.session().sql("show tables").collect()

assert dg.materialize([numbers], resources={"spark": SparkResource(master="local[1]")}).success
"""


@needs_spark
@pytest.mark.slow
@pytest.mark.parametrize(("does", "left"), [("write", ["sales.db/numbers"]), ("look", None)])
def test_what_is_written_by_name_stays_when_the_process_ends(tmp_path: Path, does: str, left: list[str] | None) -> None:
    subprocess.run([sys.executable, "-c", WRITES_BY_NAME, does], cwd=tmp_path, check=True, capture_output=True)
    warehouse = tmp_path / "spark-warehouse"
    logs = [str(log.parent.relative_to(warehouse)) for log in warehouse.rglob("_delta_log")]
    assert logs == left if left else not warehouse.exists()
    if left:
        assert DeltaTable(str(warehouse / left[0])).to_pyarrow_table()["id"].to_pylist() == [0, 1, 2]


def test_master_and_remote_together_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="not both"):
        spark_session(master="local[2]", remote="sc://here")


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **env}
    )


ASK = "from duckrun.engines.spark.process.session import spark_session as s\nimport time\nt = time.time()\ntry:\n    s({})\nexcept Exception as e:\n    print(type(e).__name__, e)\nassert time.time() - t < 30"


def test_importing_the_engine_does_not_import_pyspark() -> None:
    done = run_python(
        "import duckrun.engines.spark.engine, sys; print('pyspark' in sys.modules, 'delta' in sys.modules)"
    )
    assert done.stdout.split() == ["False", "False"], done.stderr


@pytest.mark.parametrize("address", ["master='spark://127.0.0.1:1'", "remote='sc://127.0.0.1:1/;token=x'"])
def test_an_unreachable_address_is_named_within_30_seconds(address: str) -> None:
    done = run_python(ASK.format(address))
    assert done.stdout.startswith("InvalidConfig Spark at ") and "127.0.0.1:1" in done.stdout, done.stderr
    assert "cannot be reached" in done.stdout


def test_a_missing_java_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    done = run_python(ASK.format(""), JAVA_HOME=str(tmp_path))
    for part in ("InvalidConfig Spark needs Java 17 or 21", str(tmp_path), "apt-get", "brew", "winget"):
        assert part in done.stdout, done.stderr


def test_an_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    launcher.chmod(0o755)
    done = run_python(ASK.format(""), JAVA_HOME=str(tmp_path))
    assert "is Java 11, which is too old" in done.stdout, done.stderr


def test_a_missing_pyspark_names_the_extra() -> None:
    done = run_python("import sys\nsys.modules['pyspark'] = None\n" + ASK.format(""))
    assert "duckrun-dagster[spark]" in done.stdout, done.stderr


def test_the_java_of_this_machine_is_found() -> None:
    assert java()[1] in (17, 21), "make setup finds one or brings it"
