"""Which dbt commands of two attempts of a step are the same work. Budget: 10 s."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

import duckrun
from duckrun_dagster import DuckrunDbtCliResource
from duckrun_dagster.dbt.calls import Attempt, Call
from tests.dbt.fresh import command

FIRST = Attempt(
    "run 1",
    datetime(2026, 11, 27, 2, 58, 59, 500_000, UTC).timestamp(),
    datetime(2026, 11, 27, 3, 0, 7, tzinfo=UTC).timestamp(),
)
SECOND = Attempt("run 2", FIRST.now + 1, FIRST.now + 60)


def same(first: list[str], second: list[str]) -> bool:
    return Call.of(first, FIRST) == Call.of(second, SECOND)


def clock(attempt: Attempt) -> list[Any]:
    """The time within an attempt, as code writes it into variables."""
    at = datetime.fromtimestamp(attempt.began + 5.25, UTC)
    seconds = at.timestamp()
    return [
        seconds,
        int(seconds),
        int(seconds * 1e3),
        int(seconds * 1e9),
        str(seconds),
        at.isoformat(),
        str(at.replace(tzinfo=None)),
        str(at.astimezone().replace(tzinfo=None)),
        at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        at.strftime("%Y%m%d%H%M%S"),
        int(at.strftime("%Y%m%d%H%M%S")),
        at.strftime("%Y%m%dT%H%M%S"),
    ]


@pytest.mark.parametrize("n", range(12))
def test_a_time_that_the_attempt_took_from_the_clock_tells_no_calls_apart(n: int) -> None:
    first, second = clock(FIRST)[n], clock(SECOND)[n]
    assert first != second
    for options in (lambda v: ["--vars", json.dumps(v)], lambda v: [f"--vars={yaml.safe_dump(v)}"]):
        assert same(["build", *options({"now": first, "day": 1})], ["build", *options({"now": second, "day": 1})])
        assert not same(["build", *options({"now": first, "day": 1})], ["build", *options({"now": second, "day": 2})])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{day: 1}", "{day: 2}"),
        ("{day: 2026-11-26}", "{day: 2026-11-27}"),
        ("{from: 2026-11-27 02:59:00}", "{from: 2026-11-27 03:00:00}"),  # bounds of windows, within the attempt
        ("{from: '2026-11-27T02:59:00Z'}", "{from: '2026-11-27T03:00:00Z'}"),
        ("{at: 2026-11-27 02:00:01}", "{at: 2026-11-27 02:00:02}"),  # before the attempt
        ("{n: 1}", "{n: true}"),
        ("{id: 5d}", "{id: 6d}"),
        ("{now: [", "{now: ("),
    ],
)
def test_other_values_are_other_calls(first: str, second: str) -> None:
    assert not same(["build", "--vars", first], ["build", "--vars", second])
    assert Call.of(["build", "--vars", first], FIRST) == Call.of(["build", f"--vars={first}"], FIRST)


def test_calls_that_differ_in_values_of_variables_alone_have_one_shape() -> None:
    shapes = {Call.of(["build", "--vars", text], FIRST).shape for text in ("{day: 1}", "{day: 2}", '{"day": [1, 2]}')}
    assert len(shapes) == 1
    others = (["build", "--vars", "{days: 1}"], ["run", "--vars", "{day: 1}"], ["build"], ["build", "-s", "{day: 1}"])
    assert len(shapes | {Call.of(args, FIRST).shape for args in others}) == 5


def test_the_id_of_the_attempts_run_and_the_order_of_variables_tell_no_calls_apart() -> None:
    assert same(["build", "--vars", "{a: 1, run: run 1}"], ["build", "--vars", "{run: run 2, a: 1}"])
    assert not same(["build", "--vars", "{run: run 1}"], ["build", "--vars", "{run: run 3}"])
    assert same(["run-operation", "m", "--args", "{by: run 1}"], ["run-operation", "m", "--args", "{by: run 2}"])


@pytest.mark.drawn(4)
@pytest.mark.parametrize("lake_format", ["delta", "ducklake"])
def test_a_retry_that_leaves_out_a_call_takes_back_no_other_calls_rows(tmp_path: Path, lake_format: str) -> None:
    """One call has the time of the attempt, which is the same call; two differ in a day, which the log tells of."""
    (tmp_path / "models").mkdir()
    (tmp_path / "dbt_project.yml").write_text(
        "name: shop\nversion: 1.0.0\nprofile: shop\nflags: {send_anonymous_usage_stats: false}\n"
    )
    lake = {"type": "duckrun", "root_path": str(tmp_path / "lake"), "schema": "main", "format": lake_format}
    (tmp_path / "profiles.yml").write_text(yaml.safe_dump({"shop": {"target": "dev", "outputs": {"dev": lake}}}))
    (tmp_path / "models/orders.sql").write_text(
        "{{ config(materialized='incremental', incremental_strategy='append') }}\n"
        "select '{{ var('day', 'time') }}' as day, '{{ var('by', '') }}' as by"
    )

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=1))
    def work(context: dg.OpExecutionContext, dbt: DuckrunDbtCliResource) -> None:
        attempt = context.retry_number + 1
        dbt.cli(["run", "--vars", json.dumps({"by": str(datetime.now(UTC))})], context=context).wait()
        dbt.cli(["run", "--vars", json.dumps({"day": f"day {attempt}"})], context=context).wait()
        if attempt == 1:
            raise RuntimeError("lost the connection")

    @dg.job
    def nightly() -> None:
        work()

    dbt = DuckrunDbtCliResource(project_dir=str(tmp_path), profiles_dir=str(tmp_path), dbt_executable=command())
    with dg.DagsterInstance.ephemeral() as instance:
        result = nightly.execute_in_process(instance=instance, resources={"dbt": dbt})
        told = [log.user_message for log in instance.all_logs(result.run_id) if log.level == 30]
    with duckrun.connect(tmp_path / "lake", format=lake_format) as session:
        assert [row["day"] for row in session.sql("select day from main.orders order by day").collect()] == [
            "day 1",
            "day 2",
            "time",
        ]
    assert len(told) == 1
    expected = r"model\.shop\.orders: version \d+ of main\.orders adds rows beside those that an earlier attempt of this step added"
    assert re.match(expected, told[0])
