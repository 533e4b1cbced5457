select carrier, airline
from {{ ref('stg_airlines') }}
