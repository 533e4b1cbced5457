"""The example's live tables equal what a full recompute of them gives, after late corrections and a renamed airline."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import duckrun
from duckrun import SQL, WriteSpec
from duckrun_dagster import DeltaIOManager, DuckrunResource
from tests.lake import rows_of

FLIGHTS = """
    select 'f' || range as flight_id, date '2013-01-01' + (range % 60)::int as flight_date, ['UA', 'B6', 'DL'][range % 3 + 1] as carrier,
        'N' || range % 7 as tailnum, 'JFK' as origin, 'LAX' as dest, (range % 40)::int as dep_delay,
        case when range % 11 <> 0 then (range % 50 - 10)::int end as arr_delay, 2475::int as distance, 'x' as weather
    from range(300)
"""
AIRLINES = "select * from (values ('UA', 'United'), ('B6', 'JetBlue'), ('DL', 'Delta')) as t(carrier, airline)"
MONTHS = """
    select cast(date_trunc('month', flight_date) as date) as flight_month, airline, count(*) as flights, count(arr_delay) as flown,
        sum(coalesce(arr_delay, 0)) as minutes_late
    from refined.flights join marts.dim_airline using (carrier) group by all
"""
PLANES = "select tailnum, max_by(carrier, flight_id), count(*), cast(round(avg(arr_delay)) as int) from refined.flights group by tailnum"


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("DUCKRUN_EXAMPLE_HOME", str(tmp_path))
    monkeypatch.setenv("DUCKRUN_EXAMPLE_ENGINE", "duckdb")
    before = set(sys.modules)
    yield importlib.import_module("example_project.live_assets")
    for name in set(sys.modules) - before:
        if name.startswith("example_project"):
            del sys.modules[name]


def test_live_tables_follow_corrections(live: Any, tmp_path: Path) -> None:
    lake = DuckrunResource(root_path=str(tmp_path / "lake"))
    sources = [
        dg.AssetSpec(key).with_io_manager_key("io_manager")
        for key in (["refined", "flights"], ["marts", "dim_airline"])
    ]
    instance = dg.DagsterInstance.ephemeral()

    def run() -> dg.ExecuteInProcessResult:
        resources = {"io_manager": DeltaIOManager(duckrun=lake), "duckrun": lake}
        return dg.materialize([*live.ASSETS, *sources], resources=resources, instance=instance)

    with duckrun.connect(tmp_path / "lake") as session:

        def check() -> None:
            assert rows_of(session.sql("from live.airline_months")) == rows_of(session.sql(MONTHS))
            now = session.sql("select tailnum, carrier, flights, minutes_late from live.planes where valid_to is null")
            assert rows_of(now) == rows_of(session.sql(PLANES))

        session.execute("refined.flights", WriteSpec("overwrite"), SQL(FLIGHTS))
        session.execute("marts.dim_airline", WriteSpec("overwrite"), SQL(AIRLINES))
        run()
        check()
        # A month is read again, as a partition is: of its rows a few are others.
        corrected = f"select * replace (case when flight_id in ('f3', 'f31') then 99 else arr_delay end as arr_delay) from ({FLIGHTS})"
        session.execute("refined.flights", WriteSpec("overwrite"), SQL(corrected))
        session.execute("marts.dim_airline", WriteSpec("overwrite"), SQL(AIRLINES))
        found = run().asset_materializations_for_node("live__flights")[0].metadata
        assert (found["flights_update_postimage"].value, found["rows_updated"].value) == (2, 2)
        check()
        assert session.sql("select count(*) as n from live.planes where valid_to is not null").collect() == [{"n": 1}]
        session.sql("update marts.dim_airline set airline = 'JetBlue Airways' where carrier = 'B6'")
        session.sql("delete from refined.flights where flight_id in ('f5', 'f6')")
        run()
        check()
