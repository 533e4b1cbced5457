select tailnum, year as built, manufacturer, model, engine, engines, seats
from {{ source('raw', 'planes') }}
