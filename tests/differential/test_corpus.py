"""A text in DuckDB's dialect runs on a lake as it was written: rows, names and types are those of DuckDB on plain tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duckrun import DuckrunError, UnsupportedFeature
from duckrun.sql.names import transpile
from tests.differential.corpus import Both, calls, over_all_tables, queries
from tests.lake import rows_of


@pytest.fixture(scope="module", params=["delta", pytest.param("ducklake", marks=pytest.mark.differential)])
def both(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Both]:
    both = Both(tmp_path_factory.mktemp("corpus") / "lake", request.param)
    yield both
    both.close()


@pytest.mark.drawn(5)
@pytest.mark.parametrize("query", queries())
def test_a_query_gives_what_duckdb_gives(both: Both, query: str, request: pytest.FixtureRequest) -> None:
    if both.session.lake.format.name == "ducklake" and query in ("describe select * from n", "describe from n"):
        why = "DuckLake says NULL in words for the default of a column that has none"
        request.applymarker(pytest.mark.xfail(raises=AssertionError, reason=why, strict=True))
    expected = both.natively(query)
    assert expected.error is None, "a written query is one of DuckDB's"
    assert both.by_session(query) == expected


PARTS = 20


@pytest.mark.drawn(5)
@pytest.mark.parametrize("part", range(PARTS))
def test_calls_of_every_function_give_what_duckdb_gives(both: Both, part: int) -> None:
    made = calls(both.plain)[part::PARTS]
    assert made
    valid = [call for call in made if both.natively(over_all_tables([call])).error is None]
    assert len(valid) > len(made) / 3
    assert _differing(both, valid) == []


def _differing(both: Both, made: list[str]) -> list[str]:
    """The calls that the session gives otherwise: all in one query, and halves of it where that differs."""
    query = over_all_tables(made)
    if both.natively(query) == both.by_session(query):
        return []
    if len(made) == 1:
        return made
    half = len(made) // 2
    return _differing(both, made[:half]) + _differing(both, made[half:])


# -- what a change takes and sets

PREDICATES = (
    "s ~ 'b'",
    "s !~ 'a.*'",
    "not s ~ 'abc' or s is null",
    "regexp_matches(s, 'B', 'i')",
    "s similar to '(a|b).*' and id between 1 and 3",
    "id in (select id from main.n where i > 1) and s is not null",
    "s = any (['abc', ''])",
    "(s, id) in (('abc', 1), ('x', 2))",
    "list_contains([x + 1 for x in [1, 2]], id)",
    "len(list_filter(string_split(s, ''), lambda k: k = 'b')) > 0",
    "case when id > 2 and s = '' then true else false end",
    "id = 1_0 // 5 or s ^@ 'b'",
    "timestamp '2008-01-01 10:00'::date = date '2008-01-01' and id = 1",
    "s.upper() = 'ABC'",
    "s is distinct from 'abc' and s is not distinct from s",
    "s collate nocase = 'ABC'",
    "exists (from main.n where n.id = w.id and n.flag)",
    "w.id = (select min(id) from main.n where s ~ 'abc')",
)
VALUES = (
    "s = s || case when s ~ 'b' then '!' else '?' end",
    "s = regexp_replace(s, 'B', '-', 'gi')",
    "s = (timestamp '2008-01-01 10:00'::date)::varchar",
    "s = date_part('day', interval '36 hour' + date '2020-01-01')::varchar, j = null",
    "(s, j) = (j, s)",
    "s = (select string_agg(s, ',' order by id desc) from main.w)",
    "s = [upper(x) for x in [s]][1], id = id + 1_0",
    "s = list_transform([id], lambda x: x * 2)::varchar",
    "s = id is not distinct from 1",
    "s = $$it's$$ || E'\\t' -- a 'comment'",
)


@pytest.fixture
def changed(both: Both) -> Iterator[Both]:
    """Both, with tables that are as before in the end."""
    before = both.session.sql("from main.w").toArrow()
    yield both
    both.session.sql("drop table main.w")
    both.session.register("before_it", before)
    both.session.sql("create table main.w as from before_it")
    both.plain.execute("create or replace table w as from before")


def _same_rows(both: Both) -> None:
    assert rows_of(both.session.sql("from main.w")) == rows_of(both.plain.sql("from w").to_arrow_table())


@pytest.mark.drawn(5)
@pytest.mark.parametrize("predicate", PREDICATES)
def test_a_delete_takes_the_rows_that_duckdb_takes(changed: Both, predicate: str) -> None:
    changed.plain.execute(f"delete from w where {predicate}")
    changed.session.sql(f"delete from main.w where {predicate}")
    _same_rows(changed)


@pytest.mark.drawn(5)
@pytest.mark.parametrize("values", VALUES)
def test_an_update_sets_what_duckdb_sets(changed: Both, values: str) -> None:
    changed.plain.execute(f"update w set {values}\nwhere id < 4")
    changed.session.sql(f"update main.w set {values}\nwhere id < 4")
    _same_rows(changed)


@pytest.mark.parametrize(
    "statement",
    [
        "update w as t set s = n.i::varchar || t.s from main.n as n join d using (id) where t.id = n.id and t.s ~ 'a.*'",
        "delete from w as t using n, d where t.id = n.id and d.id = n.id and d.unit = 'year'",
        "insert into w by name select timestamp '2008-01-01 10:00'::date::varchar as s, 9 as id",
        "insert into w (id, s) values (7, $$it's$$), (8, default)",
        "with k as (select 11 as id, interval '14 months ago'::varchar as s) insert into w (id, s) from k",
        "merge into w as t using (select id, len(s) as k, s from w where s ~ 'abc') as q on t.id = q.id and q.s ~ 'a.*' "
        "when matched and t.s ~ '.*c' then update set s = q.k || $$'$$, j = case when q.k = 3 and true then 'x' end "
        "when not matched then insert (id) values (q.id)",
        "merge into w as t using (from n select id + 3 as k, i) q on t.id = q.k::int when matched then delete "
        "when not matched and q.k > 6 then insert (id, s) values (q.k, (interval '36 hour' + date '2020-01-01')::varchar)",
    ],
)
def test_a_change_from_other_tables_is_duckdbs(changed: Both, statement: str) -> None:
    changed.plain.execute(statement)
    changed.session.sql(statement)
    _same_rows(changed)


def test_a_table_made_of_a_query_has_duckdbs_names(both: Both) -> None:
    query = "select len(s), count(*), sum(id), s.upper() from w group by all"
    both.session.sql(f"create or replace table main.made as {query}")
    both.plain.execute(f"create or replace table made as {query}")
    assert both.session.sql("from main.made").columns == both.plain.table("made").columns
    both.session.sql("drop table main.made")


def test_views_keep_the_text_of_their_query(both: Both) -> None:
    query = "select id, s ~ 'b' as k, timestamp '2008-01-01 10:00'::date as day, [x for x in [id]] as l from w"
    expected = both.natively(query)
    for kind, name in (("view", "main.v"), ("temp view", "tv")):
        both.session.sql(f"create or replace {kind} {name} as {query}")
        assert both.by_session(f"from {name}") == expected
        assert both.by_session(f"select q.* from {name} as q where q.k is not null").error is None
    both.session.sql("drop view main.v; drop view tv")


def test_versions_are_read_by_every_spelling(both: Both) -> None:
    session = both.session
    session.sql("create or replace table main.p as select 1 as x")
    session.sql("insert into main.p values (2)")
    version = session.table("main.p").snapshot().version
    for at in (f"@v{version - 1}", f" at (version => {version - 1})"):
        assert session.sql(f"from p{at}").count() == 1
        assert session.sql(f"select a.x, p.x from main.p{at} as a join p on a.x < p.x").collect() == [
            {"x": 1, "x_1": 2}
        ]
    assert session.sql(f"select * from p version as of {version - 1}", dialect="spark").count() == 1
    assert session.sql(f"select * from p@v{version - 1}", dialect="spark").count() == 1
    with pytest.raises(DuckrunError, match="@"):
        session.sql("from p@20200101")
    frame = session.sql("from p")
    session.sql("insert into main.p values (3)")
    assert frame.count() == 2, "a Frame keeps the version that it was made at"
    session.sql("drop table main.p")


# -- the other dialect


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("last(x ignore nulls)", "IGNORE NULLS"),
        ("date_trunc(unit, d)", "the unit unit"),
        ("interval '14 months ago'", "14 months ago"),
        ("name ~ 'b'", "the operator ~"),
        ("name !~ 'b'", "the operator ~"),
        ("regexp_extract(name, 'b', 0, 'i')", "parameters"),
        ("list_sort(l, 'desc', 'nulls first')", "nulls first"),
        ("arg_max(a, b, 3)", "count"),
        ("sum(x) over (order by y rows 1 preceding exclude ties)", "EXCLUDE"),
    ],
)
def test_what_a_translation_to_spark_would_lose_is_refused(text: str, lost: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"(?s).*{lost}"):
        transpile(text, "duckdb", "spark")


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("timestamp '2008-01-01 10:00'::date", "CAST((CAST('2008-01-01 10:00' AS TIMESTAMP_NTZ)) AS DATE)"),
        ("regexp_matches(s, 'b', 'i')", "s RLIKE '(?iu)b'"),
        ("percentile_cont(0.25) within group (order by x)", "PERCENTILE(x, 0.25)"),
    ],
)
def test_what_a_parser_reads_otherwise_is_translated_as_it_is_meant(text: str, translated: str) -> None:
    assert transpile(text, "duckdb", "spark") == translated


@pytest.mark.parametrize(
    ("text", "lost"), [("date_trunc(u, d)", "the unit U"), ("levenshtein(a, b, 3)", "levenshtein")]
)
def test_what_a_translation_from_spark_would_lose_is_refused(text: str, lost: str) -> None:
    with pytest.raises(UnsupportedFeature, match=f"(?s).*{lost}"):
        transpile(text, "spark", "duckdb")
