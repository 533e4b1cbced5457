with w as (select id, unnest(words) as word from {{ ref('recent') }})
pivot w on word using count(*) group by id order by id
