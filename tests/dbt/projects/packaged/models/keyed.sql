select {{ dbt_utils.generate_surrogate_key(['id', 'day', 'shop', 'amount']) }} as sale_key, {{ dbt_utils.star(ref('sales'), except=['kind']) }},
    {{ dbt_utils.safe_divide('amount', 'id - 1') }} as share, {{ dbt.safe_cast('amount', 'varchar') }} as words,
    {{ dbt.date_trunc('month', 'day') }} as month, {{ dbt.last_day('day', 'month') }} as last, {{ dbt.datediff("cast('2026-01-01' as date)", 'day', 'week') }} as weeks,
    {{ dbt.split_part('shop', "'o'", 1) }} as part, {{ dbt.position("'o'", 'shop') }} as at, {{ dbt.right('shop', 2) }} as tail
from {{ ref('sales') }}
