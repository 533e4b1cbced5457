"""Asset checks: every table has the rows that landed.

Tests of the dbt models are checks too.
"""

import dagster as dg
import polars as pl

from duckrun_dagster import DuckrunResource
from example_project import landing, settings

# The month of a row, by schema.
MONTH_OF_ROW = {"raw": "month", "refined": "month(flight_date)", "marts": "month(flight_month)"}


def _holds_what_landed(key: list[str], name: str) -> dg.AssetChecksDefinition:
    # Blocking: no downstream asset is computed from a raw table that lacks rows.
    @dg.asset_check(asset=dg.AssetKey(key), name="holds_what_landed", blocking=key[0] == "raw")
    def check(duckrun: DuckrunResource) -> dg.AssetCheckResult:
        """Each month of the table has as many rows as its landed file.

        A month that lands while the table is made belongs to the next run.
        """
        month = MONTH_OF_ROW[key[0]] if name in landing.MONTHLY else "null"
        query = f"select {month} as month, count(*) as rows from {'.'.join(key)} group by all"
        rows = {row["month"]: row["rows"] for row in duckrun.session().sql(query).collect()}
        landed = {file.month: file.rows() for file in landing.landed(name) if file.month in rows}
        numbers = {"rows": sum(rows.values()), "landed": sum(landed.values())}
        return dg.AssetCheckResult(passed=bool(rows) and rows == landed, metadata=numbers)

    return check


@dg.asset_check(asset=dg.AssetKey(["refined", "flights"]))
def weather_is_known(duckrun: DuckrunResource) -> dg.AssetCheckResult:
    """Nearly every flight has the weather of its hour.

    A wrong join would drop weather or repeat flights.
    """
    shares = duckrun.session().sql("select count(visib) / count(*) as share from refined.flights").toArrow()
    share = float(shares["share"][0].as_py())
    return dg.AssetCheckResult(passed=share > 0.98, metadata={"share": share})


# Blocking: a run of transform is published only if its flights agree with the report.
@dg.asset_check(asset=dg.AssetKey(["marts", "fct_flights"]), blocking=True)
def agrees_with_the_airports(duckrun: DuckrunResource) -> dg.AssetCheckResult:
    """Each month has as many flights as the airports report."""
    reported = dict(pl.read_csv(settings.REPORTED).iter_rows())
    counts = "select month(flight_month) as month, count(*) as flights from marts.fct_flights group by all"
    flights = {row["month"]: row["flights"] for row in duckrun.session().sql(counts).collect()}
    wrong = {month: f"{flights[month]:,} and not {reported.get(month, 0):,}" for month in sorted(flights)}
    wrong = {month: text for month, text in wrong.items() if flights[month] != reported.get(month)}
    return dg.AssetCheckResult(passed=not wrong, metadata={f"month {month}": text for month, text in wrong.items()})


CHECKS = [
    *(_holds_what_landed(["raw", name], name) for name in (*landing.MONTHLY, *landing.WHOLE)),
    _holds_what_landed(["refined", "flights"], "flights"),
    _holds_what_landed(["marts", "fct_flights"], "flights"),
    agrees_with_the_airports,
    weather_is_known,
]
