select * exclude (tags) replace (coalesce(amount, 0) as amount) from {{ ref('base') }} where id < {{ var('floor') }} + 100
