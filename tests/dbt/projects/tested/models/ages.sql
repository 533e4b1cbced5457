{{ config(materialized='incremental', unique_key='id', incremental_strategy='merge') }}
select id, date_diff('year', born, date '2026-01-01') as age, born from {{ ref('people') }}
{% if is_incremental() %} where born > (select max(born) from {{ this }}) {% endif %}
