{{ dbt_utils.date_spine('month', "cast('2026-01-01' as date)", "cast('2026-04-01' as date)") }}
