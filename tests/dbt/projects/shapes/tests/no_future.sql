{{ config(severity='warn') }}
select * from {{ ref('events') }} where moment > timestamp '2030-01-01'
