{{ config(materialized='table') }}
select id, email, email is not null and regexp_matches(email, '^[^@]+@[^@]+\.[a-z]+$') as is_valid from {{ ref('people') }}
