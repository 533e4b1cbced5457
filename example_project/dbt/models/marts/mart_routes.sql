{{ config(incremental_strategy='merge', unique_key=['flight_month', 'origin', 'dest'],
          merge_mode='deletion_vectors') }}
select
    flights.flight_month,
    flights.origin,
    flights.dest,
    airports.name as dest_name,
    count(*) as flights,
    count(*) filter (where flights.is_cancelled) as cancelled,
    count(*) filter (where flights.is_late) as late,
    avg(flights.arr_delay) as avg_arr_delay,
    avg(flights.distance) as distance,
    sum(flights.seats) as seats_offered
from {{ ref('fct_flights') }} as flights
left join {{ ref('dim_airport') }} as airports on airports.airport = flights.dest
where {{ in_window('flights.flight_month') }}
group by all
