select id from {{ ref('events') }}
