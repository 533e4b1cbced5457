"""DuckDB's SQL as Spark's: what sqlglot alone would let mean something else."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import duckrun
from duckrun.errors import InvalidConfig, UnsupportedFeature
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.names import transpile


def on_spark(sql: str, dialect: str = "duckdb") -> str:
    return text_in(tree_in(sql, dialect), "spark")


@pytest.mark.parametrize(
    ("expression", "translated"),
    [
        ("cast(cast(x as date) as varchar(5))", "CAST(CAST(x AS DATE) AS STRING)"),
        ("dayofweek(d)", "(DAYOFWEEK(d) - 1)"),
        ("extract(dow from d)", "(DAYOFWEEK(d) - 1)"),
        ("date_part('dow', d)", "(DAYOFWEEK(d) - 1)"),
        ("dayname(d)", "DATE_FORMAT(d, 'EEEE')"),
        ("week(d)", "WEEKOFYEAR(d)"),
        (
            "trim(s)",
            "TRIM('{}' FROM s)".format("".join(map(chr, (32, 160, 5760, *range(8192, 8203), 8239, 8287, 12288)))),
        ),
        ("regexp_matches(s, 'a$', 'i')", "s RLIKE '(?iu)a\\\\z'"),
        ("list_slice(a, 2, 3)", "SLICE(a, 2, 2)"),
        ("log(10, x)", "LOG10(x)"),
        ("date_diff('month', a, b)", "TIMESTAMPDIFF(MONTH, DATE_TRUNC('MONTH', a), DATE_TRUNC('MONTH', b))"),
        ("date_add(a, interval (1) day)", "(COALESCE(a, CAST(NULL AS TIMESTAMP_NTZ)) + INTERVAL '1' DAY)"),
        ("a::timestamp + interval (n) month", "CAST(a AS TIMESTAMP_NTZ) + MAKE_YM_INTERVAL(0, n)"),
        ("interval '1' day + interval '2' day", "INTERVAL '1' DAY + INTERVAL '2' DAY"),
        ("a::timestamp - to_hours(n)", "CAST(a AS TIMESTAMP_NTZ) - MAKE_DT_INTERVAL(0, n)"),
        ("a::date - b::date", "CAST(DATEDIFF(CAST(a AS DATE), CAST(b AS DATE)) AS BIGINT)"),
        ("a - b", "a - b"),
        ("date_trunc('month', d)", "IF(FALSE, d, CAST(DATE_TRUNC('MONTH', d) AS TIMESTAMP_NTZ))"),
        ("row_number() over (order by a)", "CAST(ROW_NUMBER() OVER (ORDER BY a NULLS LAST) AS BIGINT)"),
        ("range(3)", "SEQUENCE(CAST(0 AS BIGINT), CAST(2 AS BIGINT))"),
        ("regexp_replace(a, '(x)', '\\1$', 'g')", "REGEXP_REPLACE(a, '(x)', '$1\\\\$')"),
        ("quantile_cont(x, 0.5)", "PERCENTILE(x, 0.5)"),
        ("error('no')", "RAISE_ERROR('no')"),
        ("'{}'::json", "CAST('{}' AS STRING)"),
        ("arbitrary(a)", "ANY_VALUE(a)"),
        ("any_value(a)", "ANY_VALUE(a) IGNORE NULLS"),
        ("a[2:3]", "SLICE(a, 2, 2)"),
        ("a[2]", "TRY_ELEMENT_AT(a, 2)"),
        ("a[-1]", "TRY_ELEMENT_AT(a, -1)"),
        ("a[n]", "TRY_ELEMENT_AT(a, n)"),
        ("a['key']", "a['key']"),
        ("map {'k': x, 'l': 2}", "MAP('k', x, 'l', 2)"),
        ("(map {1: x})[1]", "TRY_ELEMENT_AT((MAP(1, x)), 1)"),
        ("map([1], [x])[1]", "TRY_ELEMENT_AT(MAP_FROM_ARRAYS(ARRAY(1), ARRAY(x)), 1)"),
        ("map {}", "CAST(MAP() AS MAP<INT, INT>)"),
        ("row(x, 2)", "NAMED_STRUCT('col1', x, 'col2', 2)"),
        ("list_aggr(a, 'string_agg', '-')", "IF(SIZE(ARRAY_COMPACT(a)) > 0, ARRAY_JOIN(a, '-'), NULL)"),
        (
            "array_agg(x)",
            "IF(SIZE(COLLECT_LIST(NAMED_STRUCT('v', x))) > 0, TRANSFORM(COLLECT_LIST(NAMED_STRUCT('v', x)), item -> item.v), NULL)",
        ),
        ("corr(x, y)", "COALESCE(CORR(x, y), IF(REGR_COUNT(x, y) > 0, CAST('nan' AS DOUBLE), NULL))"),
        ("quantile(x, 0.5)", "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x ASC)"),
        ("arg_max(x, y)", "MAX_BY(x, IF(x IS NULL, NULL, y))"),
    ],
)
def test_an_expression_keeps_its_meaning(expression, translated):
    assert on_spark(f"select {expression}") == f"SELECT {translated}"


@pytest.mark.parametrize("expression", ["CAST(x AS INT) > 0", "CAST(x AS STRING) = 'a'"])
def test_a_definition_keeps_its_casts_as_both_engines_read_it_in_sparks_sql(expression):
    in_duckdb = expression.replace("STRING", "VARCHAR")
    assert transpile(in_duckdb, "duckdb", "spark", is_definition=True) == expression
    assert "typeof" in transpile(in_duckdb, "duckdb", "spark").lower()


def test_spark_s_own_json_stays_a_variant():
    assert on_spark("select parse_json(a)", "spark") == "select parse_json(a)"
    assert on_spark("select json(a)") == "SELECT a"  # which is text in DuckDB, and in the table


def test_a_condition_is_no_name_of_the_table():
    assert on_spark("select * from t where (flag)") == "SELECT * FROM t WHERE flag"
    assert on_spark("select * from t where ((true))") == "SELECT * FROM t WHERE TRUE"
    assert on_spark("select * from t where (a = 1)") == "SELECT * FROM t WHERE (a = 1)"


def test_a_series_gives_rows():
    assert on_spark("select i from range(3) as t(i)") == (
        "SELECT i FROM (SELECT EXPLODE(SEQUENCE(CAST(0 AS BIGINT), CAST(2 AS BIGINT))) AS `i`) AS t"
    )


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select regexp_replace(a, 'x', 'y')", "first match only"),
        ("select distinct on (x) * from t qualify row_number() over (order by x) = 1", "inner query"),
        ("select unnest(x) + 1 from t qualify row_number() over (order by x) = 1", "inner query"),
        ("select a.*, b.*, unnest(x) + 1 from a, b", "name the columns"),
        ("select unnest(x, recursive := true) + 1 from t", "unnest\\(\\) with options"),
        ("select * from t, unnest(x) with ordinality as u(a, b)", "WITH ORDINALITY"),
        ("select a[n:]", "two positive numbers"),
        ("select list_aggr(a, 'median')", "median"),
        ("select array_agg(distinct a order by b)", "list_sort"),
    ],
)
def test_what_cannot_keep_its_meaning_is_refused(sql, words):
    with pytest.raises(UnsupportedFeature, match=words):
        on_spark(sql)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("1 / x", "division by zero: 0"),
        ("cast(concat('a', x) as int)", "no whole number: a0"),
        ("cast(array(x) as string)", "a text that differs on Spark: INTEGER[]"),
        ("round(1.005D + x, 2)", "Spark rounds another way, cast it to a decimal: 1.005"),
    ],
)
def test_an_error_in_a_row_of_spark_s_sql_on_duckdb_is_one_sentence(root, expression, error):
    query = f"select {expression} as y from (values (0)) as t(x)"
    with duckrun.connect(root) as s, pytest.raises(InvalidConfig) as raised:
        s.sql(query, dialect="spark").collect()
    assert str(raised.value).startswith(f"query: {error}") and "INT32" not in str(raised.value)


def test_a_concat_leaves_null_out_of_whatever_type(session):
    rows = "(VALUES (1, DATE '2024-02-29', 'a', true), (NULL, NULL, NULL, NULL)) AS t(n, d, s, b)"
    found = session.sql(f"SELECT concat(n, '-', d, s, b) AS x FROM {rows} ORDER BY n").collect()
    assert found == [{"x": "1-2024-02-29atrue"}, {"x": "-"}]


def test_a_list_keeps_its_order_and_its_nulls(session):
    rows = "(values (1, 'b', 2), (2, 'a', 2), (3, null, 1), (4, 'd', null), (5, 'c', null)) as t(id, x, y)"
    lists = "array_agg(x order by y desc, id desc) as l, array_agg(x order by y nulls first, id)[2:4] as m"
    (row,) = session.sql(
        f"select {lists}, list_aggr(list(x order by id), 'string_agg', '-') as n from {rows}"
    ).collect()
    assert (list(row["l"]), list(row["m"]), row["n"]) == (["a", "b", None, "c", "d"], ["c", None, "b"], "b-a-d-c")


def test_an_element_is_counted_from_one_or_from_the_end(session):
    elements = "l[1] as a, l[-1] as b, l[7] as c, l[i] as d"
    (row,) = session.sql(f"select {elements} from (select [4, 5, 6] as l, 2 as i) as t").collect()
    assert [row[name] for name in "abcd"] == [4, 6, None, 5]


def test_days_between_dates_are_known_by_the_tables_and_the_queries_between(session):
    session.sql(
        "create table days as select date '2024-03-01' as a, date '2024-02-01' as b, timestamp '2024-03-01 12:00:00' as t"
    )
    rows = session.sql(
        "with m(x, y) as (select max(a), min(b) from days), n as (select * from m where x - y > 1) "
        "select n.x - y as plain, (select max(a) from days) - n.y as inner, lag(y, 0) over (order by y) - x as lagged, "
        "(select t::date - b from days) as casted, (select t - t from days) = interval 0 day as times from n"
    )
    assert rows.collect() == [{"plain": 29, "inner": 29, "lagged": -29, "casted": 29, "times": True}]


# Each with the rows of a plain DuckDB: generators, and what filters by window functions, around which Spark needs other queries.
ROWS = [
    "with m as (select i, i > 2 as many from t) select many from m where (many)",
    "select many from (select i > 2 as many from t) where ((many))",
    "select many from (select i > 2 as many from t) where (false)",
    "select i, unnest(xs) * 2 + i as x from t",
    "select *, unnest(xs) + 1 as x from t where i < 3",
    "select i, unnest(xs) as x, unnest(ys) || '!' as y from t order by i desc, x limit 4",
    "select upper(s) as u, unnest(list(i order by i)) + 1 as x from t group by u",
    "select unnest(list(i)) + 1 as x, upper(s) as u from t group by 2 having count(*) > 0",
    "select i, row_number() over (order by i) as r, unnest(xs) as x from t",
    "select distinct unnest(xs) % 2 as x from t",
    "select unnest(xs)::varchar || '-' || unnest(xs) as x from t",
    "select unnest(generate_series(date '2024-01-30', date '2024-02-02', interval 1 day))::date as d",
    "with m as (select unnest(generate_series(d, ts, interval '1 month')) as x, i from t) select x, count(*) as c from m group by x",
    "select range(n) as a, generate_series(i, n) as b, generate_series(n, i, -1) as c, range(n, i, i) as e, range(0) as f from t",
    "select range(date '2024-01-08', date '2024-01-05', - interval 1 day) as a, range(ts, ts, interval 1 hour) as b from t",
    "select i, x from t left join unnest(t.xs) r(x) on x > 1",
    "select t.i, r.range from t, range(t.n) r",
    "select d + interval 1 day as a, interval 1 month + d as b, d - interval (n) hour as c, ts + to_days(i) as e, d + 1 as f from t",
    "select date_trunc('week', d) as a, date_trunc('hour', ts) as b, date_trunc('day', ts::timestamptz) as c from t",
    "select * from t qualify row_number() over (partition by s order by i desc) = 1",
    "select *, rank() over (order by i) as rn from t qualify rn > 1 and s is not null",
    "select i from t qualify row_number() over (order by d desc nulls last, i) <= 2 order by i limit 1",
    "select s, count(*) as c from t group by s qualify rank() over (order by count(*) desc, s) <= 1",
    "select distinct on (s) * from t order by s nulls first, i desc limit 2",
]
TIMES = "select d + interval 1 day as a, d + 1 as b, date_trunc('month', d) as c, d - date '2020-01-01' as e, rank() over (order by i) as f from t"
TABLE = """
    select * from (values
        (1, [1, 2, 3], ['a'], date '2024-01-27', timestamp '2024-04-01 10:00:00', 'x', 3), (2, [4], [], date '2024-02-28', null, 'y', 0),
        (3, null, ['c'], null, timestamp '2020-02-29 23:59:59.5', null, -2), (4, []::int[], null, date '2020-02-28', null, 'x', 5)
    ) v(i, xs, ys, d, ts, s, n)"""


@pytest.mark.spark
def test_generators_times_and_filters_make_the_tables_that_duckdb_makes(root, spark):
    def shown(values):
        return sorted(repr([list(v) if isinstance(v, list) else v for v in row.values()]) for row in values)

    with duckdb.connect() as plain, duckrun.connect(root, engine="spark", spark=spark) as session:
        plain.execute("set TimeZone = 'UTC'")
        plain.execute(f"create table t as {TABLE}")
        session.sql(f"create table t as {TABLE}", dialect="duckdb")
        for query in ROWS:
            expected = plain.sql(query).to_arrow_table()
            found = session.sql(query).toArrow()
            assert found.column_names == expected.column_names, query
            assert shown(found.to_pylist()) == shown(expected.to_pylist()), query
            if not any("list" in str(kind) for kind in expected.schema.types):
                assert [_kind(a) for a in found.schema.types] == [_kind(b) for b in expected.schema.types], query
        session.sql(f"create table made as {TIMES}")
        made = DeltaTable(str(root / "main" / "made")).to_pyarrow_table()
        assert [_kind(a) for a in made.schema.types] == [
            _kind(b) for b in plain.sql(TIMES).to_arrow_table().schema.types
        ]


def _kind(kind: pa.DataType) -> str:
    return str(kind).replace("large_", "").replace("string_view", "string")


@pytest.mark.spark
def test_a_series_by_months_from_the_end_of_a_month_is_refused_by_name(root, spark):
    with duckrun.connect(root, engine="spark", spark=spark) as session:
        rows = session.sql("select generate_series(date '2024-01-31', date '2024-05-01', interval 1 month)")
        with pytest.raises(Exception, match="after the 28th is another one on Spark"):
            rows.collect()


def test_inner_queries_keep_their_own_with():
    query = "WITH a AS (SELECT 1 AS x) SELECT * FROM a, (WITH a AS (SELECT 2 AS x) SELECT * FROM a) AS u"
    assert on_spark(query) == query


@pytest.mark.parametrize(
    ("query", "difference"),
    [
        (
            "WITH RECURSIVE c AS (SELECT CAST('2024-01-01' AS DATE) AS d UNION ALL SELECT d + 1 FROM c) SELECT {} FROM c",
            "CAST(DATEDIFF(d, d) AS BIGINT)",
        ),
        (
            "WITH RECURSIVE c(d) AS (SELECT CAST('2024-01-01' AS DATE) UNION ALL SELECT d + 1 FROM c) SELECT {} FROM c",
            "CAST(DATEDIFF(d, d) AS BIGINT)",
        ),
        ("SELECT {} FROM (SELECT d FROM unknown) AS s", "d - d"),
        ("WITH s AS (SELECT d FROM unknown) SELECT {} FROM s", "d - d"),
        ("SELECT {} FROM (SELECT d FROM unknown) AS s, (SELECT s.d AS e FROM unknown) AS t", "d - e"),
        (
            "WITH c AS (SELECT CURRENT_DATE AS d), b AS (SELECT * FROM c) SELECT {} FROM b",
            "CAST(DATEDIFF(d, d) AS BIGINT)",
        ),
    ],
)
def test_a_date_is_found_through_the_tables_of_its_query(query: str, difference: str):
    plain = difference if " - " in difference else "d - d"
    assert on_spark(query.format(plain)) == query.format(difference)


def test_sparks_own_sql_is_left_as_it_is():
    query = "SELECT DAYOFWEEK(d), DATEDIFF(MONTH, a, b), REGEXP_REPLACE(a, 'x', 'y'), DAYNAME(d)"
    assert on_spark(query, "spark") == query


LITERALS = [
    "'it''s'", "''''", '"a""b"', "\"it's\"", r"'it\'s'", "'x' 'y'", "'a''b' 'c'", r"'a\\''b'", r"r'a\d'", r"'a\nb\t\\'", r"'a\%b'",
    r"'a\_b'", r"'\u0041\101'", "X'1F'", "1L", "2S", "3Y", "1.5BD", "2.5F", "1e3", ".5", "99999999999999999999", "-9223372036854775808",
    "date'2020-01-01'", "timestamp_ntz'2020-01-01 00:00:00'", "interval '1' day",
]  # fmt: skip


@pytest.mark.spark
def test_literals_of_spark_s_dialect_are_what_they_are_to_spark(root, spark):
    columns = ", ".join(f"{literal} as c{n}" for n, literal in enumerate(LITERALS))
    native = spark.sql(f"select {columns}")
    with duckrun.connect(root, engine="spark", spark=spark) as s:
        ours = s.sql(f"select {columns}", dialect="spark").native
        for given, found, wanted in zip(LITERALS, ours.collect()[0], native.collect()[0], strict=True):
            assert found == wanted, given
        assert [field.dataType for field in ours.schema] == [field.dataType for field in native.schema]


def test_a_doubled_quote_of_spark_s_dialect_is_one_in_expressions_too():
    assert transpile("name = 'it''s'", "spark", "duckdb") == "name = 'it''s'"
    assert transpile("name = 'it' 's'", "spark", "duckdb") != transpile("name = 'it''s'", "spark", "duckdb")
