"""DuckDB's SQL as Spark's: what sqlglot alone would let mean something else."""

from __future__ import annotations

import pytest

import duckrun
from duckrun.errors import UnsupportedFeature
from duckrun.sql.dialects import text_in, tree_in
from duckrun.sql.names import transpile


def on_spark(sql: str, dialect: str = "duckdb") -> str:
    return text_in(tree_in(sql, dialect), "spark")


@pytest.mark.parametrize(
    ("duckdb", "spark"),
    [
        ("cast(x as varchar(5))", "CAST(x AS STRING)"),
        ("dayofweek(d)", "(DAYOFWEEK(d) - 1)"),
        ("extract(dow from d)", "(DAYOFWEEK(d) - 1)"),
        ("date_part('dow', d)", "(DAYOFWEEK(d) - 1)"),
        ("dayname(d)", "DATE_FORMAT(d, 'EEEE')"),
        ("week(d)", "WEEKOFYEAR(d)"),
        ("date_diff('month', a, b)", "TIMESTAMPDIFF(MONTH, DATE_TRUNC('MONTH', a), DATE_TRUNC('MONTH', b))"),
        ("date_add(a, interval (1) day)", "(a + INTERVAL '1' DAY)"),
        ("a + interval (n) month", "a + MAKE_YM_INTERVAL(0, n)"),
        ("regexp_replace(a, '(x)', '\\1$', 'g')", "REGEXP_REPLACE(a, '(x)', '$1\\\\$')"),
        ("quantile_cont(x, 0.5)", "PERCENTILE(x, 0.5)"),
        ("error('no')", "RAISE_ERROR('no')"),
        ("a::json", "CAST(a AS STRING)"),
        ("arbitrary(a)", "ANY_VALUE(a)"),
        ("any_value(a)", "ANY_VALUE(a) IGNORE NULLS"),
        ("a[2:3]", "SLICE(a, 2, 2)"),
        ("a[2]", "TRY_ELEMENT_AT(a, 2)"),
        ("a[-1]", "TRY_ELEMENT_AT(a, -1)"),
        ("a[n]", "TRY_ELEMENT_AT(a, n)"),
        ("a['key']", "a['key']"),
        ("list_aggr(a, 'string_agg', '-')", "ARRAY_JOIN(a, '-')"),
        ("array_agg(x)", "TRANSFORM(COLLECT_LIST(NAMED_STRUCT('v', x)), item -> item.v)"),
        (
            "list(x) filter (where y) over (partition by z)",
            "TRANSFORM(COLLECT_LIST(NAMED_STRUCT('v', x)) FILTER(WHERE y) OVER (PARTITION BY z), item -> item.v)",
        ),
    ],
)
def test_an_expression_keeps_its_meaning(duckdb, spark):
    assert on_spark(f"select {duckdb}") == f"SELECT {spark}"


def test_spark_s_own_json_stays_a_variant():
    assert on_spark("select parse_json(a)", "spark") == "select parse_json(a)"
    assert on_spark("select json(a)") == "SELECT a"  # which is text in DuckDB, and in the table


def test_a_series_gives_rows():
    assert on_spark("select i from range(3) as t(i)") == "SELECT i FROM (SELECT EXPLODE(SEQUENCE(0, 2)) AS `i`) AS t"


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select regexp_replace(a, 'x', 'y')", "first match only"),
        ("select * from t qualify row_number() over (order by x) = 1", "name the columns"),
        ("select a[n:]", "two positive numbers"),
        ("select list_aggr(a, 'median')", "median"),
        ("select array_agg(distinct a order by b)", "list_sort"),
    ],
)
def test_what_cannot_keep_its_meaning_is_refused(sql, words):
    with pytest.raises(UnsupportedFeature, match=words):
        on_spark(sql)


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


def test_inner_queries_keep_their_own_with():
    query = "WITH a AS (SELECT 1 AS x) SELECT * FROM a, (WITH a AS (SELECT 2 AS x) SELECT * FROM a) AS u"
    assert on_spark(query) == query


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
