"""Tables of assets and checks: the newest version of each, its engine, and this run's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
from rich.table import Table

import duckrun
from duckrun import Lake
from example_project import settings
from example_project.runner.console import LOG, say
from example_project.runner.plan import PARENT, Graph, evaluation

WARNED = "[yellow]warned[/]"


def show(dagster: dg.DagsterInstance, definitions: dg.Definitions, runs: Sequence[str]) -> bool:
    """Print the assets, the checks and the report's path; return True if anything failed."""
    graph = Graph(definitions)
    table = _table("assets", "asset", "made by", "engine")
    for column in ("rows", "version", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("this time", no_wrap=True)
    kinds = {spec.key: " ".join(sorted(spec.kinds)) for spec in definitions.resolve_all_asset_specs()}
    for key in graph.made_here:
        table.add_row(key.to_user_string(), kinds[key], *_facts(dagster, key, runs))
    say()
    say(table)
    records = {run: dagster.get_run_by_id(run) for run in runs}
    continued = {record.tags.get(PARENT) for record in records.values() if record is not None}
    failed = [
        run for run, record in records.items() if run not in continued and (record is None or not record.is_success)
    ]
    for run in failed:
        say(f"[red]run {run[:8]} failed[/]: `python -m example_project ui` shows it, {LOG} has what its tools printed")
    checks_failed = _show_checks(dagster, graph)
    if settings.REPORT.exists():
        say(f"report: {settings.REPORT}", soft_wrap=True)
    return bool(failed) or checks_failed


def tell_of_branch(dagster: dg.DagsterInstance, run_id: str, lake: Lake) -> None:
    """Print the branch of a run that has published nothing, and the state of main."""
    run = dagster.get_run_by_id(run_id)
    branch = None if run is None else run.tags.get("duckrun/branch")
    if branch is None:
        return
    with duckrun.connect(lake.root) as main:
        changed = main.diff(branch).tables
    is_same = all(each.main_version == each.base_version for each in changed)
    say(f"[yellow]not published[/]: branch {branch} changes {len(changed)} tables and views")
    say("main is unchanged" if is_same else "[red]main has changed[/]")
    say(f"duckrun branch diff {branch} --root {lake.root}", soft_wrap=True)


def _facts(dagster: dg.DagsterInstance, key: dg.AssetKey, runs: Sequence[str]) -> list[str]:
    event = dagster.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event else None
    if event is None or materialization is None:
        return ["", "", "", "", "[yellow]not made yet[/]"]
    facts = {name: value.value for name, value in materialization.metadata.items()}
    facts.setdefault("version", facts.get("duckrun/version"))  # of an asset that wrote its table by name
    shown = [_text(facts.get(name)) for name in ("engine", "dagster/row_count", "version", "seconds")]
    return [*shown, _this_time(dagster, key, facts, runs) if event.run_id in runs else "—"]


def _this_time(dagster: dg.DagsterInstance, key: dg.AssetKey, facts: dict[str, Any], runs: Sequence[str]) -> str:
    figures = [
        f"{facts[name]:,} {name.removeprefix('rows_')}"
        for name in ("rows_inserted", "rows_updated", "rows_deleted")
        if facts.get(name)
    ]
    partitions = sum(
        record.partition_key is not None
        for run in runs
        for record in dagster.get_records_for_run(run, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records
        if (event := record.event_log_entry.dagster_event) is not None and event.asset_key == key
    )
    if partitions:
        figures.append("1 partition" if partitions == 1 else f"{partitions} partitions")
    what = f"{facts['mode']}: " if facts.get("mode") else "made "
    return what + ", ".join(figures)


def _show_checks(dagster: dg.DagsterInstance, graph: Graph) -> bool:
    table = _table("checks", "asset", "check", "result")
    results: list[str] = []
    for key in graph.checks:
        entry = evaluation(dagster, key)
        event = entry.dagster_event if entry else None
        results.append("not run" if event is None else _result(event.asset_check_evaluation_data))
        table.add_row(key.asset_key.to_user_string(), key.name, results[-1])
    say()
    say(table)
    say(f"\n{results.count('passed')} of {len(results)} checks passed")
    return not {*results} <= {"passed", WARNED}


def _result(evaluation: Any) -> str:
    if evaluation.passed:
        return "passed"
    return WARNED if evaluation.severity == dg.AssetCheckSeverity.WARN else "[red]failed[/]"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
