{{ dbt_utils.deduplicate(ref('sales'), partition_by='id', order_by='day desc') }}
