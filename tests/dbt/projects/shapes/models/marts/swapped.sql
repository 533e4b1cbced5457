{{ config(materialized='swapped') }}
select day, count(*) as n, sum(amount) as total, list(who order by id) as whos from {{ ref('recent') }} group by all
