"""PySpark assets: raw tables with declared schemas from the landing folder, and enriched flights.

Days are partitions. Each asset takes all days of a run at once (`single_run`): eleven months are
one Spark job per table, not 334.
"""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, SparkSession, functions as F

from duckrun_dagster import SparkResource
from example_project import landing, settings
from example_project.columns import described

INGEST: dict[str, Any] = {"group_name": "ingest", "kinds": {"pyspark", settings.STORED}}
BY_DAY = {**INGEST, "partitions_def": landing.DAYS, "backfill_policy": dg.BackfillPolicy.single_run()}


FLIGHTS = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""
WEATHER = """
    origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int,
    wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp
"""
PLANES = """
    tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, speed int,
    engine string
"""
AIRPORTS = "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string"
AIRLINES = "carrier string, name string"
OF_A_WEATHER_ROW = {
    "origin": "Airport of the observation: EWR, JFK or LGA.",
    "year": "Year of the observation.",
    "month": "Month of the observation, 1 to 12.",
    "day": "Day of the month of the observation.",
    "hour": "Local hour of the observation.",
}
OF_A_PLANE = {"year": "Year in which the plane was built."}
OF_AN_AIRPORT = {"name": "Name of the airport."}
OF_AN_AIRLINE = {"name": "Name of the airline."}
REFINED = """
    flight_id flight_date dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay carrier flight tailnum
    origin dest air_time distance hour minute time_hour temp humid wind_speed wind_gust precip pressure visib plane_year
    manufacturer model seats dest_name dest_lat dest_lon
"""


def _described(schema: str, others: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the descriptions of the columns of a declared schema.

    Args:
        others: Columns that mean something else in this table, with their descriptions.
    """
    names = (field.split()[0] for field in schema.split(","))
    return described(" ".join(name for name in names if name not in others), **others)


def _read(session: SparkSession, schema: str, files: list[landing.LandedFile]) -> DataFrame:
    # FAILFAST: a value that does not fit the declared type stops the run, instead of becoming NULL.
    return session.read.csv(
        [str(file.path) for file in files], schema=schema, header=True, nullValue=landing.NULL, mode="FAILFAST"
    )


def _read_days(
    context: dg.AssetExecutionContext, session: SparkSession, name: str, schema: str, column: str
) -> DataFrame:
    """Return the landed rows of the days of this run, with their day in `column`."""
    window = context.partition_time_window
    first, last = window.start.date(), window.end.date() - timedelta(days=1)
    files = landing.landed(name, range(first.month, last.month + 1))
    context.log.info("%s: %d files, %s to %s", name, len(files), first, last)
    return (
        _read(session, schema, files)
        .withColumn(column, F.make_date("year", "month", "day"))
        .where(F.col(column).between(first, last))
    )


@dg.asset(
    key=["raw", "flights"],
    deps=[landing.asset_key("flights")],
    metadata={
        "partition_expr": "flight_date",
        "engine": "spark",
        "column_descriptions": _described(FLIGHTS) | described("flight_date"),
    },
    **BY_DAY,
)
def raw_flights(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Flights that left New York, as landed, with the day that they are filed under."""
    # All rows of a day go to one task, so that a day is one file.
    return _read_days(context, spark.session(), "flights", FLIGHTS, "flight_date").repartition("flight_date")


@dg.asset(
    key=["raw", "weather"],
    deps=[landing.asset_key("weather")],
    # A day has only seventy-two rows: Dagster's partitions are days, the table's folders are
    # months.
    metadata={
        "partition_expr": "weather_date",
        "partition_by": ["weather_month"],
        "engine": "spark",
        "column_descriptions": _described(WEATHER, OF_A_WEATHER_ROW) | described("weather_date weather_month"),
    },
    **BY_DAY,
)
def raw_weather(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Hourly weather at the three airports."""
    return (
        _read_days(context, spark.session(), "weather", WEATHER, "weather_date")
        .withColumn("weather_month", F.trunc("weather_date", "month"))
        .repartition("weather_month")
    )


def _whole_table(name: str, schema: str, description: str, columns: dict[str, str]) -> dg.AssetsDefinition:
    @dg.asset(
        key=["raw", name],
        deps=[landing.asset_key(name)],
        metadata={"engine": "spark", "column_descriptions": _described(schema, columns)},
        description=description,
        **INGEST,
    )
    def table(spark: SparkResource) -> DataFrame:
        return _read(spark.session(), schema, landing.landed(name))

    return table


raw_planes = _whole_table("planes", PLANES, "Planes of the FAA's register, by tail number.", OF_A_PLANE)
raw_airports = _whole_table("airports", AIRPORTS, "Airports of the United States.", OF_AN_AIRPORT)
raw_airlines = _whole_table("airlines", AIRLINES, "Names of the carriers.", OF_AN_AIRLINE)


def _enriched(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    weather = weather.select(
        "origin", "time_hour", "temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"
    )
    planes = planes.selectExpr("tailnum", "year as plane_year", "manufacturer", "model", "seats")
    airports = airports.selectExpr("faa as dest", "name as dest_name", "lat as dest_lat", "lon as dest_lon")
    # A carrier uses a flight number once a day at an airport. This identifies every flight in this
    # data.
    flight_id = F.expr("concat_ws('/', string(flight_date), carrier, string(flight), origin)")
    return (
        flights.drop("year", "month", "day")
        .withColumn("flight_id", flight_id)
        .join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .join(F.broadcast(planes), "tailnum", "left")
        .join(F.broadcast(airports), "dest", "left")
        .repartition("flight_date")
    )


@dg.asset(
    key=["refined", "flights"],
    ins={
        "flights": dg.AssetIn(["raw", "flights"]),
        "weather": dg.AssetIn(["raw", "weather"]),
        "planes": dg.AssetIn(["raw", "planes"]),
        "airports": dg.AssetIn(["raw", "airports"]),
    },
    metadata={"partition_expr": "flight_date", "engine": "spark", "column_descriptions": described(REFINED)},
    **BY_DAY,
)
def refined_flights(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour at its origin, its plane, and its destination."""
    return _enriched(flights, weather, planes, airports)


@dg.asset(
    key=["refined", "flights"],
    deps=[["raw", "flights"], ["raw", "weather"], ["raw", "planes"], ["raw", "airports"]],
    metadata={
        "partition_expr": "flight_date",  # for the assets that load it
        "column_descriptions": described(REFINED),
    },
    **BY_DAY,
)
def refined_flights_by_names(context: dg.AssetExecutionContext, spark: SparkResource) -> None:
    """The enriched flights by PySpark alone: tables by name, and the days of this run replaced."""
    session, window = spark.session(), context.partition_time_window
    days = f"flight_date >= '{window.start.date()}' AND flight_date < '{window.end.date()}'"
    rows = _enriched(
        session.table("raw.flights").where(days),
        session.table("raw.weather"),
        session.table("raw.planes"),
        session.table("raw.airports"),
    )
    writer = rows.write.mode("overwrite").option("replaceWhere", days).partitionBy("flight_date")
    writer.saveAsTable("refined.flights")


_REFINED = refined_flights_by_names if settings.NAMES else refined_flights

ASSETS = [raw_flights, raw_weather, raw_planes, raw_airports, raw_airlines, _REFINED]
