"""Incremental models with the clauses of a merge, by each writer of DuckDB's data files, against a model in Python."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import duckrun
from duckrun import WriteSpec
from tests.drawing import seed
from tests.writer_cases import CLAUSES, WRITERS, arrow, check, merged, some_rows


@pytest.mark.matrix
def test_models_of_either_writer(make_project: Callable[..., Any]) -> None:
    random = Random(seed())
    kinds = random.sample(sorted(CLAUSES), 3)
    old, new = some_rows(random, range(40), 12, 1), some_rows(random, range(40), 8, 1)
    models = {}
    for number, kind in enumerate(kinds):
        clauses: dict[str, list[str]] = {"when_matched": [], "when_not_matched": []}
        for when in CLAUSES[kind]:
            where, entry = when.dbt()
            clauses[where].append(entry)
        nothing = "{'action': 'do_nothing'}"
        said = ", ".join(f"'{where}': [{', '.join(entries) or nothing}]" for where, entries in clauses.items())
        for writer in WRITERS:
            models[f"models/m{number}_{writer}.sql"] = (
                "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='id', "
                f"partition_by='day', writer='{writer}', merge_clauses={{{said}}}) }}}} select * from main.given"
            )
    project = make_project(models)
    with duckrun.connect(project.lake) as session:
        for rows in (old, new):
            session.execute("main.given", WriteSpec("overwrite"), arrow(rows))
            project.run("run")
        for number, kind in enumerate(kinds):
            for writer in WRITERS:
                name = f"main.m{number}_{writer}"
                check(session, name, merged(old, new, CLAUSES[kind]))
                assert session.table(name).snapshot().version <= 1
