{{ config(materialized='ephemeral') }}
select *, string_split(tags, '|') as words, moment::date as day from {{ ref('events') }}
