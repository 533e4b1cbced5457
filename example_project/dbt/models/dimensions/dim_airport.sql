select
    airport,
    name,
    lat,
    lon,
    altitude,
    time_zone,
    airport in ('EWR', 'JFK', 'LGA') as is_new_york
from {{ ref('stg_airports') }}
