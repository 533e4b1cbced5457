{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key=['day', 'account_id']) }}
select at::date as day, account_id, count(*) as clicks, sum(price) as spent, min(at) as first_at
from {{ source('landing', 'clicks') }}
{% if is_incremental() %} where at::date >= (select max(day) from {{ this }}) {% endif %}
group by all
