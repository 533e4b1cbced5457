"""Assets in plain Python, one for each kind of frame.

The IO manager reads inputs and writes results.
"""

from typing import Any

import dagster as dg
import duckdb
import polars as pl

from example_project import landing, settings
from example_project.columns import described

BY_MONTH: dict[str, Any] = {
    "group_name": "analytics",
    "partitions_def": landing.MONTHS,
    "backfill_policy": dg.BackfillPolicy.single_run(),
}


@dg.asset(
    key=["analytics", "delay_by_carrier"],
    ins={"flights": dg.AssetIn(["marts", "fct_flights"]), "airlines": dg.AssetIn(["marts", "dim_airline"])},
    kinds={"polars", settings.STORED},
    metadata={
        "partition_expr": "flight_month",
        "column_descriptions": described(
            "flight_month carrier airline hour flights cancelled",
            dep_delay="Mean departure delay, in minutes.",
            arr_delay="Mean arrival delay, in minutes.",
        ),
    },
    **BY_MONTH,
)
def delay_by_carrier(flights: pl.LazyFrame, airlines: pl.LazyFrame) -> pl.LazyFrame:
    """Delay by month, carrier and hour of the day, in Polars: lazy from Delta to Delta files."""
    return (
        flights.join(airlines, on="carrier")
        .group_by("flight_month", "carrier", "airline", "hour")
        .agg(
            flights=pl.len().cast(pl.Int64),
            cancelled=pl.col("is_cancelled").sum().cast(pl.Int64),
            dep_delay=pl.col("dep_delay").mean(),
            arr_delay=pl.col("arr_delay").mean(),
        )
        .sort("flight_month", "carrier", "hour")
    )


@dg.asset(
    key=["analytics", "delay_by_weather"],
    ins={
        "flights": dg.AssetIn(
            ["refined", "flights"],
            # The type is named here: with an annotation, the code location would import pandas,
            # which takes a second.
            metadata={
                "type": "pandas",
                "columns": ["flight_date", "dep_delay", "dep_time", "visib", "wind_speed", "precip"],
            },
        )
    },
    kinds={"pandas", settings.STORED},
    metadata={
        "partition_expr": "flight_month",
        "column_descriptions": described("flight_month visibility wind rain flights cancelled delayed minutes"),
    },
    **BY_MONTH,
)
def delay_by_weather(flights: Any) -> Any:
    """Delay by month, visibility, wind and rain, in pandas."""
    import pandas as pd

    flights = flights.dropna(subset=["visib", "wind_speed", "precip"])
    return (
        flights.assign(
            flight_month=pd.to_datetime(flights["flight_date"]).dt.to_period("M").dt.start_time.dt.date,
            visibility=flights["visib"].clip(upper=10).round().astype("int32"),
            wind=(flights["wind_speed"] // 5 * 5).clip(upper=35).astype("int32"),
            rain=flights["precip"] > 0,
            cancelled=flights["dep_time"].isna(),
        )
        .groupby(["flight_month", "visibility", "wind", "rain"], as_index=False)
        .agg(
            flights=("cancelled", "size"),
            cancelled=("cancelled", "sum"),
            delayed=("dep_delay", "count"),
            minutes=("dep_delay", "sum"),
        )
    )


@dg.asset(
    key=["analytics", "plane_months"],
    ins={"flights": dg.AssetIn(["marts", "fct_flights"], metadata={"predicate": "tailnum is not null"})},
    kinds={"duckdb", settings.STORED},
    metadata={
        "merge_keys": ["flight_month", "tailnum"],
        "partition_expr": "flight_month",
        "partition_by": [],
        # All months are in one folder. A month that is computed again gets deletion vectors, so the
        # files that it shares with other months stay.
        "merge_mode": "deletion_vectors",
        "column_descriptions": described(
            "flight_month tailnum carrier built flights hours miles",
            dep_delay="Mean departure delay, in minutes.",
        ),
    },
    **BY_MONTH,
)
def plane_months(flights: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Flights, hours and miles of each plane by month, as a DuckDB relation.

    Merged by plane and month.
    """
    return flights.aggregate(
        """flight_month, tailnum, min(carrier) as carrier, min(plane_year) as built, count(*) as flights,
        sum(air_time) / 60.0 as hours, sum(distance) as miles, avg(dep_delay) as dep_delay""",
        "flight_month, tailnum",
    )


ASSETS = [delay_by_carrier, delay_by_weather, plane_months]
