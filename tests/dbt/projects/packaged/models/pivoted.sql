select shop, {{ dbt_utils.pivot('kind', dbt_utils.get_column_values(ref('sales'), 'kind'), then_value='amount', prefix='sum of ') }}
from {{ ref('sales') }} group by shop
