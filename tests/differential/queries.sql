-- One query a line, over n(id, i, b, f, m, flag), w(id, s, t, j), d(id, d, ts, tz, unit), c(id, l, words, st, mp): see test_corpus.py.
-- literals
select 1_000, 1e3, .5, 5., 0.5e-2, 10_0.0_1
select 'it''s', '', E'a\tb\n', E'\x41', $$it's$$, $tag$a $$ b$tag$
select timestamp '2008-01-01 10:00'::date
select date '2020-02-29' + 1, date '2020-02-29' - date '2020-01-01', date '2020-02-29' + interval 1 year
select time '10:00:01.5'::varchar, timestamptz '2020-01-01 00:00:00+02', timestamp '2020-01-01'
select interval '36 hour', interval '14 months ago', interval '1 day 2 hours', interval 3 days, interval (1 + 1) months
select interval '1' year, interval 90 minute, interval '1:30:00', interval '2 weeks'
select true, false, null, not true, null is null
select [1, 2, 3], [], ['a', null], [[1], [2, 3]]
select {'a': 1, 'b': 'x'}, {'a': {'b': 2}}.a.b, row(1, 'x'), struct_pack(a := 1, b := 2)
select map {'a': 1, 'b': 2}, map {'a': 1}['a'], map([1, 2], ['x', 'y'])
select '\xAA\xBB'::blob, 'x'::blob || 'y'::blob, '1010'::bit, '1010'::bit & '0110'::bit
select 1::utinyint, 300::usmallint, 1::hugeint, 1::uhugeint, 1.5::decimal(18, 3), 1::float, 'NaN'::double, 'inf'::float
select 9223372036854775807, 9223372036854775808, -9223372036854775808, 1.234567890123456789
select 1 = 1.0, 'a' < 'b', 1 <> 2, 1 != 2, 1 == 1, 2 >= 1
select 10 / 4, 10 // 4, -10 // 4, 10 % 4, 2 ** 3, 2 ^ 3, 5!, @ -3, ~5, 6 & 3, 6 | 3, 1 << 4, 16 >> 2, xor(6, 3)
select 7 / 2, 7.0 / 2, -7 % 3, 1 / 0, 1 // 0, 0.1 + 0.2
select '5'::int + 1, '2020-01-01'::date, 'true'::bool, cast('1.5' as decimal(3, 1)), try_cast('x' as int)
select 1::varchar || 'a', 'a' || null, concat('a', null, 1), concat_ws('-', 'a', null, 'b')
select 'abc'[1], 'abc'[2:3], 'abc'[-1], 'abc'[:-2], [1, 2, 3][2], [1, 2, 3][-1], [1, 2, 3][1:2], [1, 2, 3, 4][1:4:2]
select x: 1, y: 'a', 3 as "with space", 4 as "quo""ted"
select 'a' as a, a || 'b' as b, b || 'c'
-- names of results
select len(s), length(s), count(*) from w group by all
select count(*), count(i), count(distinct i), sum(i), avg(i), min(i), max(i) from n
select i + 1, -i, i * 2 - b, i::varchar, cast(i as double), not flag, i is null, i between 1 and 3, i in (1, 2) from n
select s || 'x', upper(s), s like 'a%', s ilike 'A%', s[1], substring(s, 1, 2) from w
select n.i, main.n.b, n.* from n
select "i", "n"."b" from "n"
select case when i > 1 then 'a' else 'b' end, coalesce(i, 0), nullif(i, 1), if(flag, 1, 2), ifnull(i, 9) from n
select date_trunc('month', d), extract(year from d), date_part('dow', d), year(d), d + interval 1 month from d
select d::varchar, ts::date, ts::time, tz::date, epoch(ts) from d
select sum(i) over (order by id), row_number() over (order by id), lag(i) over (order by id) from n
select (select 1), exists (select 1), 1 in (select 1)
-- operators on texts
select s ~ 'b' from w
select s !~ 'b' from w
select id from w where s ~ 'b.*'
select s similar to '(a|b).*', s not similar to 'b.*' from w
select s ~~ 'a%', s !~~ 'a%', s ~~* 'A%', s !~~* 'A%', s ~~~ 'a*' from w
select s like 'a!%%' escape '!', s not like '%b', s glob 'a*', s ^@ 'a' from w
select s collate nocase = 'ABC' from w
select regexp_matches(s, 'B', 'i'), regexp_matches(s, 'b'), regexp_full_match(s, 'A.*', 'i') from w
select regexp_replace(s, 'B', '-', 'gi'), regexp_replace(s, 'b', '-'), regexp_replace(s, '(b)', '\1\1', 'g') from w
select regexp_extract(s, 'B.', 0, 'i'), regexp_extract(s, '(b)(.)', 2), regexp_extract(s, '(b)(.)', ['x', 'y']) from w
select regexp_extract_all(s, 'B|C', 0, 'i'), regexp_split_to_array(s, 'B', 'i'), string_split_regex(s, '[bc]') from w
select regexp_matches(s, 'a.c', 's'), regexp_replace(s, 'b', '$1'), regexp_escape(s) from w
select s.upper(), s.upper().lower().len(), ('abc').upper(), s.len() from w
select trim(s, 'a'), ltrim(s, 'ab'), rtrim(s, 'c'), trim(both 'a' from s), trim(leading 'a' from s) from w
select position('b' in s), strpos(s, 'b'), instr(s, 'b'), substring(s from 2 for 1) from w where s is not null
select lpad(s, 5, 'xy'), rpad(s, 2, 'x'), repeat(s, 2), replace(s, 'a', 'b'), reverse(s), translate(s, 'ab', 'xy') from w
select split_part(s, 'b', 1), string_split(s, 'b'), starts_with(s, 'a'), s.contains('b'), ends_with(s, 'c') from w
select format('{} {}', s, id), printf('%s-%d', s, id), s[1:2], left(s, -1), right(s, 2), ascii(s), chr(65) from w
select md5(s), sha256(s), hash(s) = hash(s), base64(s::blob), hex(s), to_base64(s::blob) from w
select levenshtein(s, 'abc'), damerau_levenshtein(s, 'abd'), hamming('abc', 'abd'), jaro_winkler_similarity(s, 'abc') from w where s <> ''
select unicode(s), strip_accents('é'), nfc_normalize(s), bit_length(s), strlen(s), length_grapheme(s) from w
select string_agg(s, ',' order by id desc), string_agg(distinct s, '|' order by s), listagg(s, ';' order by id) from w
select s < 'b', s between 'a' and 'b', s in ('abc', 'x'), s not in ('abc'), s is distinct from 'abc', s is not distinct from null from w
select s as "select", s as "from" from w
select s || E'\n' from w
-- numbers
select round(f, 1), round(m, -1), ceil(f), floor(f), trunc(f), abs(i), sign(i), sqrt(abs(f)), ln(2), log(100), log(2, 8) from n
select greatest(i, 3, b), least(i, 3), i % 3, mod(i, 3), fmod(f, 2), gcd(i, 4), lcm(i, 4), even(f) from n
select m + 1, m / 3, m::int, m::double, -m, m % 2, sum(m) over () from n
select bin(i), to_binary(i), to_hex(i), hex(i) from n where i >= 0
select i::tinyint, i::smallint, b::hugeint, i::decimal(5, 2), i::bool from n where i between -5 and 100
select isnan(f), isfinite(f), isinf(f), nextafter(f, 0), pi(), radians(f), degrees(f), sin(0), cbrt(8), exp(0), gamma(3) from n
select bit_count(i), factorial(4) from n
select i // 2, i / 2, b // 3, -i // 2 from n
select equi_width_bins(0, 10, 2, false), range(3), generate_series(1, 3), range(0, 10, 5)
select avg(i), median(i), mode(i), stddev(f), stddev_pop(f), variance(f), var_pop(f), skewness(f), kurtosis(f) from n where abs(f) < 100
select quantile(i, 0.5), quantile_cont(i, 0.25), quantile_disc(i, [0.25, 0.5]), percentile_cont(0.5) within group (order by i) from n
select percentile_disc(0.5) within group (order by i desc), mode() within group (order by i) from n
select sum(i) filter (where flag), count(*) filter (i > 1), avg(distinct i), product(i) filter (i <> 0) from n
select bool_and(flag), bool_or(flag), bit_and(i), bit_or(i), bit_xor(i), count_if(i > 1), countif(flag) from n
select arg_max(s, id), arg_min(s, id), max_by(s, id), arg_max(s, id, 2), max(id, 2), min(id, 2) from w
select first(i order by id), last(i order by id), any_value(i order by id), list(i order by id desc), array_agg(i order by id) from n
select last(i order by id nulls first), first(i order by id desc), arbitrary(id) filter (id = 1) from n
select corr(f, i), covar_pop(f, i), covar_samp(f, i), regr_slope(f, i), regr_r2(f, i), regr_count(f, i) from n where abs(f) < 100
select histogram(i), entropy(i), approx_count_distinct(i), approx_quantile(i, 0.5), reservoir_quantile(i, 0.5) from n
select favg(f), fsum(f), kahan_sum(f), geomean(abs(i) + 1), mad(i) from n where abs(f) < 100
select sum(i), sum(b), sum(f), sum(m), sum(flag::int) from n where abs(f) < 100
select group_concat(i, '-' order by id), bitstring_agg(i, -10, 100) from n where i between -10 and 100
-- dates and times
select interval '36 hour' + d::date from d
select date_trunc(unit, d) from d
select date_trunc(unit, ts), date_part(unit, d), date_diff(unit, d, date '2021-01-01'), date_sub(unit, d, date '2021-01-01') from d
select datediff('week', d, date '2021-01-01'), datesub('month', d, date '2021-01-01'), datepart('isoyear', d), last_day(d) from d
select extract(epoch from ts), extract('minute' from ts), extract(dow from d), extract(isodow from d), extract(week from d) from d
select date_part(['year', 'month'], d), yearweek(d), dayofweek(d), isodow(d), weekday(d), dayofyear(d), weekofyear(d), quarter(d) from d
select d + 1, d - 1, d - date '2020-01-01', ts - ts, ts - interval 1 day, d + interval (id) day, d + id::int from d
select strftime(d, '%d.%m.%Y'), strftime(ts, '%H:%M:%S.%f'), strptime('01/02/2020', '%d/%m/%Y'), try_strptime('x', '%Y') from d
select strptime('2020-01-02', ['%d', '%Y-%m-%d']), monthname(d), dayname(d), century(d), decade(d), era(d), millennium(d) from d
select make_date(2020, 1, 2), make_time(1, 2, 3.5), make_timestamp(2020, 1, 2, 3, 4, 5.5), epoch_ms(ts), epoch_us(ts), epoch_ns(ts), to_days(3) from d
select time_bucket(interval '2 weeks', d), time_bucket(interval '1 month', ts, timestamp '2020-01-15'), age(ts, timestamp '2019-01-01') from d
select greatest(d, date '2020-06-01'), least(ts, timestamp '2020-06-01'), d between '2020-01-01' and '2020-12-31', d = '2020-02-29' from d
select ts at time zone 'Europe/Berlin', tz at time zone 'Asia/Tokyo', timezone('UTC', ts), tz::timestamp, ts::timestamptz from d
select ts::date = d, ts::time, d::timestamp, d::timestamptz, cast(ts as varchar), to_timestamp(0), epoch_ms(0) from d
select to_years(1), to_months(2), to_weeks(1), to_hours(3), to_minutes(4), to_seconds(5.5), to_milliseconds(6), to_microseconds(7)
select date '2020-01-31' + interval 1 month, date '2020-03-31' - interval '1 month', timestamp '2020-01-01' + interval '1 hour 30 minutes'
select extract(day from interval '36 hour'), extract(hour from interval '36 hour'), interval 1 month = interval 30 day, interval 1 day * 3
select '2020-01-01 10:00:00'::timestamp::date, date '2020-01-01'::timestamp, time '10:00'::varchar, '10:00'::time
select timestamp '2020-01-01 10:00'::date + interval '36 hour', (timestamp '2020-01-01 10:00')::time
select isfinite(d), date 'infinity', '-infinity'::timestamp, julian(d), datetrunc('quarter', d) from d
select generate_series(date '2020-01-01', date '2020-01-03', interval 1 day), range(date '2020-01-01', date '2020-02-01', interval '1 week')
select min(d), max(ts), count(distinct d), mode(unit), median(d), quantile_disc(d, 0.5) from d
-- lists, structs, maps, lambdas
select l[1], l[-1], l[1:2], l[:2], l[2:], len(l), l || [9], list_concat(l, l), array_length(l) from c
select list_transform(l, x -> x + 1), list_transform(l, lambda x: x * 2), list_filter(l, lambda x: x > 1), list_reduce(l, lambda a, b: a + b) from c where len(l) > 0
select list_transform(l, lambda x, i: x + i), list_filter(l, x -> x % 2 = 0), list_apply(l, lambda x: x || 'a') from c
select [x + 1 for x in l], [x for x in l if x > 1], [upper(x) for x in words] from c
select list_sort(l), list_sort(l, 'desc'), list_sort(l, 'desc', 'nulls first'), list_reverse_sort(l), array_sort(l, 'asc', 'nulls last') from c
select list_contains(l, 1), list_position(l, 2), list_has_any(l, [1]), list_has_all(l, [1, 2]), l && [1], l @> [1], [1] <@ l from c
select list_distinct(l), list_unique(l), list_aggregate(l, 'sum'), list_sum(l), list_avg(l), list_min(l), list_string_agg(words) from c
select list_zip(l, words), flatten([l, l]), list_slice(l, 1, 2), list_slice(l, 1, 3, 2), list_resize(l, 3, 0), list_where(l, [true]) from c where len(l) = 1
select list_prepend(0, l), list_append(l, 4), array_pop_back(l), array_push_front(l, 1), list_grade_up(l), list_cosine_similarity([1.0, 2.0], [2.0, 1.0]) from c
select unnest(l), id from c
select unnest(st), id from c
select unnest({'a': 1, 'b': {'c': 2}}, recursive := true), unnest([[1, 2], [3]], max_depth := 2)
select id, u from c, unnest(l) as t(u)
select c.id, x.unnest from c, unnest(c.l) x
select id, u, o from c, unnest(l) with ordinality as t(u, o)
select st.a, st['b'], st.a + 1, struct_extract(st, 'b'), struct_insert(st, z := 1), st.* from c
select c.st.a, main.c.st.b from c
select mp['x'], mp['nothing'], map_keys(mp), map_values(mp), cardinality(mp), element_at(mp, 'x'), map_entries(mp), map_contains(mp, 'x') from c
select map_from_entries([('a', 1)]), map_concat(mp, map {'z': 1}), map_extract(mp, 'x') from c
select {'id': id, 'l': l}, row(id, l), [id, id + 1], struct_pack(k := id), array_value(1, 2, 3)::int[] from c
select list_select(l, [1]), list_any_value(l), list_first(l), list_last(l), repeat(l, 2), array_to_string(words, '-'), list_count(l) from c
select words.list_transform(lambda w: w[1]), len(words), words::varchar from c
select c from c
select t from (select id, st from c) t
select union_value(k := 1), array_cross_product([1.0, 2, 3]::float[3], [1.0, 2, 4]::float[3]), [1, 2]::int[2]
-- JSON
select j->'$.a', j->>'$.a', j->'a', j->>'a', json_extract(j, '$.b[0]'), json_extract_string(j, '$.b[1]') from w
select json_type(j), json_valid(j), json_keys(j), json_array_length(j, '$.b'), json_structure(j), json_contains(j, '1') from w where j is not null
select to_json({'a': 1}), json_object('a', 1, 'b', [1]), json_array(1, 'x'), json_merge_patch('{"a": 1}', '{"b": 2}'), '{"a": 1}'::json
select json_transform(j, '{"a": "INT"}'), from_json(j, '{"a": "INT"}'), (j->'a')::int, j::json from w
select json_group_array(id), json_group_object(id, s) from w where id = 1
-- clauses
from n
from n select i
from n where i > 1
from n select id, i where i > 1 order by all limit 2
from main.n
from main.n as q select q.i
from main.n select main.n.i, n.b
select * from n order by i desc nulls last, id limit 2 offset 1
select * from n order by all
select * from n order by id limit 50%
select distinct i from n
select distinct on (flag) flag, i from n order by flag, i, id
select i, count(*) from n group by i having count(*) > 1
select i, flag, sum(b) from n group by all
select i, flag, sum(b), grouping(i, flag) from n group by rollup (i, flag)
select i, flag, sum(b) from n group by cube (i, flag)
select i, flag, sum(b) from n group by grouping sets ((i), (flag), ())
select flag, sum(i) from n group by 1 order by 2
select flag as g, sum(i) from n group by g having g
select #1, #2 from (select 7, 8)
select id, i from n order by #1
select columns('i|b') from n
select columns(* exclude (id, flag)) + 1 from n
select columns(c -> c like '%i%') from n
select columns(lambda c: c like '%i%') from n
select min(columns(*)), max(columns(*)) from n
select columns(n.*) from n
select columns('(i)d') as '\1_x' from n
select coalesce(*columns(['i', 'b'])) as c from n
select * exclude (f) from n
select * exclude f from n
select * exclude (f, m) replace (i + 1 as i) from n
select * replace (i::varchar as i, not flag as flag) from n
select * rename (i as j) from n
select n.* exclude (n.f) from n
select * like '%i%' from n
select * glob 'f*' from n
select * similar to 'i.*' from n
select * not like 'f%' from n
select struct_pack(*columns(['i', 'b'])) as c from n
select sum(i) as total, total * 2 as double from n
select i as k, k + 1 as k2 from n where k > 1 order by k2
select i: id, x: i + 1 from n
select k from k: n
select o.i from o: main.n
select * from n where i = any (select i from n where flag)
select * from n where i > all (select 0)
select * from n where (i, flag) in (select i, flag from n)
select * from n where i in [1, 2]
select * from n where (i, b) = (1, 10)
select * from n where i is distinct from b
select * from n where flag
select * from n where not flag or i between 1 and 3
select id, (select max(id) from w) as most from n
select id, (select s from w where w.id = n.id) as s from n
select id from n where exists (from w where w.id = n.id and s like 'a%')
select id from n where id not in (select id from w where s is not null)
select array(select id from w order by id) as ids
select id from n where i = (select min(i) from n)
select x.id from (select id, i from n) x where x.i > 1
select x.k from (select id, i from n) as x(k, v)
select * from (values (1, 'a'), (2, 'b')) v(k, t)
values (1, 'a'), (2, null)
table n
(table n) union all (table n)
select * from range(3)
select * from range(3) r(i), n where n.i = r.i
select * from generate_series(1, 5, 2) as g(x)
select i, generate_series from n, generate_series(1, 2)
select * from n as a join n as b on a.id = b.i
select * from n join w using (id)
select * from n natural join w
select n.id, w.id from n left join w on n.id = w.id and w.s > 'b'
select n.id, w.id from n right join w on n.id + 1 = w.id
select n.id, w.id from n full outer join w on n.id + 1 = w.id
select id from n full join w using (id)
select n.id, w.id from n cross join w
select n.id, w.id from n, w where n.id = w.id
select n.id from n semi join w using (id)
select n.id from n anti join w on n.id = w.id and w.s = 'abc'
select * from n positional join w
select n.id, d.id from n asof join d on n.id >= d.id
select n.id, d.id from n asof left join d on n.flag = (d.id = 1) and n.id >= d.id
select n.id, x.s from n, lateral (select s from w where w.id = n.id) x
select n.id, x.s from n left join lateral (select s from w where w.id = n.id) x on true
select * from n inner join w on n.id = w.id inner join d on d.id = w.id
select * from (n join w using (id)) join d using (id)
select a.id from main.n a, main.n b where a.id = b.i
with x as (select id from n) select * from x
with x as (from n), y as (select * from x join w using (id)) from y
with x as materialized (from n), y as not materialized (from x) from y
with n as (select 1 as one) select * from n
with x(k) as (select id from n) select k from x
with recursive r(k) as (select 1 union all select k + 1 from r where k < 4) from r
with recursive r(k, v) using key (k) as (select 1, 2 union select k, v + 1 from r where v < 4) from r
with w2 as (select id, s from w) select n.id, w2.s from n join w2 on n.id = w2.id
with outerone as (with innerone as (from n) from innerone) from outerone
with n2 as (select * from n) select (select count(*) from n2) as many, id from n2
select * from (with x as (from w) select id from x) y
select id from n union select id from w
select id from n union all by name select s, id from w
select id, i from n union by name select id, s from w
select id from n intersect select id from w
select id from n except select id from w where s = 'abc'
select id from n except all select 1
(select id from n order by id limit 1) union all (select id from w order by id limit 1)
select id, sum(i) over w1, avg(i) over w1 from n window w1 as (partition by flag order by id)
select id, sum(i) over (partition by flag order by id rows between 1 preceding and current row) from n
select id, sum(i) over (order by id rows between unbounded preceding and current row exclude ties) from n
select id, sum(i) over (order by id groups between 1 preceding and 1 following) from n
select id, sum(id) over (order by d range between interval 40 day preceding and current row) from d
select id, first_value(i ignore nulls) over (order by id), last_value(i) over (order by id) from n
select id, lead(i, 1, -1) over (order by id), nth_value(i, 2) over (order by id), ntile(2) over (order by id) from n
select id, lag(i ignore nulls) over (order by id) from n
select id, rank() over (order by i), dense_rank() over (order by i), percent_rank() over (order by i), cume_dist() over (order by i) from n
select id, count(distinct i) over (partition by flag), string_agg(i::varchar, ',' order by id) over (order by id) from n
select id, row_number(order by i, id) over (order by id) from n
select id from n qualify row_number() over (partition by flag order by id) = 1
select id, rank() over (order by i) r from n qualify r < 3
select last(i ignore nulls) over (order by id) from n
select fill(i order by id) over (order by id) from n
pivot n on flag using sum(i)
pivot n on flag using sum(i) as s, count(*) as k group by i
pivot n on flag in (true, false) using sum(i)
pivot main.n on flag using max(i) group by id order by id
select * from n pivot (sum(b) for flag in (true, false) group by i)
select * from (pivot w on s using count(*) group by id)
from (select id, flag, i from n) pivot (sum(i) for flag in (true as yes, false as no))
with p as (pivot n on flag using sum(i)) from p
unpivot n on i, b into name k value v
unpivot (select id, i, b from n) on columns(* exclude id)
unpivot n on i, b::int as k
select * from n unpivot (v for k in (i, b))
from (select id, i, b::int as b from n) unpivot include nulls (v for k in (i, b))
describe select * from n
describe from n
select column_name, column_type from (describe n)
describe select len(s), count(*) from w group by all
summarize select id, i from n
select column_name from (summarize w)
select * from n tablesample 100%
select * from n tablesample 100 percent (bernoulli)
select count(*) from n tablesample reservoir(100 rows)
select * from n using sample 100 rows
select count(*) from n using sample 100% (system, 42)
select * from n as q tablesample (100 percent) repeatable (3)
select * from query('select 1 as one')
select * from (select * from n where i > 1) sub
select sub.id from (from n) as sub
select alias(i), typeof(i), typeof(m), typeof(ts) from n, d where n.id = d.id
select try(1 / 0), try(i::tinyint) from n
select n from n where n.i = 1
select getvariable('nothing'), current_schema() is not null
select count(*) from n where i is not null or false union all select 1
select i from n where i > 1 and case when flag then i < 100 else true end
select case i when 1 then 'one' when 2 then 'two' end from n
select i from n -- a comment
select i /* inside */ from /* another 'quote */ n
select i from n where true -- a 'comment' that has quotes"
select s from w where s = '-- no comment' or s = '/* nor this */'
select 'from n', "id" from n
select n.id as "from", 'main.n' as "main.n" from n
select id as n from n order by n
select i as "n.i", n.i from n
select (n).i, (n.id) from n
select id::varchar::int::double from n
select -id, +id, - -id, not not flag from n
select 'a' = any (['a', 'b']), 1 = any ([1, 2]), 3 > all ([1, 2])
select 1 between 0 and 2 and 3 between 2 and 4, not 1 between 2 and 3
select 1 is not null and null is null, (1 = 1) is true, (null = 1) is unknown, 1 isnull, 1 notnull
select 1 + 2 * 3 - 4 % 3, (1 + 2) * 3, 2 ** 3 ** 2, -2 ** 2, 2 * -3, 1 - -1
select 'a' || 'b' = 'ab', 1 + 1 = 2, not 1 = 2, 1 = 1 and 2 = 2 or false
select (1 < 2) = true, 5 & 3 = 1, 1 || 2
select * from n where i = 1 or i = 2 and flag
select sum(case when flag then 1 else 0 end), sum(flag::int), count(case when i > 1 then 1 end) from n
select max(s) filter (where s < 'c') as "max", min(s) "min" from w
select list(distinct s order by s) from w
select d.d, d.id, d.unit from d where d.d > '2020-01-01' order by d.d
select date, i from (select d as date, id as i from d)
select year, count(*) from (select year(d) as year from d) group by year
select "group", "order" from (select 1 as "group", 2 as "order")
select "é", 日本 from (select 1 as "é", 2 as 日本)
select * from w where s in ('é', '日本', '😀') or s like '%''%'
select 'é' || s, '日本'[1], length('😀é'), upper('straße') from n, w where n.id = w.id
select 1 as a, 2 as "A b", 3 as a_1
select count(*) c, c + 1 from n
select sum(i) / count(*) as mean, round(mean, 1) from n
select first(id order by id) over (), id from n
select id, list(id) over (order by id rows 1 preceding) from n
select approx_count_distinct(id), count(*) from n where id = -1
select sum(i), min(s) from n, w where false
select any_value(s), count(s), count(*), list(s) from w where id = -1
select * from n where false
select id from n order by i nulls first, id
select id from n order by i + b desc, id asc
select id from n limit (select 1)
select id from n order by id limit 1 offset (select 1)
select i, sum(b) from n group by (i) order by all desc
select i % 2 as parity, list(id order by id) from n group by parity
select i % 2, count(*) from n group by i % 2
select json_serialize_sql('select 1') is not null
select make_timestamp(0), to_timestamp(1.5), epoch_ms(701222400000)
select least(1, 2.5), greatest('a', 'b'), coalesce(null, 1, 2), constant_or_null(1, null)
select hash(1) = hash(1), md5('a'), sha1('a') from n where false
select error('x') from n where false
select count(*) from n a, n b, n c where a.id = b.id and b.id = c.id
select a.id, b.id from n a left join n b on a.i = b.id where b.id is null
select n.id from n join (select id from w where s is not null) using (id)
select * from (select 1 as a) x, (select 2 as b) y
select x.* exclude (id), y.s from n x join w y on x.id = y.id
select x.id, count(y.*) from n x left join w y on x.id = y.id group by x.id
select count(n.*) from n
select n.id, w.* replace (upper(s) as s) from n join w on n.id = w.id
select [n.id, w.id], {'s': w.s} from n join w on n.id = w.id
select id, i, b from n where row(i, b) > row(1, 1)
select * from n where id = (from w select max(id))
select id from n where id in (from w select id where s like 'a%')
select s, row_number() over () > 0 from w
select unnest(generate_series(1, id)) as g, id from n where id < 3
select id, unnest(['a', 'b']) as k, unnest([1, 2, 3]) as v from n where id = 1
-- generators inside of expressions, and window functions that filter
select id, unnest(l) + id as x, words from c
select *, unnest(l) as x, unnest(words) as w from c
select id, upper(unnest(words)) as w, row_number() over (order by id) as r from c order by w limit 3
select unnest(range(id)) * 10 as x, i from n order by i, x
select unnest(generate_series(d, d + interval 2 day, interval 1 day))::date as x from d
select c.id, x.u from c left join unnest(c.l) as x(u) on x.u > 1
select n.id, r.range from n, range(n.id) as r
select range(0), range(3, 0), generate_series(3, 1), generate_series(3, 1, -1)
select * from n qualify row_number() over (partition by i order by id) = 1
select *, row_number() over (order by id) as r from w qualify r > 1 and s is not null
select id from n qualify rank() over (order by i desc) < 3 order by id limit 1
select distinct on (i) * from n order by i, id desc
select distinct on (i % 2) id, i from n order by i % 2, id limit 1
select d - date '2020-01-01', max(d) over () - d, (d - date '2020-01-01') * 2 from d
select date_trunc('month', d), date_trunc('hour', ts), date_trunc('day', tz) from d
select d + to_days(id), ts - to_hours(3), d + to_months(id), ts + to_seconds(1.5) from d
