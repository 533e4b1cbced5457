{{ config(incremental_strategy='delete+insert', unique_key=['flight_month', 'hour']) }}
select
    flight_month,
    hour,
    count(*) as flights,
    count(*) filter (where is_cancelled) as cancelled,
    count(*) filter (where is_late) as late,
    avg(dep_delay) as avg_dep_delay,
    avg(arr_delay) as avg_arr_delay
from {{ ref('fct_flights') }}
where {{ in_window('flight_month') }}
group by all
