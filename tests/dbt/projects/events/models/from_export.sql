{{ config(materialized='table') }}
select plan, sum(spent) as spent from {{ ref('exported') }} group by plan
