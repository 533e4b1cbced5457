{{ config(incremental_strategy='merge', unique_key='flight_id', partition_by=['flight_month']) }}
select *
from {{ ref('stg_flights') }}
where {{ in_window('flight_date') }}
