{{ config(materialized='incremental', unique_key='account_id') }}
with rows as (
    select account_id, plan, changed_at from {{ source('landing', 'accounts') }}
    {% if is_incremental() %}
    where account_id in (
        select account_id from {{ source('landing', 'accounts') }} where changed_at > (select max(valid_from) from {{ this }})
    )
    {% endif %}
)
select account_id, plan, changed_at as valid_from,
    lead(changed_at) over (partition by account_id order by changed_at) as valid_to,
    valid_to is null as is_current
from rows
