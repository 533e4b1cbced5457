"""Incremental assets: late corrections flow through them row by row.

A corrected file lands for a month that is already in the lake, and its days are read again. Of
those rows, only the changed ones go on: into the live flights, a history of the planes, and sums
that are updated by differences.
"""

from typing import Any

import dagster as dg

from example_project import settings
from example_project.columns import described

LIVE: dict[str, Any] = {"group_name": "live"}
SIGN = "case when _change_type in ('insert', 'update_postimage') then 1 else -1 end"
COLUMNS = ["flight_id", "flight_date", "carrier", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]


def _changes(key: list[str], of: list[str], **more: Any) -> dg.AssetIn:
    return dg.AssetIn(of, metadata={"changes": "min_delta", "key": key, "type": "duckrun", **more})


@dg.asset(
    key=["live", "flights"],
    ins={"flights": _changes(["flight_id"], ["refined", "flights"], columns=COLUMNS)},
    metadata={
        "merge_keys": "flight_id",
        "merge_mode": "deletion_vectors",
        "change_data_feed": True,
        "column_descriptions": described(" ".join(COLUMNS)),
    },
    kinds={"duckdb", settings.STORED},
    **LIVE,
)
def live_flights(flights: Any) -> Any:
    """The current flights. Each incoming row is an insert, an update or a delete."""
    return flights


@dg.asset(
    key=["live", "planes"],
    ins={"flights": _changes(["flight_id"], ["live", "flights"])},
    metadata={
        "mode": "scd2",
        "merge_keys": "tailnum",
        "sequence_by": "as_of",
        "column_descriptions": described(
            "tailnum flights as_of valid_from valid_to",
            carrier="Airline of the last flight of the plane.",
            minutes_late="Mean arrival delay, in whole minutes.",
        ),
    },
    kinds={"duckdb", settings.STORED},
    **LIVE,
)
def planes(flights: Any) -> Any:
    """The last carrier of each plane and its mean delay in whole minutes, with its history.

    Only planes whose flights changed are computed.
    """
    flights.createOrReplaceTempView("changed_flights")
    flights.after().createOrReplaceTempView("flights_now")
    return flights.session.sql(f"""
        select tailnum, max_by(carrier, flight_id) as carrier, count(*) as flights,
            cast(round(avg(arr_delay)) as int) as minutes_late, {flights.to_version} as as_of
        from flights_now
        where tailnum in (select tailnum from changed_flights)
        group by tailnum
    """)


@dg.asset(
    key=["live", "airline_months"],
    ins={
        "flights": _changes(["flight_id"], ["live", "flights"]),
        "airlines": _changes(["carrier"], ["marts", "dim_airline"]),
    },
    metadata={
        "merge_keys": ["flight_month", "airline"],
        # The rows are differences, which are added to the table's values.
        "merge_clauses": [
            {"kind": "matched_delete", "condition": "target.flights + source.flights = 0"},
            {
                "kind": "matched_update",
                "set": {
                    "flights": "target.flights + source.flights",
                    "flown": "target.flown + source.flown",
                    "minutes_late": "target.minutes_late + source.minutes_late",
                },
            },
            {"kind": "not_matched_insert"},
        ],
        "column_descriptions": described("flight_month airline flights flown minutes_late"),
    },
    kinds={"duckdb", settings.STORED},
    **LIVE,
)
def airline_months(flights: Any, airlines: Any) -> Any:
    """Flights and minutes of delay by month and airline: a join of two changing tables.

    It is updated by differences: the changed flights joined with the new airlines, and the old
    flights joined with the changed airlines.
    """
    for name, frame in (
        ("flights_changed", flights),
        ("flights_before", flights.before()),
        ("airlines_changed", airlines),
        ("airlines_after", airlines.after()),
    ):
        frame.createOrReplaceTempView(name)
    return flights.session.sql(f"""
        with differences as (
            select f.flight_date, f.arr_delay, a.airline, {SIGN.replace("_change_type", "f._change_type")} as sign
            from flights_changed f join airlines_after a using (carrier)
            union all
            select f.flight_date, f.arr_delay, a.airline, {SIGN.replace("_change_type", "a._change_type")} as sign
            from flights_before f join airlines_changed a using (carrier)
        )
        select cast(date_trunc('month', flight_date) as date) as flight_month, airline,
            cast(sum(sign) as bigint) as flights,
            cast(sum(sign * (arr_delay is not null)::int) as bigint) as flown,
            cast(sum(sign * coalesce(arr_delay, 0)) as bigint) as minutes_late
        from differences
        group by all
        having sum(sign) <> 0 or sum(sign * coalesce(arr_delay, 0)) <> 0
            or sum(sign * (arr_delay is not null)::int) <> 0
    """)


ASSETS = [live_flights, planes, airline_months]
