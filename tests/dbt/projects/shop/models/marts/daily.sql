{{ config(materialized='incremental', incremental_strategy='merge', unique_key='order_date', on_schema_change='fail',
    merge_update_condition='DBT_INTERNAL_SOURCE.orders > DBT_INTERNAL_DEST.orders') }}
select order_date, count(*) as orders, sum(amount) as amount, avg(amount) as mean, current_schema() is not null as seen
from {{ ref('orders') }}
{% if is_incremental() %} where order_date >= (select max(order_date) from {{ this }}) {% endif %}
group by order_date
