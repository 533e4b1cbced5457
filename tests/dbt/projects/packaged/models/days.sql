with spine as ({{ dbt_utils.date_spine('day', "cast('2026-01-30' as date)", "cast('2026-02-04' as date)") }})
select spine.date_day, count(s.id) as sold, {{ dbt.listagg('s.kind', "', '", 'order by s.id') }} as kinds
from spine left join {{ ref('sales') }} as s on s.day = spine.date_day group by spine.date_day
