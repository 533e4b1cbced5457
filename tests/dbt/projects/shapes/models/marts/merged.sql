{{ config(materialized='incremental', incremental_strategy='merge', unique_key=['id'], merge_exclude_columns=['first_seen'], on_schema_change='sync_all_columns') }}
select id, who, amount, day as first_seen {% if is_incremental() %}, len(words) as tagged {% endif %} from {{ ref('recent') }}
