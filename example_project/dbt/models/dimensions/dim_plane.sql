select
    tailnum,
    built,
    manufacturer,
    model,
    engine,
    engines,
    seats,
    2013 - built as age
from {{ ref('stg_planes') }}
