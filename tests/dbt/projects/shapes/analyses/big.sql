select max(amount) from {{ ref('events') }}
