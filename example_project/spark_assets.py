"""From the landing folder into the lake, by PySpark: raw tables with declared schemas, and the enriched flights.

Days are partitions. Each asset takes all the days that a run asks for at once (`single_run`): eleven months are one Spark
job a table, not 334.
"""

from datetime import date, timedelta
from typing import Any

import dagster as dg
from pyspark.sql import DataFrame, SparkSession, functions as F, types as T

from duckrun_dagster import SparkResource
from example_project import landing

BY_DAY: dict[str, Any] = {"partitions_def": landing.DAYS, "backfill_policy": dg.BackfillPolicy.single_run()}


def _schema(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


TEXT, WHOLE, REAL, MOMENT = T.StringType(), T.IntegerType(), T.DoubleType(), T.TimestampType()
FLIGHTS = _schema(
    year=WHOLE,
    month=WHOLE,
    day=WHOLE,
    dep_time=WHOLE,
    sched_dep_time=WHOLE,
    dep_delay=WHOLE,
    arr_time=WHOLE,
    sched_arr_time=WHOLE,
    arr_delay=WHOLE,
    carrier=TEXT,
    flight=WHOLE,
    tailnum=TEXT,
    origin=TEXT,
    dest=TEXT,
    air_time=WHOLE,
    distance=WHOLE,
    hour=WHOLE,
    minute=WHOLE,
    time_hour=MOMENT,
)
WEATHER = _schema(
    origin=TEXT,
    year=WHOLE,
    month=WHOLE,
    day=WHOLE,
    hour=WHOLE,
    temp=REAL,
    dewp=REAL,
    humid=REAL,
    wind_dir=WHOLE,
    wind_speed=REAL,
    wind_gust=REAL,
    precip=REAL,
    pressure=REAL,
    visib=REAL,
    time_hour=MOMENT,
)
PLANES = _schema(
    tailnum=TEXT,
    year=WHOLE,
    type=TEXT,
    manufacturer=TEXT,
    model=TEXT,
    engines=WHOLE,
    seats=WHOLE,
    speed=WHOLE,
    engine=TEXT,
)
AIRPORTS = _schema(faa=TEXT, name=TEXT, lat=REAL, lon=REAL, alt=WHOLE, tz=WHOLE, dst=TEXT, tzone=TEXT)
AIRLINES = _schema(carrier=TEXT, name=TEXT)


def _read(session: SparkSession, schema: T.StructType, files: list[landing.LandedFile]) -> DataFrame:
    # FAILFAST: a value that does not fit the declared type stops the run, instead of becoming NULL.
    return session.read.csv(
        [str(file.path) for file in files], schema=schema, header=True, nullValue=landing.NULL, mode="FAILFAST"
    )


def _days(context: dg.AssetExecutionContext) -> tuple[date, date]:
    """First and last day that this run is to make."""
    window = context.partition_time_window
    return window.start.date(), window.end.date() - timedelta(days=1)


def _read_days(
    context: dg.AssetExecutionContext, session: SparkSession, name: str, schema: T.StructType, column: str
) -> DataFrame:
    """The landed rows of this run's days, with their day in `column`."""
    first, last = _days(context)
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
    group_name="ingest",
    kinds={"pyspark", "delta"},
    metadata={"partition_expr": "flight_date", "engine": "spark"},
    **BY_DAY,
)
def raw_flights(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Flights that left New York, as landed, with the day that they are filed under."""
    # The rows of a day in one task, so that a day is one file.
    return _read_days(context, spark.session(), "flights", FLIGHTS, "flight_date").repartition("flight_date")


@dg.asset(
    key=["raw", "weather"],
    deps=[landing.asset_key("weather")],
    group_name="ingest",
    kinds={"pyspark", "delta"},
    # Seventy-two rows a day: Dagster's partitions are days, the folders of the table are months.
    metadata={"partition_expr": "weather_date", "partition_by": ["weather_month"], "engine": "spark"},
    **BY_DAY,
)
def raw_weather(context: dg.AssetExecutionContext, spark: SparkResource) -> DataFrame:
    """Hourly weather at the three airports."""
    return (
        _read_days(context, spark.session(), "weather", WEATHER, "weather_date")
        .withColumn("weather_month", F.trunc("weather_date", "month"))
        .repartition("weather_month")
    )


def _whole_table(name: str, schema: T.StructType, description: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=["raw", name],
        deps=[landing.asset_key(name)],
        group_name="ingest",
        kinds={"pyspark", "delta"},
        metadata={"engine": "spark"},
        description=description,
    )
    def table(spark: SparkResource) -> DataFrame:
        return _read(spark.session(), schema, landing.landed(name))

    return table


raw_planes = _whole_table("planes", PLANES, "Planes of the FAA's register, by tail number.")
raw_airports = _whole_table("airports", AIRPORTS, "Airports of the United States.")
raw_airlines = _whole_table("airlines", AIRLINES, "Names of the carriers.")


@dg.asset(
    key=["refined", "flights"],
    ins={
        "flights": dg.AssetIn(["raw", "flights"]),
        "weather": dg.AssetIn(["raw", "weather"]),
        "planes": dg.AssetIn(["raw", "planes"]),
        "airports": dg.AssetIn(["raw", "airports"]),
    },
    group_name="ingest",
    kinds={"pyspark", "delta"},
    metadata={"partition_expr": "flight_date", "engine": "spark"},
    **BY_DAY,
)
def refined_flights(flights: DataFrame, weather: DataFrame, planes: DataFrame, airports: DataFrame) -> DataFrame:
    """Each flight with the weather of its hour at its origin, its plane, and where it went."""
    weather = weather.select(
        "origin", "time_hour", "temp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"
    )
    planes = planes.select(
        "tailnum", F.col("year").alias("plane_year"), F.col("manufacturer"), F.col("model"), F.col("seats")
    )
    airports = airports.select(
        F.col("faa").alias("dest"), F.col("name").alias("dest_name"), F.col("lat").alias("dest_lat"), "lon"
    ).withColumnRenamed("lon", "dest_lon")
    # A carrier gives a flight number once a day at an airport: that names the flight, in this data without exception.
    flight_id = F.concat_ws(
        "/", F.col("flight_date").cast("string"), "carrier", F.col("flight").cast("string"), "origin"
    )
    return (
        flights.drop("year", "month", "day")
        .withColumn("flight_id", flight_id)
        .join(F.broadcast(weather), ["origin", "time_hour"], "left")
        .join(F.broadcast(planes), "tailnum", "left")
        .join(F.broadcast(airports), "dest", "left")
        .repartition("flight_date")
    )


ASSETS = [raw_flights, raw_weather, raw_planes, raw_airports, raw_airlines, refined_flights]
