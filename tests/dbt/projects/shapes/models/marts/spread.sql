select columns('id|who'), {'n': amount, 'd': day} as both, map {'who': who} as m, words[1] as first_word, words[-1:] as last_words,
    strftime(moment, '%Y/%m') as month, date_diff('hour', moment, timestamp '2026-02-01') as hours, who[1:2] as start, epoch(moment)::bigint as e
from {{ ref('recent') }}
