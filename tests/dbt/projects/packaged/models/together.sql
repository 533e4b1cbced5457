{{ dbt_utils.union_relations([ref('sales'), ref('prices')]) }}
