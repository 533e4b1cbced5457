"""The example in Dagster's page, in a real browser: the graph renders, and an asset's page says what its commit did."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

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


def test_an_asset_page_says_rows_columns_kinds_and_checks(url: str, page: Page) -> None:
    page.goto(f"{url}/assets/marts/fct_flights")
    page.get_by_text("Row count").first.wait_for(timeout=90_000)
    page.get_by_text("flight_date").first.wait_for(timeout=30_000)
    shown = page.inner_text("body")
    assert "DuckDB" in shown and "dbt" in shown
    assert "Latest check results" in shown
    assert "marts.fct_flights" in shown
