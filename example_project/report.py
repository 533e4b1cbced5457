"""The report: plots from the lake's tables in one self-contained HTML file."""

import base64
import html
import io
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl

from example_project import settings
from example_project.runner import plan

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# The type is named here: with an annotation, the code location would import pandas, which takes a
# second.
AS_PANDAS = {"type": "pandas"}
CARRIERS_SHOWN = 8
FEWEST = 100 // settings.SAMPLE  # least number of flights behind a point of a plot
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}


def delay_by_hour(delays: pl.DataFrame) -> "Figure":
    """Plot minutes of departure delay through the day, for carriers with the most flights."""
    flown = delays.filter(pl.col("dep_delay").is_not_null())
    biggest = (
        flown.group_by("airline").agg(pl.col("flights").sum()).sort("flights", descending=True).head(CARRIERS_SHOWN)
    )
    weighted = (pl.col("dep_delay") * pl.col("flights")).sum() / pl.col("flights").sum()
    figure = _figure(height=4.2)
    axes = figure.subplots()
    for airline in biggest["airline"]:
        line = (
            flown.filter(pl.col("airline") == airline).group_by("hour").agg(delay=weighted, n=pl.col("flights").sum())
        )
        line = line.filter(pl.col("n") >= FEWEST).sort("hour")
        axes.plot(line["hour"].to_list(), line["delay"].to_list(), marker="o", markersize=3, label=airline)
    axes.set(title="Departure delay through the day", xlabel="hour of departure", ylabel="minutes, on average")
    axes.set_xticks(range(5, 24, 2))
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure


def weather_against_delay(weather: "pd.DataFrame") -> "Figure":
    """Plot the delay against visibility and wind, in dry and in rainy weather."""
    figure = _figure(height=3.8)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, column, label in zip(
        panels, ("visibility", "wind"), ("visibility, miles", "wind, miles an hour (from)"), strict=True
    ):
        for rain, colour, name in ((False, "#d9903d", "dry"), (True, "#3d6fb4", "rain")):
            of_kind = weather[weather["rain"] == rain].groupby(column)[["minutes", "delayed"]].sum()
            of_kind = of_kind[of_kind["delayed"] >= FEWEST]
            axes.plot(of_kind.index, of_kind["minutes"] / of_kind["delayed"], marker="o", color=colour, label=name)
        axes.set(xlabel=label)
    panels[0].set(ylabel="minutes of departure delay, on average")
    panels[0].legend(frameon=False)
    figure.suptitle("Weather against delay", fontsize=11)
    return figure


def _figure(height: float) -> "Figure":
    # Imported for the first plot, so that the code location loads without it. Without pyplot there
    # is no display and no global state.
    from matplotlib.figure import Figure

    return Figure(figsize=(9, height), dpi=110, layout="constrained")


def _png(figure: "Figure") -> str:
    """Return the figure as a data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _table(rows: "pd.DataFrame") -> str:
    return rows.to_html(index=False, border=0, float_format=lambda value: f"{value:,.1f}", justify="left")


def _page(title: str, facts: str, sections: list[tuple[str, str]]) -> str:
    body = "".join(f"<h2>{html.escape(heading)}</h2>{content}" for heading, content in sections)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>
 body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
 img {{ max-width: 100%; }}
 table {{ border-collapse: collapse; }} th, td {{ padding: .25rem .9rem .25rem 0; text-align: left; }}
 th {{ border-bottom: 1px solid #999; }}
</style></head><body><h1>{html.escape(title)}</h1><p>{html.escape(facts)}</p>{body}</body></html>
"""


@dg.asset(
    key=["report", "flights_2013"],
    ins={
        "delays": dg.AssetIn(["analytics", "delay_by_carrier"]),
        "weather": dg.AssetIn(["analytics", "delay_by_weather"], metadata=AS_PANDAS),
        "planes": dg.AssetIn(["analytics", "plane_months"], metadata=AS_PANDAS),
        "routes": dg.AssetIn(["marts", "mart_routes"], metadata=AS_PANDAS),
        "live": dg.AssetIn(["live", "flights"], metadata={"type": "duckrun_table"}),
    },
    deps=[plan.PUBLISH] if settings.PUBLISHES else [],
    group_name="report",
    kinds={"matplotlib", "html"},
    freshness_policy=dg.FreshnessPolicy.time_window(fail_window=timedelta(days=2), warn_window=timedelta(days=1)),
)
def flights_report(
    context: dg.AssetExecutionContext, delays: pl.DataFrame, weather: Any, planes: Any, routes: Any, live: Any
) -> dg.MaterializeResult:
    """Delays of flights out of New York by hour and weather.

    The report is one HTML file, which opens without a network.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):
        by_hour = _png(delay_by_hour(delays))
        by_weather = _png(weather_against_delay(weather))
        by_change = _png(live.plot_history(key="flight_id"))
    months = delays["flight_month"].unique().sort()
    flights, cancelled = int(delays["flights"].sum()), int(delays["cancelled"].sum())
    by_route = routes.groupby(["origin", "dest", "dest_name"], as_index=False)[["flights", "cancelled", "late"]].sum()
    by_plane = planes.groupby(["tailnum", "carrier"], as_index=False)[["flights", "hours", "miles"]].sum()
    page = _page(
        "Flights out of New York, 2013",
        f"{months[0]:%B} to {months[-1]:%B} 2013: {flights:,} flights, {cancelled:,} of them cancelled.",
        [
            ("Delay by hour and carrier", f'<img alt="Departure delay by hour and carrier" src="{by_hour}">'),
            ("Weather against delay", f'<img alt="Weather against departure delay" src="{by_weather}">'),
            ("The live flights, version by version", f'<img alt="Rows by change type" src="{by_change}">'),
            ("The busiest routes", _table(by_route.nlargest(10, "flights"))),
            ("The planes with the most hours in the air", _table(by_plane.nlargest(10, "hours"))),
        ],
    )
    settings.REPORT.parent.mkdir(parents=True, exist_ok=True)
    unfinished = settings.REPORT.with_suffix(f".{os.getpid()}.part")
    unfinished.write_text(page, encoding="utf-8")
    os.replace(unfinished, settings.REPORT)
    context.log.info("Report: %s", settings.REPORT)
    return dg.MaterializeResult(
        metadata={
            "path": dg.MetadataValue.path(str(settings.REPORT)),
            "flights": flights,
            "delay by hour and carrier": dg.MetadataValue.md(f"![Departure delay by hour and carrier]({by_hour})"),
            "weather against delay": dg.MetadataValue.md(f"![Weather against departure delay]({by_weather})"),
        }
    )


ASSETS = [flights_report]
