"""Comparisons of texts with numbers, and of structs: each dialect's own result after a translation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import duckrun
from duckrun.errors import DuckrunError, UnsupportedFeature
from duckrun.session import Session
from duckrun.sql.dialects import text_in, tree_in

ROWS = """
    create table r as select * from (values
        (1, 1.25::decimal(3, 2), '1.51', {'a': 1, 'b': 'q'}, 7), (2, 2.5, '1.5', {'a': 2, 'b': 'r'}, 8), (3, null, null, null, null)
    ) t(id, m, s, st, v)
"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with duckrun.connect(tmp_path / "lake") as session:
        session.sql(ROWS)
        yield session


def ids(session: Session, query: str) -> list[int]:
    return sorted(row["id"] for row in session.sql(query, dialect="spark").collect())


@pytest.mark.parametrize(
    ("condition", "expected"),  # of Spark 4.1
    [
        ("m = '1.254'", []),
        ("'1.25' = m", [1]),
        ("m < '1.251'", [1]),
        ("m in ('1.254', '2.50')", [2]),
        ("m between '1.249' and '1.251'", [1]),
        ("s = 1.5", [2]),
        ("s > 1.5", [1]),
        ("s in (1.5, 3.0)", [2]),
        ("s = m", []),
        ("case s when 1.5 then true end", [2]),
        ("nullif(s, 1.5) is not null", [1]),
        ("v = '7'", [1]),
        ("st = struct(1, 'q')", [1]),
        ("st <> named_struct('x', 1, 'y', 'q')", [2]),
        ("st <=> struct(1, 'q')", [1]),
        ("st in (struct(1, 'q'), struct(9, 'q'))", [1]),
        ("nullif(st, struct(1, 'q')) is not null", [2]),
    ],
)
def test_duckdb_compares_as_spark_in_sparks_dialect(session: Session, condition: str, expected: list[int]) -> None:
    assert ids(session, f"select id from r where {condition}") == expected


@pytest.mark.parametrize("condition", ["v = '7.0'", "v < '7.4'", "cast(s as string) = 1"])
def test_a_text_with_a_fraction_is_no_integer_in_sparks_dialect(session: Session, condition: str) -> None:
    with pytest.raises(DuckrunError):
        ids(session, f"select id from r where {condition}")


def test_types_are_known_through_queries_and_joins(session: Session) -> None:
    assert ids(session, "with w as (select id, m as n from r) select id from w where n = '1.254'") == []
    assert ids(session, "select a.id from r a join r b on a.m = b.s") == []
    names = "(select named_struct('x', 1, 'y', 'q') as z)"
    assert ids(session, f"select id from r join {names} on st = z") == [1]


def test_a_change_in_sparks_dialect_hits_the_rows_that_spark_would_change(session: Session) -> None:
    session.sql("delete from r where m = '1.254'", dialect="spark")
    assert ids(session, "select id from r") == [1, 2, 3]
    source = "(select 1 as id, named_struct('x', 1, 'y', 'q') as st, '1.254' as m)"
    session.sql(f"merge into r using {source} n on r.id = n.id when matched and r.m = n.m then delete", dialect="spark")
    assert ids(session, "select id from r") == [1, 2, 3]
    session.sql(
        f"merge into r using {source} n on r.id = n.id when matched and r.st = n.st then delete", dialect="spark"
    )
    assert ids(session, "select id from r") == [2, 3]


def test_structs_of_a_union_have_the_names_of_the_first_query_in_sparks_dialect(session: Session) -> None:
    rows = session.sql(
        "select struct(1 as a, 2 as b) as s union all select struct(3 as b, 4 as a)", dialect="spark"
    ).collect()
    assert rows == [{"s": {"a": 1, "b": 2}}, {"s": {"a": 3, "b": 4}}]


@pytest.mark.parametrize(("condition", "pushed"), [("m = '1.25'", "m=1.25"), ("id = '5'", "id=5")])
def test_a_scan_still_gets_the_comparison(session: Session, condition: str, pushed: str) -> None:
    plan = session.sql(f"explain select id from r where {condition}", dialect="spark").collect()
    assert pushed in str(plan)


@pytest.mark.parametrize(
    ("condition", "translated"),
    [
        ("m::decimal(3, 2) = '1.254'", "CAST(m AS DECIMAL(3, 2)) = CAST('1.254' AS DECIMAL(3, 2))"),
        ("upper(s) = 1.5", "CAST(UPPER(s) AS DECIMAL(2, 1)) = 1.5"),
        ("v::int = '7'", "= '7'"),
        ("m = '1.25'", "m = '1.25'"),
        ("{'a': 1, 'b': 2} = {'b': x, 'a': y}", "STRUCT(1 AS a, 2 AS b) = NAMED_STRUCT('a', y, 'b', x)"),
        ("st = row(1, 'q')", "st = NAMED_STRUCT('col1', 1, 'col2', 'q')"),
    ],
)
def test_spark_compares_as_duckdb_in_duckdbs_dialect(condition: str, translated: str) -> None:
    assert text_in(tree_in(condition, "duckdb"), "spark").endswith(translated)


def test_structs_with_other_fields_are_refused_on_spark() -> None:
    with pytest.raises(UnsupportedFeature, match="fields a beside one with z"):
        text_in(tree_in("select {'a': 1} as s union all select {'z': 3}", "duckdb"), "spark")
