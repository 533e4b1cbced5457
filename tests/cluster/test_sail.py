"""The engine on Sail, which serves Spark Connect from a pip package without Java (docs/sail.md), as far as it goes."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.standalone import free_port, kill, wait_for
from tests.cluster.test_cluster import ROOT, check_example, driver, told

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.skipif(importlib.util.find_spec("pysail") is None, reason="pysail is not installed (the extra sail)"),
]


@pytest.fixture(scope="module")
def sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    port = free_port()
    log = tmp_path_factory.mktemp("sail") / "log"
    with log.open("wb") as output:
        command = [
            str(Path(sys.executable).with_name("sail")),
            "spark",
            "server",
            "--ip",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        wait_for(lambda: listens(port) or server.poll() is not None, 60, "Sail did not start")
        assert server.poll() is None, log.read_text()
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill(server)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_example_s_assets_run_on_it(sail: str, tmp_path: Path) -> None:
    # It has no nullValue for numbers in CSV, so the files have none.
    env = {"DUCKRUN_EXAMPLE_HOME": str(tmp_path / "home"), "DUCKRUN_EXAMPLE_SAMPLE": "100"}
    assert not told(driver("example", tmp_path / "lake", sail, "empty", **env))["classic"]
    check_example(tmp_path / "lake", tmp_path / "home")


# A process has one Spark, and this one's is Apache Spark's.
VERBS = """
import json, sys
import pyarrow as pa
import duckrun
from duckrun import AppTransaction, DeltaTable, DuckrunError, MergeSpec, WriteSpec
from duckrun.engines.spark.process.session import spark_session
from duckrun.values.rows import DeleteSpec, ReadSpec

rows = pa.table({"id": [1, 2, 3], "day": ["a", "b", "b"], "v": [0.5, None, float("nan")]})
said = {"refused": {}}
with duckrun.connect(sys.argv[1], engine="spark", spark=spark_session(remote=sys.argv[2])) as s, duckrun.connect(sys.argv[1]) as d:
    s.execute("main.t", WriteSpec("error", partition_by=("day",)), rows)
    d.execute("main.t", WriteSpec("append"), rows)
    s.execute("main.t", WriteSpec("append"), rows.slice(0, 1))
    count = "select day, count(*) as n, sum(id) as ids from main.t group by day order by day"
    said["rows"] = [s.sql(count).collect(), d.sql(count).collect()]
    said["then"] = s.scan("main.t", ReadSpec(version=0, predicate="id >= 2", columns=("id",))).count()
    for name, spec, source in (
        ("replace partitions", WriteSpec("replace"), rows),
        ("replace predicate", WriteSpec("replace", predicate="day = 'a'"), rows.slice(0, 1)),
        ("append once", WriteSpec("append", app=AppTransaction("x")), rows),
        ("merge", MergeSpec(("id",)), rows),
        ("delete", DeleteSpec("id = 1"), None),
    ):
        try:
            s.execute("main.t", spec, source)
        except DuckrunError as error:
            said["refused"][name] = type(error).__name__
    said["version"] = d.snapshot("main.t").version
    s.execute("main.t", WriteSpec("overwrite"), rows)
    said["overwritten"] = [s.sql(count).collect(), d.sql(count).collect()]
print(json.dumps(said, default=int))
"""


def test_what_it_gets_right_is_done_and_the_rest_refused(sail: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", VERBS, str(tmp_path / "lake"), sail],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout.strip().splitlines()[-1])
    expected = [{"day": "a", "n": 3, "ids": 3}, {"day": "b", "n": 4, "ids": 10}]
    assert said["rows"] == [expected, expected]
    assert said["then"] == 2
    assert said["refused"] == dict.fromkeys(
        ("replace partitions", "replace predicate", "append once", "merge", "delete"), "UnsupportedFeature"
    )
    assert said["version"] == 2, "what was refused wrote nothing"
    once = [{"day": "a", "n": 1, "ids": 1}, {"day": "b", "n": 2, "ids": 5}]
    assert said["overwritten"] == [once, once]
