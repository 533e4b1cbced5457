{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key=['day', 'account_id']) }}
select moment::date as day, account_id, count(*) as clicks, sum(price) as spent, min(moment) as first_at
from {{ source('landing', 'clicks') }}
{% if is_incremental() %} where moment::date >= (select max(day) from {{ this }}) {% endif %}
group by all
