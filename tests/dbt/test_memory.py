"""Four threads merge at once, and the process stays under the limit of the profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import psutil
import pyarrow as pa
import pytest

LIMIT = 2_000_000_000
MODEL = """
{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }}
{% set start, rows = (900000, CHANGED) if is_incremental() else (0, 1000000) %}
select i as id, i * 7 as a, 'customer number ' || i as name, repeat(md5(i::varchar), 4) as note, i / 3 as c
from range({{ start }}, {{ start }} + {{ rows }}) t(i)
"""


def tree_bytes(process: psutil.Process) -> int:
    """Resident bytes of a process and its children."""
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("changed", "writer"), [(1_000_000, "staged"), (200_000, "delta_rs")])
def test_four_threads_merging_with_a_limit_of_2gb_stay_under_it(make_project, changed, writer):
    models = {f"models/m{n}.sql": MODEL.replace("CHANGED", str(changed)) for n in range(4)}
    project = make_project(models, threads=4, memory_limit="2GB")
    project.save_profile()
    peaks = []
    for _ in range(2):
        command = [
            sys.executable,
            "-m",
            "dbt.cli.main",
            "run",
            "--project-dir",
            str(project.root),
            "--profiles-dir",
            str(project.root),
        ]
        with subprocess.Popen(
            command, cwd=project.root, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            output: list[str] = []
            reader = threading.Thread(target=lambda c=child, o=output: o.append(c.stdout.read()), daemon=True)
            reader.start()
            tree, peak = psutil.Process(child.pid), 0
            while child.poll() is None:
                try:
                    peak = max(peak, tree_bytes(tree))
                except psutil.NoSuchProcess:
                    break
                time.sleep(0.05)
        reader.join()
        assert child.returncode == 0, output[0]
        peaks.append(peak)
    print("peaks in MB:", [round(peak / 1e6) for peak in peaks])
    for n in range(4):
        table = project.table(f"main.m{n}")
        assert table.version() == 1
        assert sum(
            action["num_records"] for action in pa.table(table.get_add_actions(flatten=True)).to_pylist()
        ) == 900_000 + max(changed, 100_000)
    results = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    assert {result["adapter_response"]["writer"] for result in results} == {writer}
    assert max(peaks) < LIMIT
