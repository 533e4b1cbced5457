"""Whether an expression is the same in every transaction, by DuckDB's catalog and against DuckDB itself."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from duckrun import MergeSpec, WriteSpec
from duckrun.engines.duckdb.instance.steady import are_constant, is_steady
from duckrun.session import Session
from duckrun.values.rows import MergeClause

CONSTANT = (
    "a > b",
    "coalesce(a, 1) > lower(b)",
    "a + interval 1 day",
    "list_transform(a, lambda x: x + 1)",
    "case when a is null then 1 end",
    "t.current_v",
)
CHANGING = (
    "now() > a",
    "a = today()",
    "CURRENT_DATE > a",
    "current_timestamp",
    "Current_Time = a",
    "localtimestamp",
    "current_localtimestamp() > a",
    "age(a) > b",
    "a in (select 1)",
    "exists (from v)",
    "random() < 0.5",
    "no_such_function(a)",
    "made(a)",
    "lower(b) || now()",
)


@pytest.fixture
def cursor() -> duckdb.DuckDBPyConnection:
    cursor = duckdb.connect()
    cursor.execute("create macro made(a) as a + 1")
    return cursor


@pytest.mark.parametrize("expression", CONSTANT)
def test_expressions_of_columns_and_constant_functions_are_constant(
    cursor: duckdb.DuckDBPyConnection, expression: str
) -> None:
    assert are_constant([expression], cursor)
    assert is_steady(expression, cursor)


@pytest.mark.parametrize("expression", CHANGING)
def test_one_expression_that_may_change_is_enough(cursor: duckdb.DuckDBPyConnection, expression: str) -> None:
    assert not are_constant([expression], cursor)
    assert not are_constant([*CONSTANT, expression], cursor)
    assert not are_constant([f"{expression} -- why\n", "a"], cursor)


def test_no_function_that_differs_between_transactions_is_constant(cursor: duckdb.DuckDBPyConnection) -> None:
    """DuckDB's own functions without arguments, asked in two transactions."""
    names = cursor.execute(
        "select distinct function_name from duckdb_functions() where function_type = 'scalar' "
        "and len(parameter_types) = 0 and function_name similar to '[a-z_0-9]+'"
    ).fetchall()
    differing = set()
    for (name,) in names:
        try:
            answers = {str(cursor.execute(f"select {name}()").fetchall()) for _ in range(3)}
        except duckdb.Error:
            continue  # it takes arguments after all
        if len(answers) > 1:
            differing.add(name)
            assert not are_constant([f"{name}()"], cursor), name
    assert {"now", "random", "current_localtimestamp", "txid_current"} <= differing


@pytest.mark.parametrize(
    "condition", ["target.v < 10", "target.v < 10 and now() > timestamptz '2020-01-01'"], ids=["constant", "time"]
)
def test_a_merge_is_the_same_in_one_transaction_and_in_several(duck: Session, condition: str) -> None:
    duck.execute("main.t", WriteSpec("overwrite"), pa.table({"id": list(range(1000)), "v": [1] * 1000}))
    clauses = (MergeClause("matched_update", condition), MergeClause("not_matched_insert"))
    merged = duck.execute(
        "main.t", MergeSpec(("id",), clauses), pa.table({"id": list(range(500, 1500)), "v": [20] * 1000})
    )
    assert (merged.rows_updated, merged.rows_inserted) == (500, 500)
    again = duck.execute("main.t", MergeSpec(("id",), clauses), pa.table({"id": [500, 2000], "v": [30, 30]}))
    assert (again.rows_updated, again.rows_inserted) == (0, 1)
    total = duck.sql("select count(*) as n, sum(v) as v from main.t").collect()[0]
    assert (total["n"], total["v"]) == (1501, 500 + 1000 * 20 + 30)
