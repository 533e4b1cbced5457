"""Threads that merge and write at once, and a process that stays under the limit of the profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

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


def build(project: Any) -> int:
    """`dbt run` in a process of its own: the most bytes that it and its children held."""
    project.save_profile()
    folders = ["--project-dir", str(project.root), "--profiles-dir", str(project.root)]
    with subprocess.Popen(
        [sys.executable, "-m", "dbt.cli.main", "run", *folders],
        cwd=project.root,
        env=os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        output: list[str] = []
        reader = threading.Thread(target=lambda: output.append(child.stdout.read()), daemon=True)
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
    return peak


def rows_in(project: Any, name: str) -> int:
    actions = pa.table(project.table(f"main.{name}").get_add_actions(flatten=True)).to_pylist()
    return sum(action["num_records"] for action in actions)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("changed", [1_000_000, 200_000])
def test_four_threads_merging_with_a_limit_of_2gb_stay_under_it(make_project, changed):
    models = {f"models/m{n}.sql": MODEL.replace("CHANGED", str(changed)) for n in range(4)}
    project = make_project(models, threads=4, memory_limit="2GB")
    peaks = [build(project) for _ in range(2)]
    print("peaks in MB:", [round(peak / 1e6) for peak in peaks])
    for n in range(4):
        assert project.version(f"main.m{n}") == 1
        assert rows_in(project, f"m{n}") == 900_000 + max(changed, 100_000)
    results = json.loads((project.root / "target" / "run_results.json").read_text())["results"]
    assert {result["adapter_response"]["writer"] for result in results} == {"staged"}
    assert max(peaks) < LIMIT


# What a project has, each kind ten times: a sort, a group of many keys, a join, partitions, a merge.
KINDS = {
    "sorted": "{{ config(materialized='table', sort_by=['note']) }} select * from {{ ref('base') }}",
    "grouped": "{{ config(materialized='table') }} select note, count(*) as n, sum(a) as a from {{ ref('base') }} group by note",
    "joined": "{{ config(materialized='table') }} select l.*, r.note as other from {{ ref('base') }} l join {{ ref('base') }} r on l.id = r.c",
    "parted": "{{ config(materialized='table', partition_by=['p']) }} select *, id % 20 as p from {{ ref('base') }}",
    "merged": "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id') }} select * from {{ ref('base') }}",
}
ROWS = 60_000
BASE = f"""
{{{{ config(materialized='table') }}}}
select i as id, i * 7 as a, 'customer number ' || i as name, repeat(md5(i::varchar), 4) as note, i // 3 as c from range({ROWS}) t(i)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_eight_threads_with_fifty_models_stay_under_a_limit_of_2gb(make_project):
    models = {f"models/{kind}_{n}.sql": sql for n in range(10) for kind, sql in KINDS.items()}
    project = make_project({"models/base.sql": BASE, **models}, threads=8, memory_limit="2GB")
    peaks = [build(project) for _ in range(2)]
    print("peaks in MB:", [round(peak / 1e6) for peak in peaks])
    for kind in KINDS:
        assert {(rows_in(project, f"{kind}_{n}"), project.version(f"main.{kind}_{n}")) for n in range(10)} == {
            (ROWS, 1)
        }
    assert max(peaks) < LIMIT
