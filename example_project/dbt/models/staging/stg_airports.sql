select faa as airport, name, lat, lon, alt as altitude, tzone as time_zone
from {{ source('raw', 'airports') }}
union all
select faa, name, lat, lon, alt, tzone
from {{ ref('other_airports') }}
