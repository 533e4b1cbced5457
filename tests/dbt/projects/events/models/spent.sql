{{ config(materialized='table') }}
select c.day, a.plan, sum(c.spent)::decimal(18, 3) as spent, count(distinct c.account_id) as accounts
from {{ ref('clicks') }} c
join {{ ref('accounts_scd2') }} a
  on a.account_id = c.account_id and c.day >= a.valid_from and (a.valid_to is null or c.day < a.valid_to)
group by all
