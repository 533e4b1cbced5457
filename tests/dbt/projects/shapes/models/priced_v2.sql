select id, (coalesce(amount, 0) * 100)::bigint as cents from {{ ref('events') }}
