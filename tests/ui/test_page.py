"""The example in Dagster's page, in a real browser: the graph renders with the engines' icons, a click makes a partition,
and an asset's page says what its commit did.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tools.screenshots import browser_page, dagster_dev, graph

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.ui, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The example, made of a sample of the flights, in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUCKRUN_EXAMPLE_HOME", str(tmp_path_factory.mktemp("example")))
        patch.setenv("DUCKRUN_EXAMPLE_SAMPLE", "50")
        patch.chdir(ROOT)
        command = [sys.executable, "-m", "example_project", "demo"]
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        yield


@pytest.fixture(scope="module")
def url(example: None) -> Iterator[str]:
    with dagster_dev() as served:
        yield served


@pytest.fixture
def page() -> Iterator[Page]:
    with browser_page() as opened:
        yield opened


def test_the_graph_shows_every_part_of_the_pipeline(url: str, page: Page) -> None:
    graph(page, url)
    shown = page.content()
    for name in ("fct_flights", "mart_routes", "dim_airline", "delay_by_carrier", "plane_months", "weather"):
        assert name in shown, f"{name} is not in the graph"


def test_the_graph_shows_the_icons_of_both_engines_and_of_delta(url: str, page: Page) -> None:
    page.goto(f"{url}/assets/refined/flights?view=lineage")
    for kind in ("pyspark", "duckdb", "deltalake"):
        page.get_by_role("img", name=kind, exact=True).first.wait_for(timeout=90_000)


def test_a_click_materializes_one_partition_and_its_page_shows_it(url: str, page: Page) -> None:
    page.goto(f"{url}/assets/analytics/delay_by_carrier")
    assert metadata(page, "version") == "0"
    page.get_by_role("button", name="Materialize").first.click()
    invitation = page.get_by_role("button", name="Skip")  # shown once by a new instance
    if invitation.is_visible():
        invitation.click()
    dialog = page.get_by_role("dialog").filter(has_text="Partition selection")
    dialog.get_by_role("textbox").fill("2013-02-01")
    page.keyboard.press("Enter")
    with page.expect_response(re.compile("LaunchPipelineExecution"), timeout=60_000) as launched:
        dialog.get_by_role("button", name="Launch 1 run").click()
    run = launched.value.json()["data"]["launchPipelineExecution"]["run"]["id"]

    page.goto(f"{url}/runs/{run}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible(timeout=150_000)

    page.goto(f"{url}/assets/analytics/delay_by_carrier")
    assert metadata(page, "version") == "1"
    assert metadata(page, "mode") == "replace"
    for column in ("flight_month", "airline", "dep_delay"):  # the schema
        expect(page.get_by_role("row").filter(has=page.get_by_text(column, exact=True)).first).to_be_visible()
    # The preview is a table: its head, then a row.
    assert re.search(r"flight_month\s+carrier\s+airline.*2013-0[12]-01\s", metadata(page, "preview"), re.DOTALL)
    page.get_by_role("button", name="Plots").click()
    page.get_by_text("Events", exact=True).last.click()  # by time; a table of partitions has no plot of the whole
    page.get_by_text("dagster/row_count").first.wait_for(timeout=30_000)
    expect(page.locator("canvas").first).to_be_visible()


def metadata(page: Page, key: str) -> str:
    """What the asset's page shows beside a key of the newest materialization's metadata, without the time of it."""
    row = page.get_by_role("row").filter(has=page.get_by_text(key, exact=True)).first
    row.wait_for(timeout=90_000)
    return row.locator(":scope > td").last.inner_text().strip()  # a table within it has cells too


def test_an_asset_page_says_rows_columns_kinds_and_checks(url: str, page: Page) -> None:
    page.goto(f"{url}/assets/marts/fct_flights")
    page.get_by_text("Row count").first.wait_for(timeout=90_000)
    for each in ("flight_date", "Latest check results", "marts.fct_flights"):  # the parts of the page come one by one
        page.get_by_text(each).first.wait_for(timeout=30_000)
    shown = page.inner_text("body")
    assert "DuckDB" in shown and "dbt" in shown and "Delta Lake" in shown
    column = page.get_by_role("row").filter(has=page.get_by_text("flight_id", exact=True)).first
    expect(column).to_contain_text("Day, airline, number and origin of the flight: unique in this data.")
    expect(column).to_contain_text("string")
    month = page.get_by_role("row").filter(has=page.get_by_text("flight_month", exact=True)).first
    expect(month).to_contain_text("date")
    assert int(metadata(page, "table_files").replace(",", "")) > 0
    assert int(metadata(page, "table_bytes").replace(",", "")) > 1000
