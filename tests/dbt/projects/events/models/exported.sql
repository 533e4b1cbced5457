{{ config(materialized='external', location=var('exports') ~ '/spent.parquet') }}
select * from {{ ref('spent') }} where spent > 0
